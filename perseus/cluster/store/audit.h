// The audit trail: who changed what, when, from where and why. Append-only, and each record has a
// hash of itself and of the record before it, so that an edit or a gap shows.
//
// A change and its record are one transaction: neither exists without the other. Replicas append
// one after the other, because each locks the row with the newest hash. A transaction does this
// last, so no transaction waits for a lock while it has this one.
//
// What the chain shows: an edited, inserted or missing record, also at the end, because the newest
// number and hash are stored apart. What it cannot show: a person with write access to the database
// who computes all later hashes again. For this case the server's log has the newest number and
// hash every few seconds; compare them (`perseus audit --verify --expect NUMBER:HASH`).
//
// The hash of a record is SHA-256, hexadecimal, of the hash before it (empty for the first), a line
// feed, and the compact JSON array [number, at, action, job, key, subject, who, name, role, peer,
// trace, before, after, reason] with numbers as numbers, texts as texts, and `before` and `after`
// as the texts of their JSON. So an exported trail can be verified without this program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/records.h"

namespace perseus::store {

// As the comment above defines it.
std::string HashOfRecord(const AuditRecord& record, std::string_view previous_hash);
// SHA-256, hexadecimal.
std::string Sha256(std::string_view text);

// A JSON text of at most 4 kB as it is, and {"bytes", "sha256"} of a longer one.
std::string BriefJson(std::string_view json);

inline constexpr std::string_view kAuditColumns =
    "number, at, action, job, job_key, subject, who, name, role, peer, trace, old_value, "
    "new_value, reason, hash";
AuditRecord AuditOf(Row& row);  // Of these columns.

// Appends a record, and sets its number and hash. Call this after all other statements of the
// transaction, once or several times.
Result<void> AppendAudit(const Database& database, Transaction& transaction, AuditRecord record);

}  // namespace perseus::store
