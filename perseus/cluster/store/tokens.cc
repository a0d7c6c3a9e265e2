// Tokens.
#include <fmt/format.h>

#include "perseus/base/excerpt.h"
#include "perseus/cluster/store/statements.h"
#include "perseus/cluster/store/store.h"

namespace perseus::store {

Result<void> Store::AddToken(const TokenRecord& token) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows added,
        transaction.Run(
            "INSERT INTO tokens (id, hash, scope, job, name, created, expires) "
            "VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING RETURNING id",
            {token.id, token.hash, token.scope, token.job, token.name, token.created,
             token.expires}));
    if (added.empty()) {
      return Fail("token {} exists already (choose another id)", Excerpt(token.id));
    }
    return transaction.Notify({.kind = Notice::Kind::kTokens, .name = ""});
  });
}

// Locks all operator tokens that never expire. So two calls at the same time cannot delete the last
// two of them.
Result<bool> Store::DeleteToken(std::string_view id) {
  return Write<bool>(*database_, [&](Transaction& transaction) -> Result<bool> {
    PERSEUS_ASSIGN_OR_RETURN(
        Rows lasting,
        transaction.Run(
            fmt::format(
                "SELECT id FROM tokens WHERE scope = 'operator' AND (expires = 0 OR id = $1) "
                "ORDER BY id {}",
                database_->dialect().for_update),
            {id}));
    if (lasting.size() == 1 && lasting.front().TakeText(0) == id) {
      return FailAs(
          ErrorKind::kUnreachable,
          "token {} is the last operator token that never expires; without it, nobody could create "
          "tokens (first create another token of scope operator that never expires)",
          id);
    }
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows gone, transaction.Run("DELETE FROM tokens WHERE id = $1 RETURNING id", {id}));
    if (gone.empty()) return false;
    PERSEUS_RETURN_IF_ERROR(transaction.Notify({.kind = Notice::Kind::kTokens, .name = ""}));
    return true;
  });
}

Result<std::vector<TokenRecord>> Store::ListTokens() {
  return ReadAll(
      *database_,
      "SELECT id, hash, scope, job, name, created, expires FROM tokens ORDER BY created, id", {},
      [](Row& row) {
        return TokenRecord{.id = row.TakeText(0),
                           .hash = row.TakeText(1),
                           .scope = row.TakeText(2),
                           .job = row.TakeText(3),
                           .name = row.TakeText(4),
                           .created = row.Integer(5),
                           .expires = row.Integer(6)};
      });
}

}  // namespace perseus::store
