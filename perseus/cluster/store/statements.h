// Functions that several parts of the store share. They run transactions, convert rows into
// records, and lock jobs.
//
// Locks: a transaction that changes anything of a job first locks the job's row (LockJob, or an
// UPDATE of it). So two changes of one job run one after the other, and no two transactions wait
// for each other.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/records.h"

namespace perseus::store {

// Runs `work(transaction)`, which returns Result<T>, in a transaction.
template <typename T, typename Work>
Result<T> Write(Database& database, const Work& work) {
  T value{};
  PERSEUS_RETURN_IF_ERROR(database.Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(value, work(transaction));
    return {};
  }));
  return value;
}

// The value type: T for a Result<T>, and T for a plain T.
template <typename T>
struct ValueOf {
  using Type = T;
};
template <typename T>
struct ValueOf<Result<T>> {
  using Type = T;
};
template <typename Record>
using RecordOf = typename ValueOf<std::invoke_result_t<Record, Row&>>::Type;

// Returns all rows of a statement. `record(row)` converts each row, and may fail.
template <typename Record>
Result<std::vector<RecordOf<Record>>> ReadAll(Database& database, std::string_view sql,
                                              Parameters parameters, const Record& record) {
  PERSEUS_ASSIGN_OR_RETURN(Rows rows, database.Read(sql, parameters));
  std::vector<RecordOf<Record>> records;
  records.reserve(rows.size());
  for (Row& row : rows) {
    PERSEUS_ASSIGN_OR_RETURN(auto one, Result<RecordOf<Record>>(record(row)));
    records.push_back(std::move(one));
  }
  return records;
}

// Returns the first row, if any.
template <typename Record>
Result<std::optional<RecordOf<Record>>> ReadOne(Database& database, std::string_view sql,
                                                Parameters parameters, const Record& record) {
  PERSEUS_ASSIGN_OR_RETURN(auto records, ReadAll(database, sql, parameters, record));
  if (records.empty()) return std::nullopt;
  return std::move(records.front());
}

struct Statement {
  std::string_view sql;
  Parameters parameters;
};
// Runs the statements one after the other, until one fails.
Result<void> RunAll(Transaction& transaction, std::initializer_list<Statement> statements);

struct LockedJob {
  bool has_ended = false;
  std::int64_t generation = 0;
  std::int64_t profile_version = 0;
  std::int64_t assignment_version = 0;
  std::string key;
};
// Locks the job until the end of the transaction. Returns nullopt if the job does not exist.
Result<std::optional<LockedJob>> LockJob(const Database& database, Transaction& transaction,
                                         std::string_view job);
// The same, but fails (kInput) if the job does not exist or has ended.
Result<LockedJob> LockRunningJob(const Database& database, Transaction& transaction,
                                 std::string_view job);

// Increments the job's generation and makes planning due, because something that a plan depends on
// has changed.
Result<void> MarkChanged(Transaction& transaction, std::string_view job, Milliseconds now);
// Makes planning due at `due`. Keeps an earlier due time.
Result<void> MakePlanningDue(Transaction& transaction, std::string_view job, Milliseconds due);
// Stores the plan, and deletes the plans beyond the limits in store.h.
Result<PlanRecord> InsertPlan(Transaction& transaction, PlanRecord plan, Milliseconds now);

// The random bytes in the id of a job or a plan. The id ends with 16 hexadecimal digits
// (RandomHex).
inline constexpr std::size_t kBytesOfId = 8;

// Returns the number for a LIMIT clause, at least 0. PostgreSQL refuses negative limits, and SQLite
// treats them as no limit.
inline std::int64_t AsLimit(int limit) { return std::max(limit, 0); }

}  // namespace perseus::store
