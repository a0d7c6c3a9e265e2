#include "perseus/cluster/store/audit.h"

#include <fmt/core.h>
#include <openssl/sha.h>

#include <array>
#include <nlohmann/json.hpp>

#include "perseus/base/json_text.h"
#include "perseus/cluster/store/statements.h"
#include "perseus/cluster/store/store.h"

namespace perseus::store {
namespace {

constexpr std::string_view kAuditColumns =
    "number, at, action, job, job_key, subject, who, name, role, peer, trace, old_value, "
    "new_value, reason";

// Returns JSON in its shortest form. A text that is not JSON becomes a JSON string.
std::string Compact(const std::string& json) {
  if (json.empty()) return json;
  const auto value = ParseOrderedJson(json);
  return value.is_discarded() ? JsonText(nlohmann::ordered_json(json)) : JsonText(value);
}

// Reads a row with kAuditColumns.
Result<AuditRecord> AuditOf(Row& row) {
  AuditRecord record;
  std::string role;
  row.Take(record.number, record.at, record.action, record.job, record.key, record.subject,
           record.by.id, record.by.name, role, record.by.peer, record.by.trace, record.before,
           record.after, record.by.reason);
  if (role == kServerRole) return record;
  record.by.role = Parse<Scope>(role);
  if (!record.by.role) return UnknownWord(role, kWordsOf<Scope>);
  return record;
}

}  // namespace

std::string Sha256(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  std::string hexadecimal;
  for (const unsigned char byte : digest) hexadecimal += fmt::format("{:02x}", byte);
  return hexadecimal;
}

std::string BriefJson(std::string_view json) {
  constexpr std::size_t kLongest = 4096;
  if (json.size() <= kLongest) return std::string(json);
  return JsonText(nlohmann::json{{"bytes", json.size()}, {"sha256", Sha256(json)}});
}

Result<void> AppendAudit(Transaction& transaction, AuditRecord record) {
  record.before = Compact(record.before);
  record.after = Compact(record.after);
  PERSEUS_ASSIGN_OR_RETURN(
      const Rows head,
      transaction.Run("UPDATE audit_head SET number = number + 1 RETURNING number", {}));
  if (head.empty()) {
    return FailAs(ErrorKind::kSystem,
                  "the audit trail has no head, so nothing can be changed (restore the table "
                  "audit_head from a backup)");
  }
  PERSEUS_RETURN_IF_ERROR(transaction.Run(
      fmt::format("INSERT INTO audit ({}, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "
                  "$11, $12, $13, $14, '')",
                  kAuditColumns),
      {head.front().Integer(0), record.at, record.action, record.job, record.key, record.subject,
       record.by.id, record.by.name, RoleOf(record.by), record.by.peer, record.by.trace,
       record.before, record.after, record.by.reason}));
  return {};
}

Result<std::vector<AuditRecord>> Store::ListAudit(const AuditFilter& filter) {
  return ReadAll(
      *database_,
      fmt::format("SELECT {} FROM audit WHERE number > $1 AND number < $2 AND ($3 = '' OR job = $3 "
                  "OR job_key = $3) AND ($4 = '' OR who = $4 OR name = $4) AND ($5 = '' OR action "
                  "= $5 OR SUBSTR(action, 1, LENGTH($5) + 1) = $6) AND at >= $7 "
                  "ORDER BY number {} LIMIT $8",
                  kAuditColumns, filter.newest_first ? "DESC" : ""),
      {filter.after, filter.before, filter.job, filter.who, filter.action, filter.action + ".",
       filter.since, AsLimit(filter.limit)},
      AuditOf);
}

}  // namespace perseus::store
