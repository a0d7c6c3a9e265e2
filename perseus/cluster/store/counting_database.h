// A database that counts the transactions that it refuses because it is unavailable or full.
//
// Thread safe.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "perseus/cluster/store/database.h"

namespace perseus::store {

class CountingDatabase final : public Database {
 public:
  explicit CountingDatabase(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  const Dialect& dialect() const override { return database_->dialect(); }
  Result<Rows> Read(std::string_view sql, Parameters parameters) override {
    return database_->Read(sql, parameters);
  }
  using Database::Transact;
  Result<void> Transact(const Work& work, Durability durability) override {
    Result<void> done = database_->Transact(work, durability);
    if (!done && done.error().kind == ErrorKind::kSystem) ++failed_writes_;
    return done;
  }
  Result<void> Listen(Receive receive) override { return database_->Listen(std::move(receive)); }

  std::int64_t failed_writes() const { return failed_writes_; }

 private:
  const std::unique_ptr<Database> database_;
  std::atomic<std::int64_t> failed_writes_ = 0;
};

}  // namespace perseus::store
