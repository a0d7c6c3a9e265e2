// The rights of people behind a proxy, by the grants in the settings, and the rights of munge
// credentials (docs/identity.md).
#pragma once

#include <string>
#include <vector>

#include "perseus/cluster/server/identity/answer.h"
#include "perseus/cluster/server/identity/identity.h"
#include "perseus/cluster/server/identity/identity_settings.h"

namespace perseus::server {

// Whether the text may be a name of a user: 1 to 200 printable ASCII characters. It has no ","
// (which joins two fields), no "*" (of patterns), and no quotes or backslashes (of logs).
bool IsUser(std::string_view text);

// Returns the identity of the person `user` (IsUser). The identity has the strongest scope that a
// grant gives: operator, member, read. It has the owners of all grants of this scope for the same
// jobs. A grant without bounds has priority. Fails with 403 if no grant applies. Ignores groups
// that cannot be names.
Answer<Identity> PersonIdentity(const std::vector<Grant>& grants, const std::string& user,
                                const std::vector<std::string>& groups, Milliseconds expires);

// Returns the identity for a munge credential of user `uid`. Fails with 403 if the user is not
// allowed.
Answer<Identity> MungeIdentity(const MungeSettings& settings, unsigned int uid, Milliseconds now);

}  // namespace perseus::server
