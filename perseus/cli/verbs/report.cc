// `perseus report` makes the report page and figures from plan files.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/parallel.h"
#include "perseus/cli/flags/figure_flags.h"
#include "perseus/cli/flags/job_options.h"
#include "perseus/cli/flags/noise_flags.h"
#include "perseus/cli/verbs/named_plans.h"
#include "perseus/cli/verbs/schedule_report.h"
#include "perseus/cli/verbs/summary_file.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/noise/noise_bound.h"
#include "perseus/planning/noise/noise_margin.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/report/report.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReportAbout =
    "Make the report page, or figures, from existing plans.\n"
    "SOURCE is the directory that `perseus plan -o` wrote, or plans in JSON for one job. Every\n"
    "plan is evaluated again on the profile that it names. A plan with another result is refused.";
constexpr const char* kReportExamples =
    "  perseus report out -o report.html --overlay published=reference.csv\n"
    "  perseus report out --figure frontier.svg --figure timeline.svg\n"
    "  perseus report out/plans/slowdown-5.json --profile profile.csv \\\n"
    "      --figure timeline.svg";

struct ReportFlags {
  std::vector<std::string> sources;
  std::string profile;
  std::string frontier;
  std::string show;
  std::string output;
  FigureFlags figures;
  NoiseFlags noise;
};

// Loads the job of the first plan, with the profile of --profile. Without this flag, uses the
// profile that the plan names.
Result<job::LoadedJob> LoadJobOf(const NamedPlan& plan, const ReportFlags& flags) {
  job::JobSettings job;
  (plan.file.job.IsGeneralGraph() ? job.graph : job.profile) = flags.profile;
  plan_file::PlanFile found = plan.file;
  found.job.profile = ProfileOfPlan(plan.file, plan.path);
  std::error_code error;
  if (flags.profile.empty() && !fs::exists(found.job.profile, error)) {
    return Fail(InFile(plan.path), "its {} {} does not exist (give its path with --profile)",
                plan.file.job.IsGeneralGraph() ? "graph" : "profile", plan.file.job.profile);
  }
  return job::LoadPlannedJob(found, plan.path, job);
}

// Evaluates the plan on the profile. The result must equal the numbers in the file, because the
// page must not contradict its files.
Result<plan::Plan> Evaluate(const NamedPlan& plan, const plan::Planner& planner,
                            const job::LoadedJob& job) {
  PERSEUS_ASSIGN_OR_RETURN(auto options,
                           plan_file::FindOptions(plan.file, planner.graph(), plan.path));
  plan::Plan evaluated{.target = plan.file.target,
                       .deadline = plan.file.deadline,
                       .options = std::move(options),
                       .evaluation = {},
                       .lower_bound_j = plan.file.lower_bound_j};
  evaluated.evaluation =
      plan::Evaluator(planner.graph(), planner.model()).Evaluate(evaluated.options);
  const plan::Evaluation& evaluation = evaluated.evaluation;
  if (evaluation.time != plan.file.time || evaluation.energy_j != plan.file.energy_j ||
      planner.baseline().time != plan.file.baseline_time ||
      planner.baseline().energy_j != plan.file.baseline_energy_j) {
    return Fail(
        InFile(plan.path),
        "has {} s and {} J, but with {} it takes {} s and {} J, or its baseline differs (give "
        "plans of one job, and the profile that they were made with)",
        ToSeconds(plan.file.time), plan.file.energy_j, job.planned.profile,
        ToSeconds(evaluation.time), evaluation.energy_j);
  }
  // The tolerance is for the rounding of sums.
  if (plan.file.lower_bound_j > evaluation.energy_j * (1 + 1e-9) ||
      evaluation.time > plan.file.deadline) {
    return Fail(
        InFile(plan.path),
        "its lower bound of {} J is above its energy, or its deadline of {} s is before its "
        "end (the file was probably edited: plan again)",
        plan.file.lower_bound_j, ToSeconds(plan.file.deadline));
  }
  return evaluated;
}

