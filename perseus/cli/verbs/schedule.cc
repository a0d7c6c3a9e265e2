// `perseus schedule` writes the schedule that a job really ran, or searches for a better one.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/figure_flags.h"
#include "perseus/cli/flags/job_options.h"
#include "perseus/cli/flags/switch_flags.h"
#include "perseus/cli/terminal/row_block.h"
#include "perseus/cli/terminal/signals.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/results.h"
#include "perseus/cli/verbs/schedule_report.h"
#include "perseus/cli/verbs/switches.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/planning/schedule_search/tradeoff.h"
#include "perseus/runtime/tuner/ran_schedule.h"
#include "perseus/runtime/tuner/transfer_time.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;
using schedule_search::Tradeoff;
using schedule_search::TradeoffRow;

constexpr const char* kScheduleAbout =
    "Write the schedule that a job really ran, from its rank logs, as the planner's input. This "
    "is\n"
    "the newest order of instructions that all ranks ran in several consecutive steps. Also says\n"
    "which steps had another order: an evaluation, or a batch with fewer microbatches. `search`\n"
    "finds the schedule whose plan needs the least energy, before a job runs.";
constexpr const char* kScheduleExamples =
    "  perseus schedule run -o order.csv\n"
    "  perseus plan profile.csv --schedule-file order.csv \\\n"
    "      --blocking-power 83.64 -o out\n"
    "  perseus schedule search profile.csv --microbatches 24 --blocking-power 83.64";

struct ScheduleFlags {
  std::string directory;
  std::string output;
};

Result<void> RunSchedule(const Streams& streams, const ScheduleFlags& flags) {
  if (flags.directory.empty()) {
    return Fail(
        "JOBDIR is missing (give the job's directory, or search for a schedule with perseus "
        "schedule search)");
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto logs,
                           tuner::JobLogs::Open(flags.directory, tuner::JobLogs::Job::kIsOver));
  PERSEUS_ASSIGN_OR_RETURN(const auto ran,
                           tuner::FindRanSchedule(logs, tuner::LoggedRanks(logs), flags.directory));
  const std::string waits = tuner::DescribeWaits(
      tuner::FindWaits(logs, tuner::LoggedRanks(logs), ran.schedule, ran.first, ran.last));
  if (!waits.empty()) streams.Warn(waits);
  const std::string csv = schedule::FormatSchedule(ran.schedule);
  if (flags.output.empty()) return streams.Print(csv);
  PERSEUS_RETURN_IF_ERROR(WriteFileAtomically(flags.output, csv));
  return streams.Print(tuner::Describe(ran) + fmt::format("wrote {}\n", flags.output));
}

constexpr const char* kSearchAbout =
    "Search for the schedule whose plan needs the least energy, and show what memory buys.\n"
    "Every row has a schedule and a plan that is no slower than 1F1B at maximum frequency (for\n"
    "several chunks: interleaved 1F1B). In row +1, each pp_rank may hold the activations of one\n"
    "microbatch more than with 1F1B. `in flight` is what the schedule holds on pp_ranks 0, 1, ...\n"
    "No schedule in this memory saves more than `at most`. `at maximum` is the iteration time at\n"
    "maximum frequency.";
constexpr const char* kSearchExamples =
    "  perseus schedule search profile.csv --microbatches 24 \\\n"
    "      --blocking-power 83.64 -o schedules\n"
    "  perseus plan profile.csv --schedule-file schedules/more-1.csv \\\n"
    "      --blocking-power 83.64 -o out\n"
    "  perseus schedule search profile.csv --microbatches 24 \\\n"
    "      --blocking-power 83.64 --figure memory.svg --figure schedules.svg";

struct SearchFlags {
  job::JobSettings job;
  std::vector<int> more;
  std::string directory;
  FigureFlags figures;
  int effort = plan::kFirstLook;
  bool with_progress = false;
  bool as_json = false;
};

// Returns the name of a row's files, without the extension.
std::string StemOf(const TradeoffRow& row) {
  return row.more < 0 ? "fits" : fmt::format("more-{}", row.more);
}

