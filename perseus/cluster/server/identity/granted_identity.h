// What people behind a proxy may do, by the grants of its settings, and what munge credentials are
// good for (docs/identity.md).
#pragma once

#include <string>
#include <vector>

#include "perseus/cluster/server/identity/answer.h"
#include "perseus/cluster/server/identity/identity.h"
#include "perseus/cluster/server/identity/identity_settings.h"

namespace perseus::server {

// Whether the text may be a name of a user: 1 to 200 printable ASCII characters. Without "," (of
// two fields that somebody joined), "*" (of patterns), and quotes and backslashes (of logs).
bool IsUser(std::string_view text);

// The person `user` (IsUser). The strongest scope that a grant gives counts: operator, member,
// read. The owners of all grants of this scope and of the same jobs count. A grant without bounds
// goes before others. 403 if no grant applies. Ignores groups that cannot be names.
Answer<Identity> PersonIdentity(const std::vector<Grant>& grants, const std::string& user,
                                const std::vector<std::string>& groups, Milliseconds expires);

// The identity of a munge credential that user `uid` made for this node. 403 if the user may not.
Answer<Identity> MungeIdentity(const MungeSettings& settings, unsigned int uid, Milliseconds now);

}  // namespace perseus::server
