#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/schema.h"

namespace perseus::store {

// A database in memory. After each read, and before it returns the rows, it calls a function.
class WatchedDatabase final : public Database {
 public:
  WatchedDatabase() { (void)CreateTables(*database_); }

  const Dialect& dialect() const override { return database_->dialect(); }
  Result<Rows> Read(std::string_view sql, Parameters parameters) override {
    auto rows = database_->Read(sql, parameters);
    if (after_read) after_read(sql);
    return rows;
  }
  Result<void> Commit(const Work& work, Durability durability) override {
    return database_->Transact(work, durability);
  }
  Result<void> Listen(Receive receive) override { return database_->Listen(std::move(receive)); }

  std::function<void(std::string_view sql)> after_read;

 private:
  const std::unique_ptr<Database> database_ = *OpenDatabase("sqlite::memory:");
};

}  // namespace perseus::store