// The row of the reference has no bound of its own: row +0 has the same memory.
std::string MostSavingText(const Tradeoff& tradeoff, const TradeoffRow& row) {
  if (&row == &tradeoff.fixed) return "";
  return row.most_saving ? FormatPercent(*row.most_saving) : "none";
}

// Returns the cells of a row, with the bytes of activations if they are known.
std::vector<std::string> RowCells(const Tradeoff& tradeoff, const std::string& name,
                                  const TradeoffRow& row) {
  std::vector<std::string> cells{name, schedule_search::FormatInFlight(row.candidate.in_flight)};
  if (!tradeoff.activations.empty()) {
    cells.push_back(FormatGib(schedule_search::MostBytes(tradeoff, row)));
  }
  cells.insert(cells.end(), {FormatPercent(row.saving), MostSavingText(tradeoff, row),
                             FormatQuantity(ToSeconds(row.candidate.time_at_maximum), "s"),
                             FormatPercent(row.bubble), FormatSwitches(row.changes_per_rank)});
  return cells;
}

std::string FormatTradeoff(const Tradeoff& tradeoff) {
  const schedule_search::Reference& reference = tradeoff.reference;
  std::vector<std::string> header{"memory",     "in flight", "saving",  "at most",
                                  "at maximum", "bubble",    "switches"};
  if (!tradeoff.activations.empty()) header.insert(header.begin() + 2, "most");
  Table table(std::move(header));
  table.AddRow(RowCells(tradeoff, reference.schedule.name, tradeoff.fixed));
  for (const TradeoffRow& row : tradeoff.rows)
    table.AddRow(RowCells(tradeoff, NameOfRow(row), row));
  if (tradeoff.fitting) table.AddRow(RowCells(tradeoff, "fits", *tradeoff.fitting));
  return fmt::format("{} at maximum frequency: {} s, {} J\n\n{}{}\n{}", reference.schedule.name,
                     FormatQuantity(ToSeconds(reference.time)), FormatQuantity(reference.energy_j),
                     table.Format(), kSwitchesNote, Wrapped(schedule_search::Conclude(tradeoff)));
}

ordered_json RowJson(const TradeoffRow& row) {
  ordered_json json{{"more_in_flight", row.more},
                    {"schedule", row.candidate.origin},
                    {"in_flight", row.candidate.in_flight},
                    {"saving", row.saving},
                    {"energy_j", row.plan.evaluation.energy_j},
                    {"lower_bound_j", row.plan.lower_bound_j},
                    {"time_s", ToSeconds(row.plan.evaluation.time)},
                    {"time_at_maximum_s", ToSeconds(row.candidate.time_at_maximum)},
                    {"bubble", row.bubble},
                    {"changes_per_gpu", row.changes_per_rank}};
  if (row.most_saving) json["most_saving"] = *row.most_saving;
  return json;
}

ordered_json SearchJson(const Tradeoff& tradeoff, const job::GpuMemory& memory) {
  const schedule_search::Reference& reference = tradeoff.reference;
  ordered_json rows = ordered_json::array();
  for (const TradeoffRow& row : tradeoff.rows) rows.push_back(RowJson(row));
  ordered_json json{{"format", "perseus-schedule-search"},
                    {"version", 1},
                    {"reference",
                     {{"schedule", reference.schedule.name},
                      {"in_flight", reference.in_flight},
                      {"time_s", ToSeconds(reference.time)},
                      {"energy_j", reference.energy_j}}},
                    {"fixed", RowJson(tradeoff.fixed)},
                    {"rows", std::move(rows)},
                    {"conclusion", schedule_search::Conclude(tradeoff)}};
  if (tradeoff.fitting) {
    json["fitting"] = RowJson(*tradeoff.fitting);
    json["fitting"].erase("more_in_flight");
  }
  if (!tradeoff.activations.empty()) json["activation_bytes"] = tradeoff.activations;
  if (tradeoff.was_interrupted) json["stopped_early"] = true;
  if (!memory.bytes.available.empty()) json["available_bytes"] = memory.bytes.available;
  if (!memory.source.empty()) json["memory_source"] = memory.source;
  return json;
}

