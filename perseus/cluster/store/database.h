// A database, as far as the store needs one: statements with parameters, transactions, notices.
//
// One text of SQL for both drivers. Parameters are $1, $2, … and all of a statement's values are
// parameters: no text that came from outside is ever part of a statement. Where the dialects
// differ, and nowhere else, a statement is put together with a piece of Dialect.
//
// Transactions see what was committed before each of their statements (READ COMMITTED), so whoever
// writes what he has read locks the row first (Dialect::for_update).
//
// Thread safe, but for a Transaction, which is its function's alone.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/store/store.h"

namespace perseus::store {

// Null, an integer, a number or a text; of a parameter, whose text has to outlive the call.
using Parameter = std::variant<std::monostate, std::int64_t, double, std::string_view>;
using Parameters = std::initializer_list<Parameter>;
using Value = std::variant<std::monostate, std::int64_t, double, std::string>;

// A row of an answer. A null reads as 0 or as an empty text.
class Row {
 public:
  explicit Row(std::vector<Value> values) : values_(std::move(values)) {}

  bool IsNull(std::size_t column) const {
    return std::holds_alternative<std::monostate>(values_.at(column));
  }
  std::int64_t Integer(std::size_t column) const {
    const auto* value = std::get_if<std::int64_t>(&values_.at(column));
    return value == nullptr ? 0 : *value;
  }
  double Real(std::size_t column) const {
    const auto* value = std::get_if<double>(&values_.at(column));
    return value == nullptr ? 0 : *value;
  }
  // Only once: it may be long, and is moved out.
  std::string TakeText(std::size_t column) {
    auto* value = std::get_if<std::string>(&values_.at(column));
    return value == nullptr ? std::string() : std::move(*value);
  }

 private:
  std::vector<Value> values_;
};

using Rows = std::vector<Row>;

// What the two dialects of SQL do not say alike.
struct Dialect {
  std::string_view serial_key;   // Type of a key that counts by itself.
  std::string_view for_update;   // After SELECT …: nobody else changes these rows until the end.
  std::string_view skip_locked;  // The same, passing over rows that somebody else has.
  std::string_view lock_schema;  // A statement: no other replica migrates until the end. Or empty.
  std::string_view shrink;       // A statement: gives back the space of deleted rows. Or empty.
  bool has_replicas;             // Other processes may work with the same database.
};

class Transaction {
 public:
  virtual ~Transaction() = default;
  virtual Result<Rows> Run(std::string_view sql, Parameters parameters) = 0;
  // Sent if and when the transaction is committed.
  virtual Result<void> Notify(const Notice& notice) = 0;
};

class Database {
 public:
  virtual ~Database() = default;

  virtual const Dialect& dialect() const = 0;

  // One statement that changes nothing.
  virtual Result<Rows> Read(std::string_view sql, Parameters parameters) = 0;

  // Runs `work` and commits, unless it fails: then nothing is changed, and its error is returned.
  // May run it again from the start, when another transaction was in the way or the connection was
  // lost; so what it leaves outside the database has to be assigned, not added to. On another
  // thread, perhaps. The transaction is durable when this returns.
  using Work = std::function<Result<void>(Transaction&)>;
  virtual Result<void> Transact(const Work& work) = 0;

  // As Store::Listen.
  using Heard = std::function<void(const Notice&)>;
  virtual Result<void> Listen(Heard heard) = 0;
};

// `path`: a file, or ":memory:".
Result<std::unique_ptr<Database>> OpenSqlite(const std::string& path);
// `url`: "postgresql://…" as libpq takes it. Connects, so that a wrong one is found out at once.
Result<std::unique_ptr<Database>> OpenPostgres(const std::string& url);

// For drivers: refuses (kInput) texts that not every database can hold, those with NUL bytes and
// those that are not UTF-8, and those of more than 500 MB.
Result<void> CheckParameters(Parameters parameters);

}  // namespace perseus::store
