// Who sends a request, the caller's rights, and the nodes and jobs to which the caller is bound
// (docs/identity.md).
//
// There is one check for all routes, and handlers call it again if a body names another job. A
// route says what it requires (Access). The path of a request says what it is about (Resource). An
// identity has a role and bounds. Allow() compares the three.
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
  kSelf,       // Read the caller's own identity: every role.
  kRead,       // Read one job: any role except join, within its bounds.
  kReadAll,    // Read several jobs: the same, except job. The endpoint omits jobs out of
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
  // Whether the proxy or munge identified the caller, so that no token in the table does.
  bool is_foreign = false;
  // The settings that a foreign identity depends on (ForeignIdentities).
  std::string trust = {};

  bool IsBoundToJobs() const { return !jobs.empty() || !owners.empty(); }
  // Whether it is an agent of all nodes, or no agent. Such a caller may take ranks from other
  // nodes.
  bool IsOfWholeFleet() const;
  // Formats the identity for logs: "ann (t-1f2e3d4c)".
  std::string Text() const;
};

// What a request is about. A member is empty if the path does not name it.
struct Resource {
  std::string_view job = {};    // The key.
  std::string_view owner = {};  // The owner of the job.
  std::string_view node = {};
};

// Whether `text` matches the pattern: both are equal, with "*" in the pattern for any text.
bool Matches(std::string_view pattern, std::string_view text);
bool MatchesAny(const std::vector<std::string>& patterns, std::string_view text);

// Splits a list of a TokenRecord, which has one item per line.
std::vector<std::string> SplitLines(std::string_view text);
std::string JoinLines(const std::vector<std::string>& lines);

// Fails with 403 if the role or the bounds do not allow the request.
Answer<void> Allow(const Identity& identity, Access access, const Resource& resource);

}  // namespace perseus::server
