#include "perseus/cluster/server/identity/operator_token.h"

#include "perseus/base/clock.h"
#include "perseus/base/excerpt.h"
#include "perseus/base/random_id.h"
#include "perseus/cluster/server/identity/rights.h"

namespace perseus::server {

Result<OperatorToken> CreateOperatorToken(const std::string& database, const std::string& name) {
  if (!IsTokenName(name)) {
    return Fail("{} is not a name (one line of at most {} bytes)", Excerpt(name),
                kMaxTokenNameBytes);
  }
  OperatorToken token{
      .record = {.id = "t-" + RandomHex(4), .scope = store::Scope::kOperator, .name = name},
      .secret = NewSecret()};
  token.record.hash = HashOfSecret(token.secret);
  token.record.created = WholeMilliseconds(SinceEpoch());
  PERSEUS_ASSIGN_OR_RETURN(const auto store, store::OpenStore(database));
  PERSEUS_RETURN_IF_ERROR(store->AddToken(token.record));
  return token;
}

}  // namespace perseus::server
