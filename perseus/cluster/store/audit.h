// The audit trail: an append-only table with the author, the time, the origin and the reason of
// each change.
//
// A change and its record are in one transaction, so neither exists without the other. Replicas
// append one after the other, because each replica locks the row with the newest number. A
// transaction locks this row last. So no transaction waits for another lock while it holds this
// lock.
#pragma once

#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/records.h"

namespace perseus::store {

// Returns the SHA-256 of the text in hexadecimal.
std::string Sha256(std::string_view text);

// Returns a JSON text of at most 4 kB unchanged. For a longer text, returns {"bytes", "sha256"}.
std::string BriefJson(std::string_view json);

// Appends a record with the next number. Call this after all other statements of the transaction,
// once or several times.
Result<void> AppendAudit(Transaction& transaction, AuditRecord record);

}  // namespace perseus::store