// Checks that the frontier belongs to the plans: at the deadline of each plan, the frontier must
// have the lower bound of the relaxation. Most plans have this lower bound. A plan may have a
// greater lower bound.
Result<void> CheckSameJob(const report::Report& report, const std::string& path) {
  const report::FrontierCurve& frontier = report.frontier;
  plan::Frontier curve{.points = frontier.points, .least_energy = 0};
  const auto least = std::ranges::min_element(curve.points, {}, &plan::FrontierPoint::bound_j);
  curve.least_energy = static_cast<std::size_t>(least - curve.points.begin());
  for (const report::ReportedPlan& plan : report.plans) {
    const double bound_j = curve.BoundAt(plan.plan.deadline);
    // Files have breakpoints in whole nanoseconds, so the bounds differ slightly.
    const auto differs = [&](double other_j) {
      return std::abs(bound_j / other_j - 1) > 1e-6 + frontier.error;
    };
    if (!differs(plan.plan.lower_bound_j)) continue;
    PERSEUS_ASSIGN_OR_RETURN(const double relaxed_j, report.planner.BoundFor(plan.plan.deadline));
    if (!differs(relaxed_j)) continue;
    return Fail(
        InFile(path),
        "is not the frontier of these plans: it has {} J at {} s, but the bound for the plan "
        "{} is {} J (give the frontier.csv of the same run, or use --overlay for other frontiers)",
        bound_j, ToSeconds(plan.plan.deadline), plan.name, relaxed_j);
  }
  return {};
}

// Returns the path of the frontier: the path of --frontier, or without this flag the file in the
// directory of the run. Empty if neither exists.
std::string FrontierPath(const ReportFlags& flags) {
  if (!flags.frontier.empty()) return flags.frontier;
  std::error_code error;
  const fs::path beside = fs::path(flags.sources.front()) / "frontier.csv";
  return fs::exists(beside, error) ? beside.string() : "";
}

Result<std::string> MakeData(const ReportFlags& flags, const Summary& summary,
                             std::optional<report::SwitchTradeoff> tradeoff) {
  PERSEUS_ASSIGN_OR_RETURN(const auto plans, ReadPlans(flags.sources));
  PERSEUS_ASSIGN_OR_RETURN(auto job, LoadJobOf(plans.front(), flags));
  PERSEUS_ASSIGN_OR_RETURN(job.auto_schedule, summary.Search(job));
  PERSEUS_RETURN_IF_ERROR(CheckFigures(
      flags.figures,
      {.has_switches = tradeoff.has_value(), .has_schedules = job.auto_schedule.has_value()}));
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, plan::Planner::Create(job.graph, job.model));

  report::Report report{.planner = planner,
                        .job = job.planned,
                        .noise = {},
                        .frontier = {},
                        .plans = {},
                        .overlays = {}};
  PERSEUS_ASSIGN_OR_RETURN(report.stopped_early, summary.StoppedEarly());
  report.noise = NoiseOf(flags.noise, job.noise);
  std::vector<std::string> names;
  for (const NamedPlan& plan : plans) {
    PERSEUS_ASSIGN_OR_RETURN(auto evaluated, Evaluate(plan, planner, job));
    names.push_back(fs::path(plan.path).stem().string());
    report.plans.push_back({names.back(), std::move(evaluated)});
  }
  if (report.noise) {
    std::vector<noise::NoisyDifference> differences(report.plans.size());
    ForEachOnAllCores(differences.size(), [&](std::size_t i) {
      differences[i] =
          noise::CompareWithBaseline(planner, report.plans[i].plan.options, *report.noise);
    });
    std::vector<double> slowdowns;
    for (const noise::NoisyDifference& one : differences) slowdowns.push_back(one.slowdown);
    PERSEUS_ASSIGN_OR_RETURN(const auto most_changes, summary.MostSwitches());
    const noise::NoiseBound bound =
        noise::ComputeNoiseBound(planner, *report.noise, slowdowns, {.most_changes = most_changes});
    for (std::size_t i = 0; i < differences.size(); ++i) {
      report.plans[i].under_noise = {differences[i], bound.MostSaving(differences[i].slowdown)};
    }
  }
  const std::string shown = flags.show.empty() ? "no-slowdown" : flags.show;
  const auto place = std::ranges::find(names, shown);
  if (place == names.end() && !flags.show.empty()) {
    return Fail("--show {}: no plan has this name (use one of {})", flags.show,
                fmt::join(names, ", "));
  }
  if (place != names.end()) report.chosen = static_cast<std::size_t>(place - names.begin());

  if (const std::string path = FrontierPath(flags); !path.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(path));
    PERSEUS_ASSIGN_OR_RETURN(report.frontier, report::ParseFrontier(text, path));
    PERSEUS_RETURN_IF_ERROR(CheckSameJob(report, path));
    report.frontier.name = "bound";
  }
  PERSEUS_ASSIGN_OR_RETURN(report.overlays, LoadOverlays(flags.figures));
  report.switch_tradeoff = std::move(tradeoff);
  if (job.auto_schedule) {
    PERSEUS_ASSIGN_OR_RETURN(const auto schedules,
                             job::CompareWithReference(SearchJobOf(job), *job.auto_schedule));
    PERSEUS_ASSIGN_OR_RETURN(
        report.schedule_tradeoff,
        ReportedSchedules(SearchJobOf(job), schedules, job.auto_schedule->memory.source));
  }
  return report::FormatReportData(report);
}

