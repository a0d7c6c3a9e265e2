// Stores tokens.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_text.h"
#include "perseus/cluster/store/audit.h"
#include "perseus/cluster/store/statements.h"
#include "perseus/cluster/store/store.h"

namespace perseus::store {

namespace {

constexpr std::string_view kTokenColumns =
    "id, hash, scope, job, name, created, expires, nodes, owner, certificate, previous_hash, "
    "previous_until, issued_by";

TokenRecord TokenOf(Row& row) {
  TokenRecord token;
  std::string scope;
  row.Take(token.id, token.hash, scope, token.job, token.name, token.created, token.expires,
           token.nodes, token.owner, token.certificate, token.previous_hash, token.previous_until,
           token.issued_by);
  token.scope = Parse<Scope>(scope);
  return token;
}

// Formats a token for the audit trail, without hashes.
std::string TokenText(const TokenRecord& token) {
  nlohmann::json json{{"name", token.name}, {"scope", ScopeOf(token)}};
  if (token.expires != 0) json["expires_ms"] = token.expires.count();
  for (const auto& [key, text] : {std::pair{"jobs", &token.job},
                                  {"nodes", &token.nodes},
                                  {"owner", &token.owner},
                                  {"certificate", &token.certificate},
                                  {"issued_by", &token.issued_by}}) {
    if (!text->empty()) json[key] = *text;
  }
  return JsonText(json);
}

Result<void> Insert(Transaction& transaction, const TokenRecord& token, const Author& by) {
  PERSEUS_ASSIGN_OR_RETURN(
      const Rows added,
      transaction.Run(
          fmt::format("INSERT INTO tokens ({}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "
                      "$11, $12, $13) ON CONFLICT (id) DO NOTHING RETURNING id",
                      kTokenColumns),
          {token.id, token.hash, ScopeOf(token), token.job, token.name, token.created,
           token.expires, token.nodes, token.owner, token.certificate, token.previous_hash,
           token.previous_until, token.issued_by}));
  if (added.empty()) {
    return Fail("token {} exists already (choose another id)", Excerpt(token.id));
  }
  PERSEUS_RETURN_IF_ERROR(transaction.Notify({.kind = Notice::Kind::kTokens}));
  return AppendAudit(transaction, {.at = token.created,
                                   .action = "token.create",
                                   .subject = token.id,
                                   .by = by,
                                   .after = TokenText(token)});
}

// Deletes the token. Returns whether it existed.
Result<bool> Delete(Transaction& transaction, std::string_view id, Milliseconds now,
                    const Author& by) {
  PERSEUS_ASSIGN_OR_RETURN(
      Rows gone,
      transaction.Run(fmt::format("DELETE FROM tokens WHERE id = $1 RETURNING {}", kTokenColumns),
                      {id}));
  if (gone.empty()) return false;
  PERSEUS_RETURN_IF_ERROR(transaction.Notify({.kind = Notice::Kind::kTokens}));
  PERSEUS_RETURN_IF_ERROR(AppendAudit(transaction, {.at = now,
                                                    .action = "token.revoke",
                                                    .subject = std::string(id),
                                                    .by = by,
                                                    .before = TokenText(TokenOf(gone.front()))}));
  return true;
}

std::string TokensOfNodeSql() {
  return fmt::format("SELECT {} FROM tokens WHERE nodes = $1 AND scope = '{}' ORDER BY created, id",
                     kTokenColumns, Name(Scope::kAgent));
}

}  // namespace

Result<void> Store::AddToken(const TokenRecord& token, const Author& by) {
  return database_->Transact(
      [&](Transaction& transaction) -> Result<void> { return Insert(transaction, token, by); });
}

Result<std::optional<TokenRecord>> Store::JoinNode(const TokenRecord& token,
                                                   bool is_only_for_new_names, const Author& by) {
  return Write<std::optional<TokenRecord>>(
      *database_, [&](Transaction& transaction) -> Result<std::optional<TokenRecord>> {
        // Takes the lock of the audit trail, so that joins run one after the other.
        PERSEUS_RETURN_IF_ERROR(transaction.Run(
            fmt::format("SELECT number FROM audit_head {}", database_->dialect().for_update), {}));
        PERSEUS_ASSIGN_OR_RETURN(Rows rows, transaction.Run(TokensOfNodeSql(), {token.nodes}));
        std::vector<TokenRecord> in_force;
        for (Row& row : rows) {
          TokenRecord other = TokenOf(row);
          if (other.issued_by.empty() || other.expires <= token.created) continue;
          // Whether the answer to this attempt was lost and the node repeats the attempt.
          const bool is_same_attempt = !token.previous_hash.empty() && other.previous_until == 0 &&
                                       other.previous_hash == token.previous_hash &&
                                       other.issued_by == token.issued_by;
          if (!is_same_attempt) {
            in_force.push_back(std::move(other));
            continue;
          }
          PERSEUS_RETURN_IF_ERROR(Delete(transaction, other.id, token.created, by));
        }
        if (is_only_for_new_names && !in_force.empty()) return in_force.front();
        for (std::size_t i = 0; i + kMostTokensOfNode <= in_force.size(); ++i) {
          PERSEUS_RETURN_IF_ERROR(Delete(transaction, in_force[i].id, token.created, by));
        }
        PERSEUS_RETURN_IF_ERROR(Insert(transaction, token, by));
        return std::nullopt;
      });
}

Result<bool> Store::RenewToken(const TokenRecord& renewed, std::string_view presented,
                               Milliseconds now, const Author& by) {
  return Write<bool>(*database_, [&](Transaction& transaction) -> Result<bool> {
    PERSEUS_ASSIGN_OR_RETURN(
        Rows rows, transaction.Run(fmt::format("SELECT {} FROM tokens WHERE id = $1 {}",
                                               kTokenColumns, database_->dialect().for_update),
                                   {renewed.id}));
    if (rows.empty()) return false;
    const TokenRecord old = TokenOf(rows.front());
    const bool is_newest = old.hash == presented;
    if (!is_newest && (old.previous_hash != presented || old.previous_until <= now)) return false;
    const Milliseconds until = is_newest ? renewed.previous_until : old.previous_until;
    PERSEUS_RETURN_IF_ERROR(
        transaction.Run("UPDATE tokens SET hash = $2, expires = $3, previous_hash = $4, "
                        "previous_until = $5 WHERE id = $1",
                        {renewed.id, renewed.hash, renewed.expires, presented, until}));
    PERSEUS_RETURN_IF_ERROR(transaction.Notify({.kind = Notice::Kind::kTokens}));
    PERSEUS_RETURN_IF_ERROR(AppendAudit(
        transaction, {.at = now,
                      .action = "token.renew",
                      .subject = old.id,
                      .by = by,
                      .before = fmt::format(R"({{"expires_ms":{}}})", old.expires.count()),
                      .after = fmt::format(R"({{"expires_ms":{}}})", renewed.expires.count())}));
    return true;
  });
}

// Locks all operator tokens that never expire and have a secret. So two calls at the same time
// cannot delete the last two of these tokens.
Result<bool> Store::DeleteToken(std::string_view id, Milliseconds now, const Author& by) {
  return Write<bool>(*database_, [&](Transaction& transaction) -> Result<bool> {
    PERSEUS_ASSIGN_OR_RETURN(
        Rows lasting,
        transaction.Run(
            fmt::format(
                "SELECT id FROM tokens WHERE scope = $1 AND expires = 0 AND certificate = '' "
                "ORDER BY id {}",
                database_->dialect().for_update),
            {Name(Scope::kOperator)}));
    if (lasting.size() == 1 && lasting.front().TakeText(0) == id) {
      return FailAs(
          ErrorKind::kUnreachable,
          "token {} is the last operator token that never expires; without it, nobody could create "
          "tokens (first create another token of scope operator that never expires)",
          id);
    }
    return Delete(transaction, id, now, by);
  });
}

Result<std::vector<TokenRecord>> Store::ListTokens() {
  return ReadAll(*database_,
                 fmt::format("SELECT {} FROM tokens ORDER BY created, id", kTokenColumns), {},
                 TokenOf);
}

Result<std::vector<TokenRecord>> Store::ListTokensOfNode(std::string_view node) {
  return ReadAll(*database_, TokensOfNodeSql(), {node}, TokenOf);
}

}  // namespace perseus::store
