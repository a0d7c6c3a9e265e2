// The store's tables, and how those of an older program become those of this one.
#pragma once

#include <cstdint>

#include "perseus/cluster/store/database.h"

namespace perseus::store {

// The version of the tables that this program works with.
std::int64_t SchemaVersion();

// Brings the tables up to date, each step in a transaction of its own. Replicas may do so at the
// same time: one does it, the others wait. Refuses (kInput) tables of a newer program.
Result<void> Migrate(Database& database);

}  // namespace perseus::store
