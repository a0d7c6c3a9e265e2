// Who may do what (docs/server.md, "Rights").
//
// Thread safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/cluster/http/message.h"
#include "perseus/cluster/server/answer.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

// What an endpoint asks of who calls it.
enum class Access {
  kPublic,    // Nothing: whether the server lives.
  kRead,      // Looking: any scope; of a job, not another job's token.
  kReadAll,   // Looking at more than one job: any scope but a job's.
  kJob,       // Changing a job: operators, and that job's token.
  kNode,      // A node's half: operators and agents.
  kOperator,  // All else.
};

struct Principal {
  enum class Scope { kOperator, kAgent, kJob, kRead };
  Scope scope = Scope::kOperator;
  std::string job;    // Key, of scope kJob.
  std::string token;  // Its id, for the log; empty: there are no tokens.
};

// Of "Bearer …". kInput: none of the four scopes.
Result<Principal::Scope> ParseScope(std::string_view text);
// SHA-256, hexadecimal.
std::string HashOfSecret(std::string_view secret);
// A new token's secret: "perseus_" and 256 bits.
std::string NewSecret();

class Rights {
 public:
  // Who is everybody an operator for while there are no tokens. kOpenHere: for programs of this
  // machine, who reach it as localhost or by such an address: so no web page in a browser here,
  // whatever name it has this address go by, is an operator (DNS rebinding).
  enum class WithoutTokens { kOpen, kOpenHere, kClosed };
  explicit Rights(WithoutTokens without) : without_(without) {}

  // From now on those of the store. What was known stays on failure.
  Result<void> Load(store::Store& store);

  // 401 without a token that is one and has not expired.
  Answer<Principal> Identify(const http::Request& request, store::Milliseconds now) const;
  // 403 if he may not. `job_key`: of the job that is asked for; empty: none, or all.
  static Answer<void> Check(const Principal& principal, Access access, std::string_view job_key);

 private:
  WithoutTokens without_;
  mutable Mutex mutex_;
  std::shared_ptr<const std::vector<store::TokenRecord>> tokens_ PERSEUS_GUARDED_BY(mutex_) =
      std::make_shared<std::vector<store::TokenRecord>>();
};

}  // namespace perseus::server