// Makes the files of a run: the schedules, the report page and, as the last file, search.json,
// which lists the other files.
Result<std::vector<ResultFile>> MakeSearchFiles(const Tradeoff& tradeoff,
                                                const job::GpuMemory& memory,
                                                const std::string& report_data) {
  std::vector<const TradeoffRow*> rows;
  for (const TradeoffRow& row : tradeoff.rows) rows.push_back(&row);
  if (tradeoff.fitting) rows.push_back(&*tradeoff.fitting);
  std::vector<ResultFile> files;
  for (const TradeoffRow* row : rows) {
    const schedule::Schedule& found = row->candidate.schedule;
    files.push_back({StemOf(*row) + ".csv", schedule::FormatSchedule(found)});
    files.push_back({StemOf(*row) + ".txt", schedule::DescribeOrder(found)});
  }
  if (report::HasReportPage()) {
    PERSEUS_ASSIGN_OR_RETURN(auto page, report::FormatReportPage(report_data));
    files.push_back({"report.html", std::move(page)});
  }
  ordered_json summary = SearchJson(tradeoff, memory);
  auto names = ordered_json::array();
  for (const ResultFile& file : files) names.push_back(file.name);
  summary["files"] = std::move(names);
  files.push_back({std::string(kSearchResults.summary), JsonText(summary, 2) + "\n"});
  return files;
}

// Computes the trade-off. Shows the best schedules so far, and ends early after Ctrl-C.
Result<Tradeoff> ComputeInteractively(const Streams& streams, const schedule_search::SearchJob& job,
                                      schedule_search::TradeoffOptions options,
                                      bool with_progress) {
  const FinishOnInterrupt interrupt(streams.err);
  RowBlock rows(streams.err, "schedules",
                with_progress ? RowBlock::Lines::kYes : RowBlock::Lines::kNo);
  options.finish = interrupt.token();
  options.progress = [&, shown = -1](int more, const schedule_search::Reference& reference,
                                     const schedule_search::Candidate& best,
                                     double completed) mutable {
    if (std::exchange(shown, more) != more) rows.Begin(fmt::format("schedules with +{}", more));
    rows.Show(fmt::format("{}", more),
              fmt::format("+{}: {} saves up to {} (in flight {})", more, best.origin,
                          FormatPercent(1 - best.relaxed_energy_j / reference.energy_j),
                          schedule_search::FormatInFlight(best.in_flight)));
    rows.Update(completed);
  };
  return schedule_search::ComputeTradeoff(job, options);
}

// Formats the text that the verb prints first.
std::string FormatSearchAnswer(const SearchFlags& flags, const job::UnscheduledJob& job,
                               const Tradeoff& tradeoff) {
  if (flags.as_json) return JsonText(SearchJson(tradeoff, job.memory), 2) + "\n";
  std::string text = job::Describe(job.facts);
  if (!job.memory.source.empty()) text += job.memory.source + "\n";
  if (tradeoff.was_interrupted) {
    text += "Stopped early: a whole run may find better schedules, and shows more memory.\n";
  }
  return FormatTradeoff(tradeoff) + Wrapped(text);
}

// Formats the text that the verb prints when the files are in their places.
std::string FormatSavedSearch(const SearchFlags& flags) {
  if (flags.as_json || flags.directory.empty()) return "";
  return fmt::format("The results are in {}{}\n", flags.directory,
                     report::HasReportPage() ? " (open report.html there)" : "");
}