bool IsHtmlPage(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  constexpr std::string_view kBegin = "<!doctype html";
  if (first == text.npos) return true;  // The file has no text, so nothing is lost.
  const std::string_view begin = text.substr(first, kBegin.size());
  return std::ranges::equal(begin, kBegin, {}, [](unsigned char c) { return std::tolower(c); });
}

// Fails if the output would replace a file that is not a report page. A wrong name after -o must
// not destroy measurements or plans. The check also protects files that only the plans name, and
// files beside the plans.
Result<void> CheckReplacesOnlyPage(const std::string& output) {
  std::error_code none;  // The ignored error of a file that does not exist.
  if (output.empty() || !fs::is_regular_file(output, none)) return {};
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(output));
  if (IsHtmlPage(text)) return {};
  return Fail(InFile(output),
              "exists and is not an HTML page, and is not overwritten (write into another file, or "
              "remove it)");
}

// Fails if a file to write is also a file to read. Also fails if a file to write exists and is not
// a report page.
Result<void> CheckOutputs(const ReportFlags& flags) {
  std::vector<std::string> inputs = flags.sources;
  inputs.insert(inputs.end(), {flags.profile, flags.frontier});
  for (const OverlayFlag& overlay : OverlaysOf(flags.figures)) inputs.push_back(overlay.path);
  for (const FigureFlag& figure : FiguresOf(flags.figures)) {
    PERSEUS_RETURN_IF_ERROR(CheckReplacesNoInput(figure.path, inputs));
  }
  PERSEUS_RETURN_IF_ERROR(CheckReplacesNoInput(flags.output, inputs));
  return CheckReplacesOnlyPage(flags.output);
}

Result<void> RunReport(const Streams& streams, const ReportFlags& flags) {
  PERSEUS_RETURN_IF_ERROR(CheckNoise(flags.noise));
  if (flags.output.empty() && flags.figures.figures.empty()) {
    return Fail("the output is missing (add -o report.html, or --figure frontier.svg)");
  }
  PERSEUS_RETURN_IF_ERROR(CheckOutputs(flags));
  PERSEUS_ASSIGN_OR_RETURN(const auto summary, Summary::Read(flags.sources.front()));
  PERSEUS_ASSIGN_OR_RETURN(auto tradeoff, summary.Tradeoff());
  // The plans are not read yet, so it is unknown whether the schedule was searched for.
  PERSEUS_RETURN_IF_ERROR(
      CheckFigures(flags.figures, {.has_switches = tradeoff.has_value(), .has_schedules = true}));
  PERSEUS_ASSIGN_OR_RETURN(const auto data, MakeData(flags, summary, std::move(tradeoff)));
  std::optional<std::string> page;
  if (!flags.output.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(page, report::FormatReportPage(data));
  }
  PERSEUS_RETURN_IF_ERROR(WriteFigures(flags.figures, data));
  if (page) PERSEUS_RETURN_IF_ERROR(WriteFileAtomically(flags.output, *page));
  std::string answer;
  for (const FigureFlag& figure : FiguresOf(flags.figures)) {
    answer += fmt::format("wrote {}\n", figure.path);
  }
  if (page) answer += fmt::format("wrote {}\n", flags.output);
  return streams.Print(answer);
}

}  // namespace

Verb AddReportVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<ReportFlags>(program, "report", kReportAbout, kReportExamples);
  add("source", flags->sources, "DIR|PLAN...", "A directory of perseus plan -o, or plans (JSON)",
      ExistingPath())
      ->required();
  add("--profile", flags->profile, "FILE",
      "The profile (or graph) of the plans (default: the one that they name)", InputFile());
  add("--frontier", flags->frontier, "FILE",
      "The frontier.csv of the job (default: the one in DIR)", InputFile());
  add("--show", flags->show, "NAME", "The plan that is shown first (default: no-slowdown)");
  add("-o,--output", flags->output, "FILE", "The page (HTML)");
  AddFigureFlags(*verb, flags->figures);
  AddNoiseFlags(*verb, flags->noise, "Also show the mean time and energy under noise");
  return {verb, [flags = flags](const Streams& streams) { return RunReport(streams, *flags); }};
}

}  // namespace perseus::cli
