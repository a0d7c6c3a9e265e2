// The part of a database that the store needs: statements with parameters, transactions, notices.
//
// The drivers for SQLite and PostgreSQL run the same SQL. Parameters are $1, $2, … All values of a
// statement are parameters, so a text from outside is never part of a statement. Where the two SQL
// dialects differ, a statement contains a part of Dialect.
//
// Each statement of a transaction reads what was committed before this statement (READ COMMITTED).
// So code that reads a row and then writes the same row locks the row first (Dialect::for_update).
//
// Thread safe, except Transaction, which belongs to one function.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/store/records.h"

namespace perseus::store {

// A value is null, an integer, a number or a text. The text of a parameter must outlive the call.
class Parameter : public std::variant<std::monostate, std::int64_t, double, std::string_view> {
 public:
  using variant::variant;
  Parameter(Milliseconds time) : variant(time.count()) {}
};
// A view of values that must outlive the call, such as {job, now} in a call.
class Parameters {
 public:
  Parameters(std::initializer_list<Parameter> values)
      : begin_(std::data(values)), size_(values.size()) {}
  const Parameter* begin() const { return begin_; }
  const Parameter* end() const { return begin_ + size_; }
  std::size_t size() const { return size_; }

 private:
  const Parameter* begin_;
  std::size_t size_;
};
using Value = std::variant<std::monostate, std::int64_t, double, std::string>;

// Returns the error for a word that was read from the database but is not in `known`.
tl::unexpected<Error> UnknownWord(std::string_view word, std::span<const std::string_view> known);

// A row of a result. A null reads as 0 or as an empty text.
class Row {
 public:
  explicit Row(std::vector<Value> values) : values_(std::move(values)) {}

  const Value& At(std::size_t column) const { return values_.at(column); }
  std::int64_t Integer(std::size_t column) const {
    const auto* value = std::get_if<std::int64_t>(&values_.at(column));
    return value == nullptr ? 0 : *value;
  }
  Milliseconds Time(std::size_t column) const { return Milliseconds(Integer(column)); }
  double Real(std::size_t column) const {
    const auto* value = std::get_if<double>(&values_.at(column));
    return value == nullptr ? 0 : *value;
  }
  // Call this once for each column, because it moves the text out.
  std::string TakeText(std::size_t column) {
    auto* value = std::get_if<std::string>(&values_.at(column));
    return value == nullptr ? std::string() : std::move(*value);
  }
  // Moves all columns out, in their order. If a field is an enumeration, returns a Result<void>. It
  // fails (kSystem) if the column has a word that this program does not know.
  template <typename... Fields>
  auto Take(Fields&... fields) {
    std::size_t column = 0;
    if constexpr ((std::is_enum_v<Fields> || ...)) {
      Result<void> taken;
      (TakeInto(column++, fields, taken), ...);
      return taken;
    } else {
      (TakeInto(column++, fields), ...);
    }
  }

 private:
  void TakeInto(std::size_t column, std::string& text) { text = TakeText(column); }
  void TakeInto(std::size_t column, Milliseconds& time) { time = Time(column); }
  void TakeInto(std::size_t column, double& number) { number = Real(column); }
  template <std::integral T>
  void TakeInto(std::size_t column, T& number) {
    number = static_cast<T>(Integer(column));
  }
  void TakeInto(std::size_t column, auto& field, Result<void>& taken) {
    using State = std::remove_reference_t<decltype(field)>;
    if constexpr (std::is_enum_v<State>) {
      const std::string word = TakeText(column);
      if (const auto state = Parse<State>(word)) {
        field = *state;
      } else {
        taken = UnknownWord(word, kWordsOf<State>);
      }
    } else {
      TakeInto(column, field);
    }
  }

  std::vector<Value> values_;
};

using Rows = std::vector<Row>;

// The differences between the two dialects of SQL.
struct Dialect {
  std::string_view serial_key;  // The type of a key that increments itself.
  // A clause after SELECT … that locks the rows until the end of the transaction.
  std::string_view for_update;
  std::string_view skip_locked;  // The same clause, but it skips rows that are locked.
  std::string_view lock_schema;  // A statement that lets only one replica create tables, or empty.
  std::string_view shrink;       // A statement that frees the space of deleted rows, or empty.
  // A query for the database's clock in milliseconds since 1970, or empty.
  std::string_view clock;
  bool has_replicas;  // Other processes may use the same database.
};
const Dialect& SqliteDialect();
const Dialect& PostgresDialect();

class Transaction {
 public:
  virtual ~Transaction() = default;
  virtual Result<Rows> Run(std::string_view sql, Parameters parameters) = 0;
  // Sends the notice when the transaction is committed.
  virtual Result<void> Notify(const Notice& notice) = 0;
};

// Says which failures a committed transaction survives.
enum class Durability {
  // Survives a crash of the machine: the disk confirms the commit before Transact returns.
  kOnDisk,
  // Survives a crash of the process. A crash of the machine may undo the last such transactions,
  // but only those after the last transaction with kOnDisk. For data that is reported again anyway.
  // (A busy disk needs over 100 ms to confirm a commit.)
  kInMemory,
};

class Database {
 public:
  virtual ~Database() = default;

  virtual const Dialect& dialect() const = 0;

  // Runs one statement that changes nothing.
  virtual Result<Rows> Read(std::string_view sql, Parameters parameters) = 0;

  // Runs `work` and commits. If `work` fails, nothing changes, and its error is returned. When
  // Transact returns, other transactions see the changes. `work` may run on another thread. After a
  // conflict with another transaction or a lost connection, `work` runs again. So `work` must
  // assign the variables outside the database that hold its results, and must not append to them.
  //
  // After a conflict, the driver waits for a short, random time before it repeats the transaction.
  // Before each further repeat, it waits for up to twice as long. The reason is how PostgreSQL
  // resolves a deadlock: it ends one transaction and wakes up the other transaction. The other
  // transaction needs a moment to lock the row that it waits for. If the first transaction is
  // repeated within this moment, it locks the row first, and both are in a deadlock again.
  using Work = std::function<Result<void>(Transaction&)>;
  Result<void> Transact(const Work& work, Durability durability = Durability::kOnDisk) {
    Result<void> done = Commit(work, durability);
    if (!done && done.error().kind == ErrorKind::kSystem) ++failed_writes_;
    return done;
  }
  // The number of transactions that failed because the database was unavailable or full.
  std::int64_t failed_writes() const { return failed_writes_; }

  // The same as Store::Listen.
  using Receive = std::function<void(const Notice&)>;
  virtual Result<void> Listen(Receive receive) = 0;

 private:
  virtual Result<void> Commit(const Work& work, Durability durability) = 0;

  std::atomic<std::int64_t> failed_writes_ = 0;
};

// Opens the database at an address in the form that OpenStore accepts.
Result<std::unique_ptr<Database>> OpenDatabase(const std::string& address);

// Opens an SQLite database. `path` is a file, or ":memory:".
Result<std::unique_ptr<Database>> OpenSqlite(const std::string& path);
// Opens a PostgreSQL database. `url` is "postgresql://…" as libpq accepts it. Connects at once, so
// that a wrong address fails now.
Result<std::unique_ptr<Database>> OpenPostgres(const std::string& url);

// Refuses (kInput) texts that a database may be unable to store. These are texts with NUL bytes,
// texts that are not UTF-8, and texts of more than 500 MB. The drivers call it.
Result<void> CheckParameters(Parameters parameters);

}  // namespace perseus::store