Result<void> RunSearch(const Streams& streams, const SearchFlags& flags) {
  PERSEUS_RETURN_IF_ERROR(CheckFigures(flags.figures, {.has_schedules = true}));
  PERSEUS_ASSIGN_OR_RETURN(auto overlays, LoadOverlays(flags.figures));
  // If the results cannot be written, this fails before anything is computed.
  ResultDirectory results(flags.directory, kSearchResults);
  if (!flags.directory.empty()) PERSEUS_RETURN_IF_ERROR(results.Open());
  PERSEUS_ASSIGN_OR_RETURN(const auto job, job::LoadUnscheduledJob(flags.job));
  PERSEUS_ASSIGN_OR_RETURN(const auto reference, job::LayOutReference(job));
  PERSEUS_RETURN_IF_ERROR(WarnIfImplausible(streams, reference));
  schedule_search::TradeoffOptions options{
      .plan_effort = flags.effort, .stop = {}, .finish = {}, .progress = {}};
  if (!flags.more.empty()) {
    // The search for a row begins with the schedule of the previous row, which needs less memory.
    // So the numbers must increase.
    const std::set<int> increasing(flags.more.begin(), flags.more.end());
    options.more.assign(increasing.begin(), increasing.end());
  }
  options.memory = job.memory.bytes;
  PERSEUS_ASSIGN_OR_RETURN(const auto tradeoff, ComputeInteractively(streams, job.search_job(),
                                                                     options, flags.with_progress));
  std::string report_data;
  if (!flags.directory.empty() || !flags.figures.figures.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(report_data, MakeSearchReport(job, tradeoff, std::move(overlays)));
  }
  if (!flags.directory.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(const auto files, MakeSearchFiles(tradeoff, job.memory, report_data));
    PERSEUS_RETURN_IF_ERROR(results.Stage(files));
  }
  // If the answer cannot be printed, the results of an earlier run stay. If a figure fails, the new
  // results stay.
  PERSEUS_RETURN_IF_ERROR(streams.Print(FormatSearchAnswer(flags, job, tradeoff)));
  PERSEUS_RETURN_IF_ERROR(results.Publish());
  PERSEUS_RETURN_IF_ERROR(streams.Print(FormatSavedSearch(flags)));
  return AddFigures(flags.figures, report_data, flags.directory);
}

Verb AddScheduleSearchVerb(CLI::App& schedule) {
  auto [verb, add, flags] = AddVerb<SearchFlags>(schedule, "search", kSearchAbout, kSearchExamples);
  AddProfile(add, flags->job);
  AddJobFlags(*verb, flags->job);
  for (const char* fixed : {"--schedule", "--schedule-file", "--graph", "--max-in-flight"}) {
    verb->remove_option(verb->get_option(fixed));
  }
  add("--more", flags->more, "N[,N...]",
      "The rows: so many microbatches more than 1F1B on each pp_rank (default: 0,1,2,3,4,6,8, "
      "until more is of no use)",
      WholeNumberIn({0, 1'000'000}))
      ->delimiter(',')
      ->allow_extra_args(false);
  add("-o,--output", flags->directory, "DIR",
      "Directory for the schedules (CSV, as torch.distributed.pipelining loads them, and in "
      "words), search.json and report.html");
  AddFigureFlags(*verb, flags->figures);
  AddMaxSwitchesFlag(*verb, flags->job.changes,
                     "Clock changes of each GPU in an iteration, at most, of all plans (default: "
                     "the limit of the job file, or the rate of the hardware facts)");
  add("--effort", flags->effort, "N",
      "Effort of the plans, as in perseus plan (default: 0, a first look)",
      WholeNumberIn({plan::kFirstLook, plan::kMostEffort}));
  verb->add_flag("--progress", flags->with_progress,
                 "Print each better schedule on standard error as soon as it is found (a terminal "
                 "shows them without this flag)");
  verb->add_flag("--json", flags->as_json, "Print JSON instead of the table");
  return {verb, [flags = flags](const Streams& streams) { return RunSearch(streams, *flags); }};
}

}  // namespace

Verb AddScheduleVerb(CLI::App& program) {
  auto [verb, add, flags] =
      AddVerb<ScheduleFlags>(program, "schedule", kScheduleAbout, kScheduleExamples);
  AddJobDirectory(add, flags->directory);
  add("-o,--output", flags->output, "FILE", "The schedule file (CSV; default: standard output)");
  const Verb search = AddScheduleSearchVerb(*verb);
  return {verb, [flags = flags, search](const Streams& streams) {
            return search.flags->parsed() ? search.run(streams) : RunSchedule(streams, *flags);
          }};
}

}  // namespace perseus::cli
