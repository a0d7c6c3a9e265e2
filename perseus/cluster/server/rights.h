// Which caller may do what (docs/server.md, "Rights").
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

// What an endpoint requires of its caller.
enum class Access {
  kPublic,    // Everybody, without a token.
  kRead,      // Read one job: any scope. A token of scope job only for its own job.
  kReadAll,   // Read several jobs: any scope except job.
  kJob,       // Change a job: operators, and the token of this job.
  kNode,      // What node daemons do: operators and agents.
  kOperator,  // Everything else.
};

struct Principal {
  enum class Scope { kOperator, kAgent, kJob, kRead };
  Scope scope = Scope::kOperator;
  std::string job;    // For scope kJob: the key of the job.
  std::string token;  // Id of the token, for the log. Empty if no tokens exist.
};

// kInput if the text is not one of the four scopes.
Result<Principal::Scope> ParseScope(std::string_view text);
// SHA-256, hexadecimal.
std::string HashOfSecret(std::string_view secret);
// The secret of a new token: "perseus_" and 256 random bits.
std::string NewSecret();

class Rights {
 public:
  // Who is an operator while no tokens exist. kOpen: everybody. kClosed: nobody. kOpenHere:
  // programs of this machine that use localhost or a loopback address in the URL. So a web page in
  // a browser on this machine is no operator, whatever name it uses for the address (DNS
  // rebinding).
  enum class WithoutTokens { kOpen, kOpenHere, kClosed };
  explicit Rights(WithoutTokens without) : without_(without) {}

  // Reads the tokens from the store. Keeps the old ones on failure.
  Result<void> Load(store::Store& store);

  // 401 without a valid token.
  Answer<Principal> Identify(const http::Request& request, store::Milliseconds now) const;
  // 403 if the caller has no access. `job_key`: the key of the requested job. Empty: none, or all.
  static Answer<void> Check(const Principal& principal, Access access, std::string_view job_key);

 private:
  WithoutTokens without_;
  mutable Mutex mutex_;
  std::shared_ptr<const std::vector<store::TokenRecord>> tokens_ PERSEUS_GUARDED_BY(mutex_) =
      std::make_shared<std::vector<store::TokenRecord>>();
};

}  // namespace perseus::server
