// `perseus plan` computes the frontier and plans from a profile.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "perseus/base/wording.h"
#include "perseus/cli/flags/figure_flags.h"
#include "perseus/cli/flags/job_options.h"
#include "perseus/cli/flags/noise_flags.h"
#include "perseus/cli/flags/switch_flags.h"
#include "perseus/cli/flags/target_flags.h"
#include "perseus/cli/terminal/signals.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/plan_report.h"
#include "perseus/cli/verbs/plan_text.h"
#include "perseus/cli/verbs/results.h"
#include "perseus/cli/verbs/schedule_report.h"
#include "perseus/cli/verbs/terminal_plot.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/recipe/recipe.h"
#include "perseus/planning/report/report.h"
#include "perseus/planning/schedule_search/tradeoff.h"

namespace perseus::cli {
namespace {

constexpr const char* kPlanAbout =
    "Plan the clock of every instruction of a training iteration.\n"
    "Prints the time and the energy of an iteration of one pipeline: at maximum frequency, with\n"
    "no slowdown, with several slowdowns, and at least energy. Every plan meets its target to the\n"
    "nanosecond. `gap` says how far a plan may be from the best possible plan. First plans come\n"
    "soon, and then get better. Ctrl-C ends that: the best plans so far are written as usual,\n"
    "without a limit of clock changes if none was picked yet.";
constexpr const char* kPlanExamples =
    "  perseus plan profile.csv --schedule 1f1b --pp-ranks 8 --microbatches 96 \\\n"
    "      --blocking-power 83.64 --gpus-per-stage 8 -o out\n"
    "  perseus plan --job job.toml --slowdown 5 --power-cap 21000 --price 0.12 2 \\\n"
    "      -o out\n"
    "\n"
    "DIR then contains report.html (open it in a browser), frontier.csv,\n"
    "plans/*.json, trace.json (for ui.perfetto.dev) and summary.json; with\n"
    "--schedule auto also schedule.csv, which torch.distributed.pipelining loads.\n"
    "They replace the files of an earlier run when all of them are written.";

struct PlanFlags {
  job::JobSettings job;
  TargetFlags targets;
  std::string directory;
  std::optional<int> stops;
  bool without_frontier = false;
  bool with_exact_frontier = false;
  FigureFlags figures;
  bool as_json = false;
  bool with_plot = false;
  NoiseFlags noise;
  int effort = plan::kUsualEffort;
  bool with_progress = false;
};

// Whether the input is the schedule of an earlier run in the same directory. The new run replaces
// the files of the earlier run.
bool ReadsScheduleOfDirectory(const PlanFlags& flags) {
  const std::filesystem::path read(flags.job.schedule_file);
  return !read.empty() &&
         read.lexically_normal() ==
             (std::filesystem::path(flags.directory) / kScheduleCsv).lexically_normal();
}

Result<void> CheckWithoutFrontier(const std::vector<plan::Target>& asked) {
  for (const plan::Target& target : asked) {
    if (plan::NeedsFrontier(target.kind)) {
      return Fail("{} needs the frontier (leave out --no-frontier)", Describe(target));
    }
  }
  return {};
}

// Checks the flags, without reading any file.
Result<void> CheckFlags(const PlanFlags& flags) {
  if (flags.stops.value_or(0) > 0 && flags.directory.empty()) {
    return Fail("--stops needs a directory for the report (add -o DIR)");
  }
  if (flags.with_plot && flags.as_json) {
    return Fail("--plot and --json exclude each other (remove one of them)");
  }
  return CheckNoise(flags.noise);
}

// Returns the number of stops, the additional plans for the slider of the report. It is 0 without a
// report.
int StopsOf(const PlanFlags& flags, const schedule::InstructionGraph& graph) {
  return flags.directory.empty() ? 0 : flags.stops.value_or(recipe::DefaultStops(graph));
}

RowBlock::Lines LinesOf(const PlanFlags& flags) {
  return flags.with_progress ? RowBlock::Lines::kYes : RowBlock::Lines::kNo;
}

// Loads the job. During a search for its schedule, shows the best schedule so far.
Result<job::LoadedJob> LoadShowingSearch(const Streams& streams, const PlanFlags& flags,
                                         const std::stop_token& finish) {
  RowBlock rows(streams.err, "schedules", LinesOf(flags));
  rows.Begin("schedule auto");
  schedule_search::SearchEffort search;
  search.finish = finish;
  search.progress = [&](const schedule_search::Candidate& best, double completed) {
    rows.Show("", fmt::format("schedule auto: at least {} J, in flight {}",
                              FormatQuantity(best.relaxed_energy_j),
                              schedule_search::FormatInFlight(best.in_flight)));
    rows.Update(completed);
  };
  return LoadJobToPlan(streams, flags.job, search);
}

// Formats the text that the verb prints first. `files` is the number of files that the run writes.
std::string FormatAnswer(const Streams& streams, const PlanFlags& flags, const PlanOutcome& outcome,
                         const std::string& summary, std::size_t files) {
  if (flags.as_json) return summary;
  std::string text =
      fmt::format("{}\n{}", FormatPlanTable(outcome),
                  Wrapped(FormatFinding(outcome) + job::Describe(outcome.job.facts)));
  if (outcome.schedules) {
    text += Wrapped(job::Describe(*outcome.job.auto_schedule) +
                    schedule_search::Conclude(*outcome.schedules));
    const bool has_limit =
        outcome.job.auto_schedule->changes.IsNone() && outcome.job.changes.picks();
    if (has_limit) {
      text += Wrapped(fmt::format(
          "This compares first looks without a limit of clock changes: {} saves {}, and "
          "schedule auto saves {}.\n",
          outcome.schedules->reference.schedule.name,
          FormatPercent(outcome.schedules->fixed.saving),
          FormatPercent(outcome.schedules->rows.front().saving)));
    }
  }
  text += Wrapped(DescribeChangeRate(outcome.job.facts, outcome.targets));
  if (outcome.switch_tradeoff && outcome.job.changes.shows_tradeoff()) {
    text += Wrapped(fmt::format("\nLimits of clock changes per GPU and iteration, for {}{}:\n",
                                outcome.switch_tradeoff->unlimited.target,
                                outcome.noise ? ", without a margin for noise" : "")) +
            FormatSwitchTradeoff(outcome.planner, *outcome.switch_tradeoff);
  }
  if (outcome.job.changes.picks())
    text += Wrapped(FormatPickedLimit(outcome.limit, *outcome.switch_tradeoff,
                                      outcome.job.facts.most_changes_per_s));
  if (outcome.noise) text += FormatNoise(*outcome.noise, outcome.targets);
  if (files == 0) text += "No plan was saved (-o DIR saves the plans and a report).\n";
  if (flags.with_plot) text += '\n' + DrawOutcome(outcome, DetectTerminal(streams));
  if (outcome.was_interrupted) text += "Stopped early: a whole run may find better plans.\n";
  return text;
}

// Formats the text that the verb prints when the files are in their places.
std::string FormatSaved(const PlanFlags& flags, std::size_t files,
                        const std::vector<std::string>& left_plans) {
  if (flags.as_json || files == 0) return "";
  std::string text = fmt::format("{} files are in {}{}\n", files, flags.directory,
                                 report::HasReportPage() ? " (open report.html there)" : "");
  if (!left_plans.empty()) {
    text += Wrapped(fmt::format(
        "{} of an earlier run: {} (not removed, because a training may follow it; remove what no "
        "training follows)\n",
        Counted(std::ssize(left_plans), "plan"), fmt::join(left_plans, ", ")));
  }
  if (!report::HasReportPage()) {
    text += Wrapped(
        "report.html is missing: this build has no report page (install nodejs and npm, and build "
        "again)\n");
  }
  return text;
}

Result<void> RunPlan(const Streams& streams, PlanFlags flags) {
  PERSEUS_RETURN_IF_ERROR(CheckFlags(flags));
  // Whether a limit is picked by default depends on the job, which is not loaded yet. Whether the
  // schedule is searched for also depends on the job.
  PERSEUS_RETURN_IF_ERROR(CheckFigures(
      flags.figures, {.has_switches = flags.job.changes.has_tradeoff(), .has_schedules = true}));
  PERSEUS_ASSIGN_OR_RETURN(auto overlays, LoadOverlays(flags.figures));
  // If the results cannot be written, this fails before anything is computed.
  ResultDirectory results(flags.directory, kPlanResults);
  if (!flags.directory.empty()) PERSEUS_RETURN_IF_ERROR(results.Open());
  std::optional<FinishOnInterrupt> interrupt(std::in_place, streams.err);
  const std::stop_token finish = interrupt->token();
  PERSEUS_ASSIGN_OR_RETURN(auto job, LoadShowingSearch(streams, flags, finish));
  const std::optional<double> allowed_per_s = job.facts.most_changes_per_s;
  recipe::Wishes wishes = job.wishes();
  if (AsksForTarget(flags.targets)) wishes.targets = AskedTargets(flags.targets, job.gpus());
  const std::vector<plan::Target>& asked = wishes.targets;
  if (flags.without_frontier) PERSEUS_RETURN_IF_ERROR(CheckWithoutFrontier(asked));
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, plan::Planner::Create(job.graph, job.model));
  WarnOfLikelyUnits(streams, asked, &planner.baseline());
  PERSEUS_RETURN_IF_ERROR(
      CheckFigures(flags.figures, {.has_switches = job.changes.has_tradeoff(),
                                   .has_schedules = job.auto_schedule.has_value()}));
  wishes.effort = flags.effort;
  wishes.noise = NoiseOf(flags.noise, job.noise);
  if (flags.with_exact_frontier) wishes.precision = plan::FrontierPrecision::kExact;
  wishes.with_table = !flags.without_frontier;
  wishes.stops = StopsOf(flags, job.graph);
  PERSEUS_ASSIGN_OR_RETURN(auto plans, [&] {
    PlanRows rows(streams.err, planner, LinesOf(flags));
    return recipe::PlanJob(planner, wishes, rows, finish);
  }());
  // If the rules replace the rate of clock changes, the results do not show the rate of the facts.
  if (!job.changes.changes_per_s) job.facts.most_changes_per_s.reset();
  PlanOutcome outcome{std::move(plans), job, planner};
  interrupt.reset();
  if (job.auto_schedule) {
    PERSEUS_ASSIGN_OR_RETURN(outcome.schedules,
                             job::CompareWithReference(SearchJobOf(job), *job.auto_schedule));
  }
  if (allowed_per_s) WarnAboveRate(streams, outcome.targets, *allowed_per_s, job.facts.path);
  const std::string first_asked = plan::Slug(asked.front());
  std::string report_data;
  if (!flags.directory.empty() || !flags.figures.figures.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(report_data,
                             MakePlanReportData(outcome, std::move(overlays), first_asked));
  }
  std::vector<ResultFile> files;
  if (!flags.directory.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(files, MakePlanFiles(outcome, first_asked, report_data,
                                                  {.schedule = ReadsScheduleOfDirectory(flags)}));
  }
  std::vector<std::string> names;
  for (const ResultFile& file : files) names.push_back(file.name);
  const std::vector<std::string> left_plans = results.LeftPlans(names);
  const std::string summary = FormatSummary(outcome, flags.directory, names, left_plans);
  if (!flags.directory.empty()) {
    files.push_back({std::string(kPlanResults.summary), summary});
    PERSEUS_RETURN_IF_ERROR(results.Stage(files));
  }
  // If the answer cannot be printed, the results of an earlier run stay. A figure can be made again
  // from the results, so the results do not depend on figures.
  PERSEUS_RETURN_IF_ERROR(
      streams.Print(FormatAnswer(streams, flags, outcome, summary, files.size())));
  PERSEUS_RETURN_IF_ERROR(results.Publish());
  PERSEUS_RETURN_IF_ERROR(streams.Print(FormatSaved(flags, files.size(), left_plans)));
  return AddFigures(flags.figures, report_data, flags.directory);
}

}  // namespace

