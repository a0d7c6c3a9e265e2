// Computes the rights of people behind a proxy, from the grants in the settings. Also computes the
// rights of munge credentials (docs/identity.md).
#pragma once

#include <string>
#include <vector>

#include "perseus/cluster/server/identity/answer.h"
#include "perseus/cluster/server/identity/identity.h"
#include "perseus/cluster/server/identity/identity_settings.h"

namespace perseus::server {

// Whether the text may be a name of a user: 1 to 200 printable ASCII characters. The name must not
// contain "," (which joins two header fields), "*" (which belongs to patterns), or quotes and
// backslashes (because names appear in logs).
bool IsUser(std::string_view text);

// Returns the identity of the person `user` (IsUser). The identity has the strongest scope that a
// grant gives. The order is operator, member, read. The identity has the owners of all grants that
// give this scope for the same jobs. A grant without bounds has priority. Fails with 403 if no
// grant applies. Ignores groups that are not valid names.
Answer<Identity> PersonIdentity(const std::vector<Grant>& grants, const std::string& user,
                                const std::vector<std::string>& groups, Milliseconds expires);

// Returns the identity for a munge credential of user `uid`. Fails with 403 if the user is not
// allowed.
Answer<Identity> MungeIdentity(const MungeSettings& settings, unsigned int uid, Milliseconds now);

}  // namespace perseus::server
