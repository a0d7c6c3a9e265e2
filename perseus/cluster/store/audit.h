// The audit trail: who changed what, when, from where and why. Append-only.
//
// A change and its record are in one transaction: neither exists without the other. Replicas append
// one after the other, because each locks the row with the newest number. A transaction does this
// last, so no transaction waits for another lock while it holds this one.
#pragma once

#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/records.h"

namespace perseus::store {

// Returns the SHA-256 in hexadecimal.
std::string Sha256(std::string_view text);

// Returns a JSON text of at most 4 kB unchanged. For a longer one, returns {"bytes", "sha256"}.
std::string BriefJson(std::string_view json);

// Appends a record with the next number. Call this after all other statements of the transaction,
// once or several times.
Result<void> AppendAudit(Transaction& transaction, AuditRecord record);

}  // namespace perseus::store