Verb AddPlanVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<PlanFlags>(program, "plan", kPlanAbout, kPlanExamples);
  AddProfile(add, flags->job);
  AddJobFlags(*verb, flags->job);
  AddTargetFlags(*verb, flags->targets, Targets::kMany);
  add("-o,--output", flags->directory, "DIR", "Directory for the results");
  add("--stops", flags->stops, "N",
      "Number of further plans for the slider of the report, at even distances along the frontier "
      "(default: up to 10, fewer for large jobs)",
      WholeNumberIn({0, 1000}));
  AddSwitchFlags(*verb, flags->job.changes);
  AddNoiseFlags(*verb, flags->noise, "Keep the mean time under noise");
  AddFigureFlags(*verb, flags->figures);
  verb->add_flag(
      "--no-frontier", flags->without_frontier,
      "Skip the frontier, which is faster for very large jobs: plan only no slowdown and "
      "the targets of --slowdown, --deadline and --min-energy");
  verb->add_flag("--exact-frontier", flags->with_exact_frontier,
                 "Compute every breakpoint, even if it takes minutes (default: for very large "
                 "jobs, bounds of the frontier that differ by at most 0.01 %)")
      ->excludes("--no-frontier");
  add("--effort", flags->effort, "N",
      "How much work to spend on better plans: 0 is a first look, 2 is twice the default work. The "
      "same effort gives the same plans everywhere (default: 1)",
      WholeNumberIn({plan::kFirstLook, plan::kMostEffort}));
  verb->add_flag("--progress", flags->with_progress,
                 "Print each plan on standard error as soon as it is found, and when it gets "
                 "better (a terminal shows them without this flag)");
  verb->add_flag("--json", flags->as_json, "Print JSON instead of the table");
  verb->add_flag("--plot", flags->with_plot, "Also draw the frontier, as wide as the terminal");
  return {verb, [flags = flags](const Streams& streams) { return RunPlan(streams, *flags); }};
}

}  // namespace perseus::cli
