#include "perseus/cluster/server/identity/identity.h"

#include <fmt/format.h>

#include <algorithm>

#include "perseus/base/excerpt.h"

namespace perseus::server {
namespace {

using Role = Identity::Role;

Answer<void> Forbid(std::string detail, std::string remedy) {
  return Refuse(403, "The token has no right to this", std::move(detail), std::move(remedy));
}

Answer<void> CheckRole(Role role, Access access) {
  switch (access) {
    case Access::kPublic:
    case Access::kSelf:
      return {};
    case Access::kRead:
      if (role != Role::kJoin) return {};
      return Forbid("a join token can only get the token of a node", "use a token of scope read");
    case Access::kReadAll:
    case Access::kReadFleet:
      if (role != Role::kJoin && role != Role::kJob) return {};
      return Forbid("the token is valid for one job only", "use a token of scope read");
    case Access::kJob:
      if (role == Role::kOperator || role == Role::kMember || role == Role::kJob) return {};
      return Forbid(
          "a change of this job requires the token of the job, a token of its owner, or a token of "
          "scope operator",
          "use one of these tokens");
    case Access::kNode:
      if (role == Role::kOperator || role == Role::kAgent) return {};
      return Forbid("the endpoints of nodes require a token of scope agent", "use such a token");
    case Access::kEnroll:
      if (role == Role::kJoin || role == Role::kAgent) return {};
      return Forbid("the token of a node requires a token of scope join, or the node's own token",
                    "use such a token (perseus token create)");
    case Access::kOperator:
      if (role == Role::kOperator) return {};
      return Forbid("this requires a token of scope operator", "use such a token");
  }
  return Forbid("the endpoint has no rule", "report this error");
}

Answer<void> CheckNode(const Identity& identity, std::string_view node) {
  const bool is_bound = identity.role == Role::kAgent || identity.role == Role::kJoin;
  if (!is_bound || node.empty() || MatchesAny(identity.nodes, node)) return {};
  return Forbid(fmt::format("the token is not valid for node {}", Excerpt(node)),
                "use the node's own token, or a token with this `node`");
}

// Checks that the token is valid for the job. If the job does not exist, `resource.job` is empty.
// Then a token for some jobs gets the same answer as for another job. So the answer does not show
// which jobs exist.
Answer<void> CheckJob(const Identity& identity, Access access, const Resource& resource) {
  if (!identity.IsBoundToJobs()) return {};
  if (access == Access::kReadFleet) {
    return Forbid("the token is not valid for all jobs",
                  "use a token of scope read without a job and without an owner");
  }
  const bool is_of_a_job = access == Access::kRead || access == Access::kJob;
  // If an endpoint of nodes is about a job, the job is in the path.
  const bool is_about_a_job = is_of_a_job || !resource.job.empty();
  if (!is_about_a_job) return {};
  const bool has_key = identity.jobs.empty() || MatchesAny(identity.jobs, resource.job);
  // The token of a job is valid for its key, even if the job has another owner.
  const bool has_owner =
      identity.owners.empty() || identity.role == Role::kJob ||
      std::ranges::find(identity.owners, resource.owner) != identity.owners.end();
  if (has_key && has_owner && !resource.job.empty()) return {};
  return Forbid("the token is valid for another job only",
                "use the token of this job, or a token of scope read");
}

}  // namespace

bool Identity::IsOfWholeFleet() const {
  return role != Role::kAgent || std::ranges::find(nodes, "*") != nodes.end();
}

std::string Identity::Text() const {
  if (token.empty()) return name.empty() ? "anonymous" : name;
  if (name.empty()) return token;
  const bool is_plain = IsPrintable(name) && name.find('"') == std::string::npos;
  return fmt::format("{} ({})", is_plain ? name : Excerpt(name), token);
}

bool Matches(std::string_view pattern, std::string_view text) {
  // After a mismatch, the last "*" takes one more byte.
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool MatchesAny(const std::vector<std::string>& patterns, std::string_view text) {
  return std::ranges::any_of(patterns,
                             [text](const std::string& pattern) { return Matches(pattern, text); });
}

std::vector<std::string> SplitLines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

std::string JoinLines(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n"));
}

Answer<void> Allow(const Identity& identity, Access access, const Resource& resource) {
  if (access == Access::kPublic) return {};
  PERSEUS_RETURN_IF_ERROR(CheckRole(identity.role, access));
  PERSEUS_RETURN_IF_ERROR(CheckNode(identity, resource.node));
  return CheckJob(identity, access, resource);
}

}  // namespace perseus::server
