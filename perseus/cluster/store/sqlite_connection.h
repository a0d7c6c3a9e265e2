// A connection to an SQLite database, with the settings that the store needs.
//
// Not thread safe.
#pragma once

#include <sqlite3.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "perseus/cluster/store/database.h"

namespace perseus::store {

class SqliteConnection {
 public:
  // Opens the file `path`, and creates it if it does not exist. `path` may also be ":memory:".
  static Result<SqliteConnection> Open(const std::string& path);

  Result<Rows> Run(std::string_view sql, Parameters parameters);
  // SQLite may end a transaction by itself, for example when the disk is full.
  bool IsInTransaction() const { return ::sqlite3_get_autocommit(database_.get()) == 0; }

 private:
  struct Close {
    void operator()(sqlite3* database) const { ::sqlite3_close_v2(database); }
  };
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { ::sqlite3_finalize(statement); }
  };
  using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

  SqliteConnection(sqlite3* database, std::string path)
      : database_(database), path_(std::move(path)) {}
  Result<void> SetUp();
  Result<sqlite3_stmt*> Prepare(std::string_view sql);
  Result<Rows> Collect(sqlite3_stmt* statement);
  tl::unexpected<Error> Failure();

  std::unique_ptr<sqlite3, Close> database_;
  std::string path_;
  // The prepared statements by their text. There are few.
  std::map<std::string, Statement, std::less<>> statements_;
};

}  // namespace perseus::store
