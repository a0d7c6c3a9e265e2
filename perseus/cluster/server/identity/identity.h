// The identity of a caller, who sends requests: the caller's name and role, and the nodes and jobs
// to which the caller is bound (docs/identity.md).
//
// Allow() checks the requests of all routes. A route has an Access: what it requires of the caller.
// The path of a request names a Resource: what the request is about. An identity has a role and
// bounds. Allow() compares these three. If a body names another job, the handler calls Allow()
// again for this job.
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
  kPublic,  // Everybody, without a token.
  kSelf,    // Read the caller's own identity: every role.
  kRead,    // Read one job: any role except join, within the caller's bounds.
  // Read several jobs: the same roles, but not the role job. The endpoint omits jobs outside the
  // bounds.
  kReadAll,
  kReadFleet,  // Read about all jobs at once: the same roles, if the caller has no bounds on jobs.
  kJob,        // Change a job: operators, members of the owner, and the token of this job.
  kNode,       // What node daemons do: operators and agents.
  kEnroll,     // Get or renew the token of a node: the roles join and agent.
  kOperator,   // Everything else.
};

struct Identity {
  using Role = store::Scope;
  Role role = Role::kOperator;
  // The id of the token. For a person behind the proxy: "proxy:ann". For a munge credential:
  // "munge:0". Empty if no tokens exist.
  std::string token = {};
  std::string name = {};       // The name of the token or of the person.
  std::string presented = {};  // The hash of the secret. Empty: a client certificate.
  // Patterns of node names. For agents and joining nodes, empty means no node.
  std::vector<std::string> nodes = {};
  // Patterns of job keys. Empty: all jobs. For the role job: the key of its only job.
  std::vector<std::string> jobs = {};
  std::vector<std::string> owners = {};  // The owners of the caller's jobs. Empty: all owners.
  Milliseconds expires = 0;              // When the token expires. 0: never.
  // Whether the proxy or munge identified the caller. Then no token of this server belongs to the
  // caller.
  bool is_foreign = false;
  // The settings that a foreign identity depends on (ForeignIdentities).
  std::string trust = {};

  bool IsBoundToJobs() const { return !jobs.empty() || !owners.empty(); }
  // Returns true for an agent of all nodes, and for every caller that is not an agent. Such a
  // caller may take ranks from other nodes.
  bool IsOfWholeFleet() const;
  // Formats the identity for logs: "ann (t-1f2e3d4c)".
  std::string Text() const;
};

// What a request is about. A member is empty if the path does not name it.
struct Resource {
  std::string_view job = {};    // The key of the job.
  std::string_view owner = {};  // The owner of the job.
  std::string_view node = {};
};

// Whether `text` matches the pattern. A "*" in the pattern stands for any text.
bool Matches(std::string_view pattern, std::string_view text);
bool MatchesAny(const std::vector<std::string>& patterns, std::string_view text);

// Splits a list of a TokenRecord, which has one item per line.
std::vector<std::string> SplitLines(std::string_view text);
std::string JoinLines(const std::vector<std::string>& lines);

// Fails with 403 if the role or the bounds do not allow the request.
Answer<void> Allow(const Identity& identity, Access access, const Resource& resource);

}  // namespace perseus::server
