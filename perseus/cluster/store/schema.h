// The tables of the store.
#pragma once

#include <cstdint>

#include "perseus/cluster/store/database.h"

namespace perseus::store {

// The version of the tables that this program uses. The database records it.
inline constexpr std::int64_t kSchemaVersion = 1;

// Creates the tables in an empty database, in one transaction. Replicas may do so at the same time:
// one creates the tables, and the others wait. kInput if the database has tables of another
// version.
Result<void> CreateTables(Database& database);

}  // namespace perseus::store
