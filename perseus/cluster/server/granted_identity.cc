#include "perseus/cluster/server/granted_identity.h"

#include <fmt/format.h>
#include <pwd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/cluster/issuers/signed_token.h"

namespace perseus::server {
namespace {

using issuers::Grant;
using nlohmann::json;
using Role = Identity::Role;

constexpr std::size_t kMaxClaimBytes = 200;
constexpr store::Milliseconds kMungeLasts = 60'000;  // Of the identity, not of the credential.

// One who receives rights.
struct Holder {
  std::string subject;
  std::string user;
  std::string node;  // Empty: the token does not say.
  std::vector<std::string> groups;
};

// Fits into tables and logs, and is no pattern.
bool IsName(const std::string& text) {
  return !text.empty() && text.size() <= kMaxClaimBytes && IsPrintable(text) &&
         text.find('*') == std::string::npos;
}

// As jobs may have it (job_spec.h).
bool IsOwner(const std::string& text) {
  return IsName(text) && text.find_first_not_of(
                             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "0123456789._@:/ -") == std::string::npos;
}

Holder HolderOf(const issuers::IssuerSettings& issuer, const json& claims) {
  Holder holder{.subject = issuers::TextClaim(claims, "sub"),
                .user = issuers::TextClaim(claims, issuer.user_claim),
                .node = issuers::TextClaim(claims, issuer.node_claim),
                .groups = issuers::ListClaim(claims, issuer.groups_claim)};
  if (!IsName(holder.user)) holder.user.clear();
  if (!IsName(holder.node)) holder.node.clear();
  return holder;
}

// The groups that a grant is about. For a grant to a subject: the subject.
std::vector<std::string> Matching(const Grant& grant, const Holder& holder) {
  std::vector<std::string> found;
  if (!grant.subject.empty()) {
    if (Matches(grant.subject, holder.subject)) found.push_back(holder.subject);
    return found;
  }
  for (const std::string& group : holder.groups) {
    if (IsName(group) && Matches(grant.group, group)) found.push_back(group);
  }
  return found;
}

std::string Filled(std::string text, std::string_view place, const std::string& value) {
  const std::size_t at = text.find(place);
  return at == std::string::npos ? text : text.replace(at, place.size(), value);
}

void AddMissing(std::vector<std::string>& list, const std::vector<std::string>& more) {
  for (const std::string& one : more) {
    if (std::ranges::find(list, one) == list.end()) list.push_back(one);
  }
}

// The owners that the grant gives. A name that cannot own a job is left out.
std::vector<std::string> OwnersOf(const Grant& grant, const Holder& holder,
                                  const std::vector<std::string>& matching) {
  std::vector<std::string> owners;
  for (const std::string& group : matching) {
    if (grant.owner.find("{user}") != std::string::npos && holder.user.empty()) continue;
    const std::string owner = Filled(Filled(grant.owner, "{group}", group), "{user}", holder.user);
    if (IsOwner(owner)) AddMissing(owners, {owner});
  }
  return owners;
}

std::vector<std::string> NodesOf(const Grant& grant, const Holder& holder) {
  std::vector<std::string> nodes;
  for (const std::string& pattern : grant.nodes) {
    if (pattern.find("{node}") != std::string::npos && holder.node.empty()) continue;
    nodes.push_back(Filled(pattern, "{node}", holder.node));
  }
  return nodes;
}

// What the grant gives with this role. Nothing if it is not about the holder.
std::optional<Identity> FromGrant(Role role, const Grant& grant, const Holder& holder) {
  const auto matching = Matching(grant, holder);
  if (matching.empty()) return std::nullopt;
  Identity identity{.role = role, .jobs = grant.jobs};
  if (role == Role::kAgent || role == Role::kJoin) {
    identity.nodes = NodesOf(grant, holder);
    if (identity.nodes.empty()) return std::nullopt;
  } else if (!grant.owner.empty()) {
    identity.owners = OwnersOf(grant, holder, matching);
    if (identity.owners.empty()) return std::nullopt;
  }
  return identity;
}

// With this role only: the first grant that gives it, with the owners of further ones for the same
// jobs. (An identity has one list of jobs for all of its owners, so a grant for other jobs cannot
// be added.) A grant without bounds is preferred. Nothing if no grant gives the role.
std::optional<Identity> WithScope(const issuers::IssuerSettings& issuer, const Holder& holder,
                                  std::string_view scope) {
  std::optional<Identity> identity;
  for (const Grant& grant : issuer.grants) {
    if (grant.scope != scope) continue;
    const auto given = FromGrant(*ParseScope(scope), grant, holder);
    if (!given) continue;
    const bool is_whole = given->owners.empty() && given->jobs.empty();
    if (is_whole || !given->nodes.empty()) return given;
    if (!identity) {
      identity = given;
    } else if (given->jobs == identity->jobs) {
      const bool is_of_all = identity->owners.empty() || given->owners.empty();
      if (is_of_all) identity->owners.clear();
      if (!is_of_all) AddMissing(identity->owners, given->owners);
    }
  }
  return identity;
}

std::string UserName(uid_t uid) {
  constexpr std::size_t kEntryBytes = 16 << 10;
  std::array<char, kEntryBytes> space{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, space.data(), space.size(), &found) != 0 || found == nullptr) {
    return "";
  }
  return found->pw_name;
}

}  // namespace

Answer<Identity> GrantedIdentity(const issuers::IssuerSettings& issuer, const json& claims,
                                 store::Milliseconds expires) {
  const Holder holder = HolderOf(issuer, claims);
  for (const std::string_view scope : {"operator", "member", "read", "agent", "join"}) {
    auto identity = WithScope(issuer, holder, scope);
    if (!identity) continue;
    identity->token = issuer.name + ":" + holder.subject;
    identity->name = holder.user.empty() ? holder.subject : holder.user;
    identity->expires = expires;
    identity->is_foreign = true;
    return *std::move(identity);
  }
  const std::string who = holder.user.empty() ? holder.subject : holder.user;
  return Refuse(403, "The token has no right to this",
                fmt::format("nothing is granted to {}, nor to its {} groups", Excerpt(who),
                            holder.groups.size()),
                "an operator adds an [[issuer.grant]] to the file of serve --issuers");
}

Answer<Identity> MungeIdentity(const issuers::MungeSettings& settings, unsigned int uid,
                               store::Milliseconds now) {
  const std::string id = std::to_string(uid);
  const std::string name = UserName(uid);
  const bool may = std::ranges::any_of(settings.users, [&](const std::string& user) {
    return user == id || (!name.empty() && user == name);
  });
  if (!may) {
    return Refuse(403, "The token has no right to this",
                  fmt::format("user {} ({}) may not let nodes join", Excerpt(name), id),
                  "add it to users in [munge] of the file of serve --issuers");
  }
  return Identity{.role = Role::kJoin,
                  .token = "munge:" + id,
                  .name = name.empty() ? id : name,
                  .nodes = settings.nodes,
                  .jobs = settings.jobs,
                  .expires = now + kMungeLasts,
                  .is_foreign = true};
}

}  // namespace perseus::server
