// `perseus store` looks after the database of a server.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include <nlohmann/json.hpp>

#include "perseus/base/clock.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/standard_output.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/cluster/store/dump.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kStoreAbout =
    "Back up, restore and check the database of a server (docs/server.md). A backup is one text\n"
    "file, the same for SQLite and PostgreSQL, so it also moves a server from one to the other.\n"
    "Servers go on while backup and check run.";
constexpr const char* kStoreExamples =
    "Examples:\n"
    "  perseus store backup perseus.backup --database sqlite:perseus.db\n"
    "  perseus store restore perseus.backup \\\n"
    "      --database postgresql://perseus@db/perseus\n"
    "  perseus store check --database sqlite:perseus.db";

struct StoreFlags {
  std::string database = "sqlite:perseus.db";
  std::string file = "";
  bool as_json = false;
};

store::Milliseconds Now() { return SinceEpoch() / kMillisecond; }

ordered_json SummaryJson(const store::DumpSummary& summary) {
  auto tables = ordered_json::object();
  for (const store::DumpedTable& table : summary.tables) tables[table.name] = table.rows;
  return {{"schema", summary.schema}, {"rows", summary.rows()}, {"tables", std::move(tables)}};
}

Result<void> Backup(const Streams& streams, const StoreFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto summary, store::Backup(flags.database, flags.file, Now()));
  if (flags.as_json) return streams.Print(SummaryJson(summary).dump(2) + "\n");
  return streams.Print(fmt::format("{}: {} rows of {} tables, version {}\n", flags.file,
                                   summary.rows(), summary.tables.size(), summary.schema));
}

Result<void> Restore(const Streams& streams, const StoreFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto summary, store::Restore(flags.file, flags.database));
  if (flags.as_json) return streams.Print(SummaryJson(summary).dump(2) + "\n");
  return streams.Print(
      fmt::format("{} rows of {} tables are restored\n", summary.rows(), summary.tables.size()));
}

Result<void> Check(const Streams& streams, const StoreFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto checked, store::CheckStore(flags.database));
  if (flags.as_json) {
    ordered_json json = SummaryJson(checked.contents);
    json["audit_records"] = checked.audit_records;
    json["problems"] = checked.problems;
    PERSEUS_RETURN_IF_ERROR(streams.Print(json.dump(2) + "\n"));
  } else {
    Table table({"table", "rows"});
    for (const store::DumpedTable& one : checked.contents.tables) {
      table.AddRow({one.name, std::to_string(one.rows)});
    }
    std::string text = table.Format();
    text += fmt::format("tables of version {}, {} audit records\n", checked.contents.schema,
                        checked.audit_records);
    for (const std::string& problem : checked.problems) text += "problem: " + problem + "\n";
    PERSEUS_RETURN_IF_ERROR(streams.Print(text));
  }
  if (checked.problems.empty()) return {};
  return FailAs(
      ErrorKind::kSystem,
      "the database has {} problems (restore it from a backup, or find out who changed it)",
      checked.problems.size());
}

}  // namespace

Verb AddStoreVerb(CLI::App& program) {
  auto flags = std::make_shared<StoreFlags>();
  auto action = std::make_shared<Result<void> (*)(const Streams&, const StoreFlags&)>();
  CLI::App* verb = program.add_subcommand("store", kStoreAbout);
  verb->footer(kStoreExamples);
  verb->require_subcommand(1);
  const auto add = [&](const char* name, const char* about,
                       Result<void> (*run)(const Streams&, const StoreFlags&)) {
    CLI::App* sub = verb->add_subcommand(name, about);
    // A string for each subcommand: CLI11 writes the value of the environment to those of all
    // subcommands, also after a flag was read.
    auto database = std::make_shared<std::string>(flags->database);
    sub->add_option("--database", *database,
                    "sqlite:FILE, or postgresql://USER@HOST/NAME (default: PERSEUS_DATABASE, or "
                    "sqlite:perseus.db)")
        ->envname("PERSEUS_DATABASE")
        ->type_name("URL");
    sub->add_flag("--json", flags->as_json, "Print JSON");
    sub->callback([flags, action, run, database] {
      flags->database = *database;
      *action = run;
    });
    return sub;
  };
  add("backup", "Write a backup of one moment; servers go on", Backup)
      ->add_option("file", flags->file, "The file; it holds hashes of tokens, so keep it private")
      ->type_name("FILE")
      ->required();
  add("restore", "Read a backup into a new database", Restore)
      ->add_option("file", flags->file, "The backup")
      ->type_name("FILE")
      ->check(InputFile())
      ->required();
  add("check", "Look for damage and for missing audit records; servers go on", Check);
  return {verb, [flags, action](const Streams& streams) { return (*action)(streams, *flags); }};
}

}  // namespace perseus::cli
