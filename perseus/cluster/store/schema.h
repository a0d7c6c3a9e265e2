// Creates and upgrades the tables of the store.
#pragma once

#include <cstdint>

#include "perseus/cluster/store/database.h"

namespace perseus::store {

// The version of the tables in this program. The database records the version of its tables.
inline constexpr std::int64_t kSchemaVersion = 7;

// Creates the tables in an empty database, or upgrades older tables, in one transaction. Replicas
// may call this at the same time. Then one replica changes the tables, and the others wait. A new
// database gets the tables of version 1 and all upgrades, so the same statements have run in every
// database. An upgrade only adds tables and columns with defaults, so older servers that still run
// can continue. Fails (kInput) if the database has tables of a newer version. `version` is for
// tests of upgrades.
Result<void> CreateTables(Database& database, std::int64_t version = kSchemaVersion);

}  // namespace perseus::store
