// Backups of a store, and a check of it (`perseus store`).
//
// A backup is a text file, the same for SQLite and PostgreSQL, so it also moves a store from one to
// the other. Each line is JSON:
//
//   {"perseus_store": 1, "schema": 4, "created_ms": 1700000000000}
//   {"table": "jobs", "columns": ["number", "id", "key", …]}
//   [1, "j-0123456789abcdef", "run7", …]                          a row
//   …
//   {"end": true, "rows": 1234, "sha256": "9f86…"}
//
// `sha256` is of all lines before, so a file that was cut off or edited shows. Rows are in the
// order of their keys, and tables in the order in which they refer to each other.
//
// A backup sees one moment of the database (a snapshot), while servers go on writing. A copy of the
// files of SQLite does not: its newest changes are in another file, the write-ahead log. The online
// backup of SQLite would do, too, but only for SQLite.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/store/records.h"

namespace perseus::store {

struct DumpedTable {
  std::string name;
  std::int64_t rows = 0;
};

struct DumpSummary {
  std::int64_t schema = 0;
  std::vector<DumpedTable> tables;
  std::int64_t rows() const;
};

// Writes a backup of the database at `address` (as for OpenStore) to `path`, which only this user
// can read, because it contains hashes of tokens. Replaces a file only when the backup is complete.
// kInput if `path` is a file of the database itself.
Result<DumpSummary> Backup(const std::string& address, const std::string& path, Milliseconds now);

// Reads a backup into the database at `address`, which must be empty, in one transaction. Then
// upgrades the tables to this program's version. kInput if the file is not a whole backup, if a
// newer program wrote it, or if the database is not empty.
Result<DumpSummary> Restore(const std::string& path, const std::string& address);

// Looks for damage, while servers go on writing: of the database itself (SQLite), missing audit
// records, and records that name others which do not exist.
struct CheckedStore {
  DumpSummary contents;
  std::int64_t audit_records = 0;
  std::vector<std::string> problems;
};
Result<CheckedStore> CheckStore(const std::string& address);

}  // namespace perseus::store
