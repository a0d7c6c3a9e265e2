// The tables of the store.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "perseus/cluster/store/database.h"

namespace perseus::store {

// The version of the tables that this program uses. The database records it.
inline constexpr std::int64_t kSchemaVersion = 5;

// Creates the tables in an empty database, or upgrades older ones, in one transaction. Replicas may
// do so at the same time: one changes the tables, and the others wait. A new database gets the
// tables of version 1 and all upgrades, so every database has passed through the same statements.
// An upgrade only adds tables and columns with defaults: older servers that still run can go on.
// kInput if the database has tables of a newer version. `version` is for tests of upgrades.
Result<void> CreateTables(Database& database, std::int64_t version = kSchemaVersion);

// The same within a transaction. The caller has locked the schema.
Result<void> CreateTables(Transaction& transaction, const Dialect& dialect, std::int64_t version);

// The tables, each after those that its rows refer to, with the columns of their keys. A serial key
// is "number".
struct TableKey {
  std::string_view name;
  std::vector<std::string_view> key;
  bool has_serial_key = false;
};
const std::vector<TableKey>& TablesInOrder();

// The version of the tables. 0: there are none.
Result<std::int64_t> VersionOfTables(Transaction& transaction, const Dialect& dialect);

}  // namespace perseus::store
