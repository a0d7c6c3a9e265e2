// Who sends a request, what it may do, and which nodes and jobs it is bound to (docs/identity.md).
//
// There is one check for all routes, and handlers call it again where a body names another job. A
// route says what it requires (Access). The path of a request
// says what it is about (Resource). An identity has a role and bounds. Allow() compares the three.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/server/identity/answer.h"
#include "perseus/cluster/store/records.h"

namespace perseus::server {

// What an endpoint requires of its caller.
enum class Access {
  kPublic,     // Everybody, without a token.
  kSelf,       // What an identity is: every role.
  kRead,       // Read one job: any role except join, within its bounds.
  kReadAll,    // Read several jobs: the same, except job. The endpoint leaves out those out of
               // bounds.
  kReadFleet,  // Read about all jobs at once: the same, without bounds on jobs.
  kJob,        // Change a job: operators, members of the owner, and the token of this job.
  kNode,       // What node daemons do: operators and agents.
  kEnroll,     // Get or renew the token of a node: the roles join and agent.
  kOperator,   // Everything else.
};

struct Identity {
  using Role = store::Scope;
  Role role = Role::kOperator;
  // The id of the token. It is "proxy:ann" for a person behind the proxy, and "munge:0" for a munge
  // credential.
  // Empty if no tokens exist.
  std::string token = {};
  std::string name = {};                // The name of the token or of the person.
  std::string presented = {};           // The hash of the secret. Empty: a client certificate.
  std::vector<std::string> nodes = {};  // Patterns. For agents and joining nodes: empty is no node.
  std::vector<std::string> jobs = {};   // Patterns of keys. Empty: all. For role job: its only key.
  std::vector<std::string> owners = {};  // Whose jobs. Empty: everybody's.
  Milliseconds expires = 0;              // When the token expires. 0: never.
  // The proxy or munge vouches for it, so it is not in the table of tokens.
  bool is_foreign = false;
  // The settings that a foreign identity depends on (ForeignIdentities).
  std::string trust = {};

  bool IsBoundToJobs() const { return !jobs.empty() || !owners.empty(); }
  // Whether it is an agent of all nodes, or no agent. Then it may take ranks from other nodes.
  bool IsOfWholeFleet() const;
  // "ann (t-1f2e3d4c)", for logs.
  std::string Text() const;
};

// What a request is about. Empty: the path does not say.
struct Resource {
  std::string_view job = {};    // The key.
  std::string_view owner = {};  // The owner of the job.
  std::string_view node = {};
};

// Whether `text` has the pattern: equal, or with "*" for any text.
bool Matches(std::string_view pattern, std::string_view text);
bool MatchesAny(const std::vector<std::string>& patterns, std::string_view text);

// The lists of a TokenRecord: one item per line.
std::vector<std::string> SplitLines(std::string_view text);
std::string JoinLines(const std::vector<std::string>& lines);

// 403 if the role or the bounds do not allow it.
Answer<void> Allow(const Identity& identity, Access access, const Resource& resource);

}  // namespace perseus::server
