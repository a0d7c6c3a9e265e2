// The part of a database that the store needs: statements with parameters, transactions, notices.
//
// Both drivers run the same SQL. Parameters are $1, $2, … All values of a statement are parameters:
// a text from outside is never part of a statement. A statement contains a part of Dialect only
// where the dialects differ.
//
// Each statement of a transaction reads what was committed before it (READ COMMITTED). So code that
// reads a row and then writes it locks the row first (Dialect::for_update).
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

// Returns the error for a word of the database that is none of `known`.
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
  // Call this once for each column: it moves the text out.
  std::string TakeText(std::size_t column) {
    auto* value = std::get_if<std::string>(&values_.at(column));
    return value == nullptr ? std::string() : std::move(*value);
  }
  // Moves all columns out, in their order. If a field is a state, returns a Result<void>, which is
  // kSystem for a word that this program does not know.
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
  std::string_view for_update;  // After SELECT …: locks the rows until the end of the transaction.
  std::string_view skip_locked;  // The same, but skips rows that are locked.
  std::string_view lock_schema;  // A statement that lets only one replica create tables. Or empty.
  std::string_view shrink;       // A statement that frees the space of deleted rows. Or empty.
  std::string_view clock;        // Reads the database's clock in milliseconds since 1970. Or empty.
  bool has_replicas;             // Other processes may use the same database.
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

// The failures that a committed transaction survives.
enum class Durability {
  kOnDisk,  // A crash of the machine: the disk has confirmed it before Transact returns.
  // A crash of the process. A crash of the machine may undo the last such transactions, but none
  // before a transaction with kOnDisk. This is for data that is reported again anyway: a busy disk
  // needs over 100 ms to confirm a commit.
  kInMemory,
};

class Database {
 public:
  virtual ~Database() = default;

  virtual const Dialect& dialect() const = 0;

  // Runs one statement that changes nothing.
  virtual Result<Rows> Read(std::string_view sql, Parameters parameters) = 0;

  // Runs `work` and commits. If `work` fails, nothing changes, and its error is returned. When this
  // returns, others see the changes. `work` may run on another thread. It may also run several
  // times, after a conflict with another transaction or a lost connection. So it must assign its
  // results outside the database, and must not append to them.
  //
  // After a conflict, the driver waits for a short, random time before it repeats the transaction,
  // and for up to twice as long before each further repeat. PostgreSQL ends one transaction of a
  // deadlock and wakes up the other one, which needs a moment to lock the row that it waits for. A
  // repeat within this moment locks the row first, and both are in a deadlock again.
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

// Opens an address in the form that OpenStore accepts.
Result<std::unique_ptr<Database>> OpenDatabase(const std::string& address);

// `path` is a file, or ":memory:".
Result<std::unique_ptr<Database>> OpenSqlite(const std::string& path);
// `url` is "postgresql://…" as libpq accepts it. Connects, so that a wrong address fails at once.
Result<std::unique_ptr<Database>> OpenPostgres(const std::string& url);

// Refuses (kInput) texts that a database may not be able to store: texts with NUL bytes, texts that
// are not UTF-8, and texts of more than 500 MB. For drivers.
Result<void> CheckParameters(Parameters parameters);

}  // namespace perseus::store
