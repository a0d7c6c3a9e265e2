// The audit trail: who changed what, when, from where and why. Append-only.
//
// A change and its record are one transaction: neither exists without the other. Replicas append
// one after the other, because each locks the row with the newest number. A transaction does this
// last, so no transaction waits for a lock while it has this one.
#pragma once

#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/records.h"

namespace perseus::store {

// SHA-256, hexadecimal.
std::string Sha256(std::string_view text);

// A JSON text of at most 4 kB as it is, and {"bytes", "sha256"} of a longer one.
std::string BriefJson(std::string_view json);

// Appends a record with the next number. Call this after all other statements of the transaction,
// once or several times.
Result<void> AppendAudit(Transaction& transaction, AuditRecord record);

}  // namespace perseus::store
