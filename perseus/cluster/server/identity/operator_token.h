// The first operator token of a database, without a server.
#pragma once

#include <string>

#include "perseus/base/result.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

struct OperatorToken {
  store::TokenRecord record;
  std::string secret;
};

// Adds an operator token that never expires to the database at this address (OpenStore). A user who
// may write to the database needs no other right. A running server with the same database gets a
// notice. `name` is for lists and logs. Fails as OpenStore does, and with kInput if the name has
// more than one line or too many bytes.
Result<OperatorToken> CreateOperatorToken(const std::string& database, const std::string& name);

}  // namespace perseus::server
