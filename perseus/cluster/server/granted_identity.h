// What the claims of a signed token are good for, by the grants of its issuer (docs/identity.md).
//
// Only for .cc files that link nlohmann_json.
#pragma once

#include <nlohmann/json.hpp>

#include "perseus/cluster/issuers/settings.h"
#include "perseus/cluster/server/answer.h"
#include "perseus/cluster/server/identity.h"

namespace perseus::server {

// The claims must have been checked. The strongest scope that a grant gives counts: operator,
// member, read, agent, join. For member and read, the owners of all grants of this scope and of the
// same jobs count. Else, and for agent and join, the first grant counts, but one without bounds
// goes before. 403 if no grant applies.
Answer<Identity> GrantedIdentity(const issuers::IssuerSettings& issuer,
                                 const nlohmann::json& claims, store::Milliseconds expires);

// The identity of a munge credential that user `uid` made for this node. 403 if the user may not.
Answer<Identity> MungeIdentity(const issuers::MungeSettings& settings, unsigned int uid,
                               store::Milliseconds now);

}  // namespace perseus::server
