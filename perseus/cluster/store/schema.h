// The tables of the store.
#pragma once

#include <cstdint>

#include "perseus/cluster/store/database.h"

namespace perseus::store {

// The version of the tables that this program uses. The database records it.
inline constexpr std::int64_t kSchemaVersion = 6;

// Creates the tables in an empty database, or upgrades older ones, in one transaction. Replicas may
// do so at the same time: one changes the tables, and the others wait. A new database gets the
// tables of version 1 and all upgrades, so every database has passed through the same statements.
// An upgrade only adds tables and columns with defaults: older servers that still run can go on.
// kInput if the database has tables of a newer version. `version` is for tests of upgrades.
Result<void> CreateTables(Database& database, std::int64_t version = kSchemaVersion);

}  // namespace perseus::store
