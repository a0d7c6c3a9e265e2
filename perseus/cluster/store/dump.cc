#include "perseus/cluster/store/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/dump_file.h"
#include "perseus/cluster/store/schema.h"

namespace perseus::store {
namespace {

using nlohmann::ordered_json;

constexpr int kDumpFormat = 1;
// Rows may be long: a plan of a large job has megabytes.
constexpr int kRowsAtOnce = 50;

ordered_json ToJson(const Value& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return nullptr;
}

Parameter AsParameter(const Value& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* text = std::get_if<std::string>(&value)) return std::string_view(*text);
  return std::monostate();
}

std::string Join(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<std::vector<std::string>> ColumnsOf(Snapshot& snapshot, std::string_view table) {
  PERSEUS_ASSIGN_OR_RETURN(Rows rows, snapshot.Run(snapshot.dialect().columns, {table}));
  std::vector<std::string> columns;
  for (Row& row : rows) columns.push_back(row.TakeText(0));
  return columns;
}

Result<std::int64_t> VersionOf(Snapshot& snapshot) {
  PERSEUS_ASSIGN_OR_RETURN(const auto columns, ColumnsOf(snapshot, "schema_version"));
  std::int64_t version = 0;
  if (!columns.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(const Rows rows,
                             snapshot.Run("SELECT version FROM schema_version", {}));
    if (!rows.empty()) version = rows.front().Integer(0);
  }
  if (version >= 1 && version <= kSchemaVersion) return version;
  if (version == 0)
    return Fail("the database has no tables of a perseus server (name another one)");
  return Fail(
      "the tables of the database have version {}, but this program knows version {} (use "
      "the program that made them)",
      version, kSchemaVersion);
}

// Calls `take(row)` for each row of the table, in the order of its key.
template <typename Take>
Result<void> ReadTable(Snapshot& snapshot, const TableKey& table,
                       const std::vector<std::string>& columns, const Take& take) {
  std::vector<std::size_t> places;  // Of the key in a row.
  std::string key;
  std::string parameters;
  for (const std::string_view part : table.key) {
    places.push_back(static_cast<std::size_t>(std::ranges::find(columns, part) - columns.begin()));
    key += fmt::format("{}{}", key.empty() ? "" : ", ", part);
    parameters += fmt::format("{}${}", parameters.empty() ? "" : ", ", places.size());
  }
  const std::string select = fmt::format("SELECT {} FROM {}", Join(columns), table.name);
  const std::string end = fmt::format(" ORDER BY {} LIMIT {}", key, kRowsAtOnce);
  const std::string next = fmt::format("{} WHERE ({}) > ({}){}", select, key, parameters, end);
  std::vector<Value> last;
  while (true) {
    std::vector<Parameter> after;
    for (const Value& value : last) after.push_back(AsParameter(value));
    PERSEUS_ASSIGN_OR_RETURN(const Rows rows,
                             snapshot.Run(last.empty() ? select + end : next, Parameters(after)));
    for (const Row& row : rows) PERSEUS_RETURN_IF_ERROR(take(row));
    if (rows.size() < kRowsAtOnce) return {};
    last.clear();
    for (const std::size_t place : places) last.push_back(rows.back().At(place));
  }
}

Result<void> WriteTable(Snapshot& snapshot, const TableKey& table,
                        const std::vector<std::string>& columns, DumpWriter& writer,
                        DumpSummary& summary) {
  PERSEUS_RETURN_IF_ERROR(
      writer.Write(ordered_json{{"table", table.name}, {"columns", columns}}.dump()));
  DumpedTable& dumped = summary.tables.emplace_back(DumpedTable{std::string(table.name), 0});
  return ReadTable(snapshot, table, columns, [&](const Row& row) -> Result<void> {
    auto values = ordered_json::array();
    for (std::size_t i = 0; i < row.size(); ++i) values.push_back(ToJson(row.At(i)));
    ++dumped.rows;
    return writer.Write(values.dump());
  });
}

// ---- Restoring ----

tl::unexpected<Error> NoBackup(const std::string& path, int line, std::string_view why) {
  return Fail("{}:{}: this is not a whole backup: {} (make another one: perseus store backup)",
              path, line, why);
}

// Reads the lines. Calls `take_table(name, columns)` and `take_row(values)`. The last line has to
// have the hash of the others.
template <typename TakeTable, typename TakeRow>
Result<DumpSummary> ReadDump(const std::string& path, const TakeTable& take_table,
                             const TakeRow& take_row) {
  PERSEUS_ASSIGN_OR_RETURN(DumpReader reader, DumpReader::Open(path));
  DumpSummary summary;
  std::string text;
  bool has_ended = false;
  while (reader.Next(text)) {
    if (has_ended) return NoBackup(path, reader.line(), "there is a line after its end");
    const auto line = ordered_json::parse(text, nullptr, false);
    if (line.is_array() && !summary.tables.empty()) {
      ++summary.tables.back().rows;
      PERSEUS_RETURN_IF_ERROR(take_row(line, reader.line()));
    } else if (line.is_object() && line.contains("perseus_store") && reader.line() == 1) {
      if (line["perseus_store"] != kDumpFormat || !line.contains("schema") ||
          !line["schema"].is_number_integer()) {
        return NoBackup(path, 1, "its format is unknown");
      }
      summary.schema = line["schema"];
      if (summary.schema < 1 || summary.schema > kSchemaVersion) {
        return Fail(
            "{} has tables of version {}, but this program knows version {} (use the "
            "program that made it, or a newer one)",
            path, summary.schema, kSchemaVersion);
      }
    } else if (line.is_object() && line.contains("table") && summary.schema > 0) {
      PERSEUS_RETURN_IF_ERROR(take_table(line, reader.line()));
      summary.tables.push_back({line["table"], 0});
    } else if (line.is_object() && line.contains("end") && summary.schema > 0) {
      has_ended = line.value("rows", std::int64_t{-1}) == summary.rows() &&
                  line.value("sha256", "") == reader.hash();
      if (!has_ended) return NoBackup(path, reader.line(), "its rows or its hash are wrong");
    } else {
      return NoBackup(path, reader.line(), "the line is wrong");
    }
  }
  if (!has_ended) return NoBackup(path, reader.line() + 1, "its end is missing");
  return summary;
}

// The statement that inserts rows of one table.
class Insertion {
 public:
  Result<void> Begin(const ordered_json& line, const std::string& path, int number) {
    const ordered_json& name = line["table"];
    const auto& tables = TablesInOrder();
    const bool is_known = name.is_string() && std::ranges::any_of(tables, [&](const auto& table) {
                            return table.name == name.get_ref<const std::string&>();
                          });
    // These become a part of a statement.
    const auto is_name = [](const ordered_json& column) {
      return column.is_string() && !column.get_ref<const std::string&>().empty() &&
             column.get_ref<const std::string&>().find_first_not_of(
                 "abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
    };
    if (!is_known || !line.contains("columns") || !line["columns"].is_array() ||
        !std::ranges::all_of(line["columns"], is_name)) {
      return NoBackup(path, number, "the table is unknown");
    }
    const auto columns = line["columns"].get<std::vector<std::string>>();
    std::string values;
    for (std::size_t i = 1; i <= columns.size(); ++i) {
      values += fmt::format("{}${}", i == 1 ? "" : ", ", i);
    }
    table_ = name;
    columns_ = columns.size();
    sql_ = fmt::format("INSERT INTO {} ({}) VALUES ({})", table_, Join(columns), values);
    return {};
  }

  Result<void> Run(Transaction& transaction, const ordered_json& row, const std::string& path,
                   int number) const {
    if (row.size() != columns_) return NoBackup(path, number, "the row has other columns");
    std::vector<Parameter> values;
    for (const ordered_json& value : row) {
      if (value.is_number_integer()) {
        values.emplace_back(value.get<std::int64_t>());
      } else if (value.is_number_float()) {
        values.emplace_back(value.get<double>());
      } else if (value.is_string()) {
        values.emplace_back(std::string_view(value.get_ref<const std::string&>()));
      } else if (value.is_null()) {
        values.emplace_back(std::monostate());
      } else {
        return NoBackup(path, number, "a value is neither a number nor a text");
      }
    }
    if (auto inserted = transaction.Run(sql_, Parameters(values)); !inserted) {
      return FailAs(inserted.error().kind, "{}:{}: {}", path, number, inserted.error().message);
    }
    return {};
  }
  const std::string& table() const { return table_; }

 private:
  std::string table_;
  std::string sql_;
  std::size_t columns_ = 0;
};

Result<DumpSummary> RestoreIn(Transaction& transaction, const Dialect& dialect,
                              const std::string& path, std::int64_t schema) {
  if (!dialect.lock_schema.empty()) {
    PERSEUS_RETURN_IF_ERROR(transaction.Run(dialect.lock_schema, {}));
  }
  PERSEUS_ASSIGN_OR_RETURN(const std::int64_t version, VersionOfTables(transaction, dialect));
  if (version != 0) {
    return Fail(
        "the database has the tables of a server already, and nothing was changed (restore "
        "into a new database)");
  }
  PERSEUS_RETURN_IF_ERROR(CreateTables(transaction, dialect, schema));
  // The tables begin with one row in each of these.
  for (const char* table : {"audit_head", "heartbeat"}) {
    PERSEUS_ASSIGN_OR_RETURN(const Rows columns, transaction.Run(dialect.columns, {table}));
    if (columns.empty()) continue;
    PERSEUS_RETURN_IF_ERROR(transaction.Run(fmt::format("DELETE FROM {}", table), {}));
  }
  Insertion insertion;
  PERSEUS_ASSIGN_OR_RETURN(auto summary, ReadDump(
                                             path,
                                             [&](const ordered_json& line, int number) {
                                               return insertion.Begin(line, path, number);
                                             },
                                             [&](const ordered_json& row, int number) {
                                               return insertion.Run(transaction, row, path, number);
                                             }));
  for (const TableKey& table : TablesInOrder()) {
    if (!table.has_serial_key || dialect.reset_serial.empty()) continue;
    PERSEUS_ASSIGN_OR_RETURN(const Rows columns, transaction.Run(dialect.columns, {table.name}));
    if (columns.empty()) continue;
    std::string reset(dialect.reset_serial);
    for (std::size_t at = 0; (at = reset.find("{table}")) != std::string::npos;) {
      reset.replace(at, 7, table.name);
    }
    PERSEUS_RETURN_IF_ERROR(transaction.Run(reset, {}));
  }
  PERSEUS_RETURN_IF_ERROR(CreateTables(transaction, dialect, kSchemaVersion));
  return summary;
}

// ---- Checking ----

Result<void> CheckAudit(Snapshot& snapshot, CheckedStore& checked) {
  PERSEUS_ASSIGN_OR_RETURN(const auto columns, ColumnsOf(snapshot, "audit"));
  if (columns.empty()) return {};
  PERSEUS_ASSIGN_OR_RETURN(
      const Rows rows,
      snapshot.Run("SELECT COUNT(*), (SELECT MAX(number) FROM audit_head) FROM audit", {}));
  checked.audit_records = rows.front().Integer(0);
  if (const std::int64_t newest = rows.front().Integer(1); newest != checked.audit_records) {
    checked.problems.push_back(fmt::format("the audit trail has {} records, but {} were written",
                                           checked.audit_records, newest));
  }
  return {};
}

Result<void> CheckAssignments(Snapshot& snapshot, CheckedStore& checked) {
  std::set<std::string> plans;
  PERSEUS_RETURN_IF_ERROR(ReadTable(snapshot, {"plans", {"number"}}, {"number", "id"},
                                    [&](const Row& row) -> Result<void> {
                                      plans.insert(std::get<std::string>(row.At(1)));
                                      return {};
                                    }));
  return ReadTable(snapshot, {"assignments", {"job", "version"}}, {"job", "version", "body"},
                   [&](const Row& row) -> Result<void> {
                     const std::string name = fmt::format("assignment {} of job {}", row.Integer(1),
                                                          std::get<std::string>(row.At(0)));
                     const auto body =
                         ordered_json::parse(std::get<std::string>(row.At(2)), nullptr, false);
                     if (!body.is_object() || !body.contains("pipelines")) {
                       checked.problems.push_back(name + " is not JSON of an assignment");
                       return {};
                     }
                     std::set<std::string> missing;
                     for (const ordered_json& share : body["pipelines"]) {
                       const std::string plan = share.is_object() ? share.value("plan", "") : "";
                       if (!plans.contains(plan)) missing.insert(plan);
                     }
                     for (const std::string& plan : missing) {
                       checked.problems.push_back(fmt::format(
                           "{} names plan {}, which does not exist", name, Excerpt(plan)));
                     }
                     return {};
                   });
}

Result<void> CheckSqlite(Snapshot& snapshot, CheckedStore& checked) {
  PERSEUS_ASSIGN_OR_RETURN(Rows rows, snapshot.Run("PRAGMA quick_check(20)", {}));
  for (Row& row : rows) {
    const std::string found = row.TakeText(0);
    if (found != "ok") checked.problems.push_back("the file: " + found);
  }
  PERSEUS_ASSIGN_OR_RETURN(Rows orphans, snapshot.Run("PRAGMA foreign_key_check", {}));
  for (Row& row : orphans) {
    checked.problems.push_back(fmt::format("a row of {} belongs to nothing", row.TakeText(0)));
  }
  return {};
}

}  // namespace

std::int64_t DumpSummary::rows() const {
  std::int64_t sum = 0;
  for (const DumpedTable& table : tables) sum += table.rows;
  return sum;
}

Result<DumpSummary> Backup(const std::string& address, const std::string& path, Milliseconds now) {
  PERSEUS_ASSIGN_OR_RETURN(const auto snapshot, OpenSnapshot(address));
  if (IsFileOf(address, path)) {
    return Fail("{} is a file of the database itself (give the backup another name)", path);
  }
  DumpSummary summary;
  PERSEUS_ASSIGN_OR_RETURN(summary.schema, VersionOf(*snapshot));
  PERSEUS_ASSIGN_OR_RETURN(DumpWriter writer, DumpWriter::Create(path));
  PERSEUS_RETURN_IF_ERROR(writer.Write(ordered_json{
      {"perseus_store", kDumpFormat},
      {"schema", summary.schema},
      {"created_ms", now}}.dump()));
  for (const TableKey& table : TablesInOrder()) {
    PERSEUS_ASSIGN_OR_RETURN(const auto columns, ColumnsOf(*snapshot, table.name));
    if (columns.empty()) continue;  // Of a newer version.
    PERSEUS_RETURN_IF_ERROR(WriteTable(*snapshot, table, columns, writer, summary));
  }
  const ordered_json end{{"end", true}, {"rows", summary.rows()}, {"sha256", writer.hash()}};
  PERSEUS_RETURN_IF_ERROR(writer.Write(end.dump()));
  PERSEUS_RETURN_IF_ERROR(writer.Finish());
  return summary;
}

Result<DumpSummary> Restore(const std::string& path, const std::string& address) {
  // The whole file, before anything is changed.
  const auto ignore = [](const ordered_json&, int) -> Result<void> { return {}; };
  PERSEUS_ASSIGN_OR_RETURN(const DumpSummary whole, ReadDump(path, ignore, ignore));
  PERSEUS_ASSIGN_OR_RETURN(const auto database, OpenDatabase(address));
  DumpSummary restored;
  PERSEUS_RETURN_IF_ERROR(database->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(restored,
                             RestoreIn(transaction, database->dialect(), path, whole.schema));
    return {};
  }));
  return restored;
}

Result<CheckedStore> CheckStore(const std::string& address) {
  PERSEUS_ASSIGN_OR_RETURN(const auto snapshot, OpenSnapshot(address));
  CheckedStore checked;
  PERSEUS_ASSIGN_OR_RETURN(checked.contents.schema, VersionOf(*snapshot));
  if (!snapshot->dialect().has_replicas) PERSEUS_RETURN_IF_ERROR(CheckSqlite(*snapshot, checked));
  for (const TableKey& table : TablesInOrder()) {
    PERSEUS_ASSIGN_OR_RETURN(const auto columns, ColumnsOf(*snapshot, table.name));
    if (columns.empty()) continue;
    PERSEUS_ASSIGN_OR_RETURN(const Rows count,
                             snapshot->Run(fmt::format("SELECT COUNT(*) FROM {}", table.name), {}));
    checked.contents.tables.push_back({std::string(table.name), count.front().Integer(0)});
  }
  PERSEUS_RETURN_IF_ERROR(CheckAudit(*snapshot, checked));
  PERSEUS_RETURN_IF_ERROR(CheckAssignments(*snapshot, checked));
  return checked;
}

}  // namespace perseus::store
