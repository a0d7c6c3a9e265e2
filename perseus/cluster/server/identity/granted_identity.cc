#include "perseus/cluster/server/identity/granted_identity.h"

#include <fmt/core.h>
#include <pwd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "perseus/base/excerpt.h"

namespace perseus::server {
namespace {

using Role = Identity::Role;

constexpr std::size_t kMostNameBytes = 200;
// How long the identity lasts. (A credential lasts longer.)
constexpr Milliseconds kMungeLasts = 60'000;

// Whether the text fits into tables and logs, and is not a pattern.
bool IsName(const std::string& text) {
  return !text.empty() && text.size() <= kMostNameBytes && IsPrintable(text) &&
         text.find('*') == std::string::npos;
}

// Whether jobs may have this owner (job_spec.h).
bool IsOwner(const std::string& text) {
  return IsName(text) && text.find_first_not_of(
                             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "0123456789._@:/ -") == std::string::npos;
}

// A person who receives rights.
struct Holder {
  const std::string& user;
  const std::vector<std::string>& groups;
};

// Returns the groups that match the grant. For a grant to a user, returns the user.
std::vector<std::string> Matching(const Grant& grant, const Holder& holder) {
  std::vector<std::string> found;
  if (!grant.user.empty()) {
    if (Matches(grant.user, holder.user)) found.push_back(holder.user);
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

// Returns the owners that the grant gives. Omits names that cannot own a job.
std::vector<std::string> OwnersOf(const Grant& grant, const Holder& holder,
                                  const std::vector<std::string>& matching) {
  std::vector<std::string> owners;
  for (const std::string& group : matching) {
    const std::string owner = Filled(Filled(grant.owner, "{group}", group), "{user}", holder.user);
    if (IsOwner(owner)) AddMissing(owners, {owner});
  }
  return owners;
}

// Returns the rights that the grant gives with this role, or nullopt if the grant does not match
// the holder.
std::optional<Identity> FromGrant(Role role, const Grant& grant, const Holder& holder) {
  const auto matching = Matching(grant, holder);
  if (matching.empty()) return std::nullopt;
  Identity identity{.role = role, .jobs = grant.jobs};
  if (!grant.owner.empty()) {
    identity.owners = OwnersOf(grant, holder, matching);
    if (identity.owners.empty()) return std::nullopt;
  }
  return identity;
}

// Returns the rights with this role only. They are the rights of the first grant that gives the
// role, plus the owners of further grants for the same jobs. (An identity has one list of jobs for
// all its owners, so a grant for other jobs cannot be added.) A grant without bounds has priority.
// Returns nullopt if no grant gives the role.
std::optional<Identity> WithRole(const std::vector<Grant>& grants, const Holder& holder,
                                 Role role) {
  std::optional<Identity> identity;
  for (const Grant& grant : grants) {
    if (grant.scope != role) continue;
    const auto given = FromGrant(role, grant, holder);
    if (!given) continue;
    if (!given->IsBoundToJobs()) return given;
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

bool IsUser(std::string_view text) {
  constexpr std::string_view kWrong = ",*\"\\";
  const auto is_letter = [&](char c) {
    return c >= ' ' && c <= '~' && kWrong.find(c) == std::string_view::npos;
  };
  return !text.empty() && text.size() <= kMostNameBytes && std::ranges::all_of(text, is_letter);
}

Answer<Identity> PersonIdentity(const std::vector<Grant>& grants, const std::string& user,
                                const std::vector<std::string>& groups, Milliseconds expires) {
  for (const Role role : {Role::kOperator, Role::kMember, Role::kRead}) {
    auto identity = WithRole(grants, {.user = user, .groups = groups}, role);
    if (!identity) continue;
    identity->token = "proxy:" + user;
    identity->name = user;
    identity->expires = expires;
    identity->is_foreign = true;
    return *std::move(identity);
  }
  return Refuse(403, "The user has no right to this",
                fmt::format("nothing is granted to {}, nor to any of {} groups", Excerpt(user),
                            groups.size()),
                "an operator adds a [[proxy.grant]] to the file of serve --identities");
}

Answer<Identity> MungeIdentity(const MungeSettings& settings, unsigned int uid, Milliseconds now) {
  const std::string id = std::to_string(uid);
  const std::string name = UserName(uid);
  const bool may = std::ranges::any_of(settings.users, [&](const std::string& user) {
    return user == id || (!name.empty() && user == name);
  });
  if (!may) {
    return Refuse(403, "The token has no right to this",
                  fmt::format("user {} ({}) may not let nodes join", Excerpt(name), id),
                  "add it to users in [munge] of the file of serve --identities");
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
