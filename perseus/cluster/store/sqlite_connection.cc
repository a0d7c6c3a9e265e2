#include "perseus/cluster/store/sqlite_connection.h"

#include <fmt/core.h>

namespace perseus::store {
namespace {

// How long to wait for another process that holds the lock. Only a user's sqlite3 tool can hold it.
constexpr int kBusyTimeoutMs = 2000;

int Bind(sqlite3_stmt* statement, int index, const Parameter& parameter) {
  if (const auto* integer = std::get_if<std::int64_t>(&parameter)) {
    return ::sqlite3_bind_int64(statement, index, *integer);
  }
  if (const auto* real = std::get_if<double>(&parameter)) {
    return ::sqlite3_bind_double(statement, index, *real);
  }
  if (const auto* text = std::get_if<std::string_view>(&parameter)) {
    // A null pointer would be NULL.
    return ::sqlite3_bind_text64(statement, index, text->empty() ? "" : text->data(), text->size(),
                                 SQLITE_STATIC, SQLITE_UTF8);
  }
  return ::sqlite3_bind_null(statement, index);
}

Value Column(sqlite3_stmt* statement, int column) {
  switch (::sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      return std::int64_t{::sqlite3_column_int64(statement, column)};
    case SQLITE_FLOAT:
      return ::sqlite3_column_double(statement, column);
    case SQLITE_NULL:
      return std::monostate();
    default: {
      const auto* text = reinterpret_cast<const char*>(::sqlite3_column_text(statement, column));
      if (text == nullptr) return std::string();
      return std::string(text, static_cast<std::size_t>(::sqlite3_column_bytes(statement, column)));
    }
  }
}

std::string_view RemedyFor(int code) {
  switch (code & 0xFF) {
    case SQLITE_FULL:
      return "free space on its disk";
    case SQLITE_CANTOPEN:
      return "check that its directory exists and that this user may write there";
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return "let this user write to it and to its directory";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return "another program uses it; close that program, or use PostgreSQL for several servers";
    case SQLITE_NOTADB:
      return "name another file";
    case SQLITE_CORRUPT:
      return "restore it from a backup";
    case SQLITE_TOOBIG:
      return "store shorter texts, of less than 1 GB";
    default:
      return "check the system log for disk errors";
  }
}

}  // namespace

tl::unexpected<Error> SqliteConnection::Failure() {
  const int code = ::sqlite3_extended_errcode(database_.get());
  const int kind = code & 0xFF;
  const bool is_input = kind == SQLITE_NOTADB || kind == SQLITE_TOOBIG;
  return FailAs(is_input ? ErrorKind::kInput : ErrorKind::kSystem, "the database {}: {} ({})",
                path_, ::sqlite3_errmsg(database_.get()), RemedyFor(code));
}

Result<SqliteConnection> SqliteConnection::Open(const std::string& path) {
  sqlite3* database = nullptr;
  const int opened =
      ::sqlite3_open_v2(path.c_str(), &database,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  SqliteConnection connection(database, path);
  if (database == nullptr) {
    return FailAs(ErrorKind::kSystem, "the database {}: out of memory (free some memory)", path);
  }
  if (opened != SQLITE_OK) return connection.Failure();
  PERSEUS_RETURN_IF_ERROR(connection.SetUp());
  return connection;
}

Result<void> SqliteConnection::SetUp() {
  ::sqlite3_busy_timeout(database_.get(), kBusyTimeoutMs);
  ::sqlite3_extended_result_codes(database_.get(), 1);
  for (const char* setting : {
           "PRAGMA auto_vacuum = INCREMENTAL",  // First, because it needs a file without tables.
           "PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON",
           "PRAGMA journal_size_limit = 67108864",  // Without a limit, a long log never shrinks.
       }) {
    PERSEUS_RETURN_IF_ERROR(Run(setting, {}));
  }
  if (path_ == ":memory:") return {};
  PERSEUS_ASSIGN_OR_RETURN(Rows mode, Run("PRAGMA journal_mode = WAL", {}));
  if (mode.empty() || mode.front().TakeText(0) != "wal") {
    return FailAs(ErrorKind::kSystem,
                  "the database {} cannot have a write-ahead log (put it on a local disk)", path_);
  }
  return {};
}

Result<sqlite3_stmt*> SqliteConnection::Prepare(std::string_view sql) {
  if (const auto known = statements_.find(sql); known != statements_.end()) {
    return known->second.get();
  }
  sqlite3_stmt* statement = nullptr;
  if (::sqlite3_prepare_v3(database_.get(), sql.data(), static_cast<int>(sql.size()),
                           SQLITE_PREPARE_PERSISTENT, &statement, nullptr) != SQLITE_OK) {
    return Failure();
  }
  statements_.emplace(sql, statement);
  return statement;
}

Result<Rows> SqliteConnection::Run(std::string_view sql, Parameters parameters) {
  PERSEUS_ASSIGN_OR_RETURN(sqlite3_stmt* const statement, Prepare(sql));
  int number = 0;
  for (const Parameter& parameter : parameters) {
    // SQLite treats $1 as a name like $a. It numbers names in the order of the text.
    const std::string name = fmt::format("${}", ++number);
    const int index = ::sqlite3_bind_parameter_index(statement, name.c_str());
    if (Bind(statement, index, parameter) != SQLITE_OK) return Failure();
  }
  Result<Rows> rows = Collect(statement);
  ::sqlite3_reset(statement);           // Otherwise the statement continues to read.
  ::sqlite3_clear_bindings(statement);  // After this, texts need not outlive the call.
  return rows;
}

Result<Rows> SqliteConnection::Collect(sqlite3_stmt* statement) {
  Rows rows;
  while (true) {
    const int step = ::sqlite3_step(statement);
    if (step == SQLITE_DONE) return rows;
    if (step != SQLITE_ROW) return Failure();
    const int columns = ::sqlite3_column_count(statement);
    std::vector<Value> values;
    values.reserve(static_cast<std::size_t>(columns));
    for (int column = 0; column < columns; ++column) values.push_back(Column(statement, column));
    rows.emplace_back(std::move(values));
  }
}

}  // namespace perseus::store
