// `perseus compare` runs every policy on one job.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/figure_flags.h"
#include "perseus/cli/flags/job_options.h"
#include "perseus/cli/flags/switch_flags.h"
#include "perseus/cli/terminal/row_block.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/compare_schedules.h"
#include "perseus/cli/verbs/switches.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/report/report.h"
#include "perseus/simulation/baselines/policy.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kCompareAbout =
    "Compare policies that choose the clocks of one job: AllMax, Zeus (one clock for all, or one\n"
    "for each stage), EnvPipe, Perseus as published, and Perseus. Each shows its best result with\n"
    "no slowdown, or with its least slowdown. With --straggler, one pipeline takes this much\n"
    "longer, and all others may take as long as it does. Savings then count the energy until\n"
    "the straggler has finished. Perseus plans as `perseus plan` does, with few clock changes.\n"
    "The other policies have no limit of changes: compare their ideas with --per-instruction.\n"
    "With several --schedule, compares plans of Perseus for these schedules: what each saves of\n"
    "the energy of the first schedule at maximum frequency, and the microbatches that it holds.";
constexpr const char* kCompareExamples =
    "  perseus compare profile.csv --schedule 1f1b --microbatches 96 \\\n"
    "      --blocking-power 83.64\n"
    "  perseus compare --job job.toml --straggler 10 --straggler 30 \\\n"
    "      --figure frontier.svg\n"
    "  perseus compare profile.csv --schedule 1f1b --schedule gpipe \\\n"
    "      --microbatches 12 --blocking-power 83.64 --figure frontier.svg";

// The policy to which --unit applies.
constexpr std::string_view kRounds = "PerseusPublished";

// The number of deadlines between the baseline and least energy, for the curve of Perseus's plans.
constexpr int kPlansOfFrontier = 12;

struct CompareFlags {
  job::JobSettings job;
  std::vector<std::string> schedules;
  std::vector<double> stragglers_percent;  // As the user gave them.
  // The iteration times of stragglers, divided by the iteration time of the baseline.
  std::vector<double> stragglers;
  double unit_ms = 1;
  bool is_unit_given = false;
  FigureFlags figures;
  bool as_json = false;
};

struct Outcome {
  std::string policy;
  // If the policy failed, it has no points, and the note says why.
  baselines::PolicyPoints offered;

  bool failed() const { return offered.points.empty(); }
};

// Returns the time of the baseline (no straggler), and then the times of the stragglers.
std::vector<Nanoseconds> TimesOf(const CompareFlags& flags, const plan::Planner& planner) {
  std::vector<Nanoseconds> times{planner.baseline().time};
  for (const double factor : flags.stragglers) {
    times.push_back(ToNanoseconds(ToSeconds(planner.baseline().time) * factor));
  }
  return times;
}

// Returns the times for which Perseus plans: each of `times`, and a few more for a figure. No time
// is after the slow end of the frontier, because no plan is longer.
std::vector<Nanoseconds> PlannedTimes(const std::vector<Nanoseconds>& times,
                                      const plan::Planner& planner, const plan::Frontier& frontier,
                                      bool is_drawn) {
  std::vector<Nanoseconds> planned = times;
  const Nanoseconds baseline = planner.baseline().time;
  const Nanoseconds longest = std::max(frontier.points[frontier.least_energy].time, baseline);
  for (int i = 1; is_drawn && i <= kPlansOfFrontier; ++i) {
    planned.push_back(baseline + (longest - baseline) * i / kPlansOfFrontier);
  }
  for (Nanoseconds& time : planned) {
    time = std::min(time, std::max(frontier.points.back().time, baseline));
  }
  std::ranges::sort(planned);
  planned.erase(std::unique(planned.begin(), planned.end()), planned.end());
  return planned;
}

struct Cell {
  const baselines::OperatingPoint* point;
  // The time of the straggler, or the time of the point if the latter is longer.
  Nanoseconds until;
  double energy_j;
  double saving;    // Relative to maximum frequency, until the straggler has finished.
  double slowdown;  // Relative to the time of the straggler.
};

Cell CellOf(const plan::Planner& planner, const baselines::PolicyPoints& offered,
            Nanoseconds time) {
  const baselines::OperatingPoint& point = baselines::ChooseFor(time, offered.points, planner);
  const Nanoseconds until = std::max(time, point.evaluation.time);
  const double energy_j = planner.EnergyUntil(until, point.evaluation);
  return {&point, until, energy_j, 1 - energy_j / planner.EnergyUntil(time, planner.baseline()),
          ToSeconds(until) / ToSeconds(time) - 1};
}

// Returns a slowdown in percent: "25 %" for 1.25.
std::string Longer(double factor) { return fmt::format("{:g} %", 100 * (factor - 1)); }

std::string FormatTables(const plan::Planner& planner, const std::vector<Nanoseconds>& times,
                         const std::vector<double>& stragglers,
                         const std::vector<Outcome>& outcomes) {
  Table table({"policy", "time", "energy", "saving", "slowdown", "switches"});
  Table settings({"policy", "setting"});
  for (const Outcome& outcome : outcomes) {
    if (outcome.failed()) {
      table.AddRow({outcome.policy, "failed", "", "", "", ""});
      continue;
    }
    const Cell cell = CellOf(planner, outcome.offered, times.front());
    table.AddRow({outcome.policy, FormatQuantity(ToSeconds(cell.point->evaluation.time), "s"),
                  FormatQuantity(cell.energy_j, "J"), FormatPercent(cell.saving),
                  FormatPercent(cell.slowdown),
                  FormatSwitches(SwitchesPerGpu(cell.point->evaluation))});
    settings.AddRow({outcome.policy, cell.point->setting});
  }
  std::string text = table.Format() + kSwitchesNote + "\n" + settings.Format();
  if (!stragglers.empty()) {
    std::vector<std::string> header{"saving with a straggler of"};
    for (const double factor : stragglers) header.push_back(Longer(factor));
    Table savings(std::move(header));
    for (const Outcome& outcome : outcomes) {
      std::vector<std::string> row{outcome.policy};
      for (std::size_t i = 1; i < times.size(); ++i) {
        row.push_back(outcome.failed()
                          ? ""
                          : FormatPercent(CellOf(planner, outcome.offered, times[i]).saving));
      }
      savings.AddRow(std::move(row));
    }
    text += "\n" + savings.Format();
  }
  for (const Outcome& outcome : outcomes) {
    if (!outcome.offered.note.empty()) {
      text += Wrapped(fmt::format("\n{}: {}.\n", outcome.policy, outcome.offered.note));
    }
  }
  return text;
}

std::string FormatJson(const plan::Planner& planner, const job::UsedFacts& facts,
                       const std::vector<Nanoseconds>& times, const std::vector<double>& stragglers,
                       const std::vector<Outcome>& outcomes) {
  ordered_json policies = ordered_json::array();
  for (const Outcome& outcome : outcomes) {
    ordered_json policy{{"policy", outcome.policy},
                        {"note", outcome.offered.note},
                        {"results", ordered_json::array()},
                        {"points", ordered_json::array()}};
    for (std::size_t i = 0; i < times.size() && !outcome.failed(); ++i) {
      const Cell cell = CellOf(planner, outcome.offered, times[i]);
      policy["results"].push_back({{"straggler", i == 0 ? 1.0 : stragglers[i - 1]},
                                   {"setting", cell.point->setting},
                                   {"time_s", ToSeconds(cell.point->evaluation.time)},
                                   {"until_s", ToSeconds(cell.until)},
                                   {"energy_j", cell.energy_j},
                                   {"saving", cell.saving},
                                   {"slowdown", cell.slowdown},
                                   {"switches", cell.point->evaluation.switches}});
    }
    for (const baselines::OperatingPoint& point : outcome.offered.points) {
      policy["points"].push_back({{"setting", point.setting},
                                  {"time_s", ToSeconds(point.evaluation.time)},
                                  {"energy_j", point.evaluation.energy_j}});
    }
    policies.push_back(std::move(policy));
  }
  const plan::Evaluation& baseline = planner.baseline();
  ordered_json json{{"format", "perseus-comparison"}, {"version", 1}};
  if (!facts.path.empty()) json["facts"] = facts.path;
  json["baseline"] = {{"time_s", ToSeconds(baseline.time)}, {"energy_j", baseline.energy_j}};
  json["policies"] = std::move(policies);
  return JsonText(json, 2) + "\n";
}

// Returns the target of a plan of Perseus: "Perseus, no slowdown" or "Perseus, straggler of 30 %".
std::string TargetOf(const baselines::OperatingPoint& point, const baselines::PolicyPoints& ours,
                     const plan::Planner& planner, const std::vector<Nanoseconds>& times,
                     const std::vector<double>& factors) {
  if (&baselines::ChooseFor(times.front(), ours.points, planner) == &point)
    return "Perseus, no slowdown";
  std::vector<std::string> beside;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (&baselines::ChooseFor(times[i + 1], ours.points, planner) == &point)
      beside.push_back(Longer(factors[i]));
  }
  if (beside.empty()) return point.setting;
  return fmt::format("Perseus, straggler of {}", fmt::join(beside, ", "));
}

// Makes the data of a report. The results of Perseus are plans, and the other policies are
// overlays.
Result<std::string> ReportData(const CompareFlags& flags, const job::LoadedJob& job,
                               const plan::Planner& planner, const plan::Frontier& frontier,
                               const std::vector<Outcome>& outcomes,
                               std::vector<report::FrontierCurve> overlays) {
  const std::vector<Nanoseconds> times = TimesOf(flags, planner);
  report::Report report{.planner = planner,
                        .job = job.planned,
                        .frontier = {"bound", frontier.points},
                        .plans = {},
                        .overlays = {}};
  for (const Outcome& outcome : outcomes) {
    if (&outcome == &outcomes.back()) {
      for (const baselines::OperatingPoint& point : outcome.offered.points) {
        report.plans.push_back(
            {point.setting,
             {.target = TargetOf(point, outcome.offered, planner, times, flags.stragglers),
              .deadline = point.evaluation.time,
              .options = point.options,
              .evaluation = point.evaluation,
              .lower_bound_j = frontier.BoundAt(point.evaluation.time)}});
      }
      continue;
    }
    if (outcome.failed()) continue;
    report::FrontierCurve curve{outcome.policy, {}};
    for (const baselines::OperatingPoint& point : outcome.offered.points) {
      curve.points.push_back({point.evaluation.time, point.evaluation.energy_j, 0});
    }
    report.overlays.push_back(std::move(curve));
  }
  std::ranges::move(overlays, std::back_inserter(report.overlays));
  return report::FormatReportData(report);
}

Result<std::vector<Outcome>> RunPolicies(const Streams& streams, const CompareFlags& flags,
                                         const job::LoadedJob& job, const plan::Planner& planner,
                                         const std::vector<Nanoseconds>& planned) {
  const std::vector<std::unique_ptr<baselines::Policy>> policies =
      baselines::AllPolicies(FromMilliseconds(flags.unit_ms), job.wishes());
  std::vector<Outcome> outcomes;
  RowBlock progress(streams.err);
  for (const auto& policy : policies) {
    progress.Begin(std::string(policy->name()),
                   static_cast<double>(outcomes.size()) / static_cast<double>(policies.size()));
    auto offered = policy->Points(planner, planned);
    if (!offered) {
      // If the user gave the wrong unit, the failure is an error. Otherwise, the results of the
      // other policies are still useful.
      const bool is_asked_for = flags.is_unit_given && policy->name() == kRounds;
      if (is_asked_for || policy == policies.back()) return Fail(offered);
      offered = baselines::PolicyPoints{{}, offered.error().Message()};
    }
    outcomes.push_back({std::string(policy->name()), *std::move(offered)});
  }
  return outcomes;
}

Result<void> RunScheduleComparison(const Streams& streams, const CompareFlags& flags) {
  if (!flags.stragglers.empty() || flags.is_unit_given) {
    return Fail("--straggler and --unit compare policies (give one --schedule, or remove them)");
  }
  return CompareSchedules(streams, {.job = flags.job,
                                    .schedules = flags.schedules,
                                    .figures = flags.figures,
                                    .as_json = flags.as_json});
}

Result<void> RunCompare(const Streams& streams, const CompareFlags& flags) {
  if (auto able = CheckFigures(flags.figures); !able) return able;
  PERSEUS_ASSIGN_OR_RETURN(auto overlays, LoadOverlays(flags.figures));
  PERSEUS_ASSIGN_OR_RETURN(const auto job, LoadJobToPlan(streams, flags.job));
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, plan::Planner::Create(job.graph, job.model));
  PERSEUS_ASSIGN_OR_RETURN(const auto frontier, planner.ComputeFrontier());

  const std::vector<Nanoseconds> times = TimesOf(flags, planner);
  const bool is_drawn = !flags.figures.figures.empty();
  const std::vector<Nanoseconds> planned = PlannedTimes(times, planner, frontier, is_drawn);
  PERSEUS_ASSIGN_OR_RETURN(const auto outcomes, RunPolicies(streams, flags, job, planner, planned));
  if (is_drawn) {
    PERSEUS_ASSIGN_OR_RETURN(
        const auto data, ReportData(flags, job, planner, frontier, outcomes, std::move(overlays)));
    PERSEUS_RETURN_IF_ERROR(WriteFigures(flags.figures, data));
  }
  return streams.Print(flags.as_json
                           ? FormatJson(planner, job.facts, times, flags.stragglers, outcomes)
                           : FormatTables(planner, times, flags.stragglers, outcomes) +
                                 Wrapped(job::Describe(job.facts)));
}

}  // namespace

Verb AddCompareVerb(CLI::App& program) {
  auto [verb, add, flags] =
      AddVerb<CompareFlags>(program, "compare", kCompareAbout, kCompareExamples);
  AddProfile(add, flags->job);
  AddJobFlags(*verb, flags->job);
  AddSchedulesFlag(*verb, flags->schedules);
  add.Repeatable("--straggler", flags->stragglers_percent, "PCT",
                 "Another pipeline takes this much longer, such as 25 (or 1.25x); repeatable",
                 StragglerSlowdown());
  CLI::Option* unit =
      add("--unit", flags->unit_ms, "MS", "Perseus as published rounds times to this (default: 1)",
          NumberIn({1e-3, 1e6, "milliseconds"}));
  AddLimitFlags(*verb, flags->job.changes);
  AddFigureFlags(*verb, flags->figures);
  verb->add_flag("--json", flags->as_json, "Print JSON instead of the tables");
  return {verb, [flags = flags, unit](const Streams& streams) {
            flags->is_unit_given = unit->count() > 0;
            for (const double percent : flags->stragglers_percent) {
              flags->stragglers.push_back(1 + percent / 100);
            }
            if (flags->schedules.size() > 1) return RunScheduleComparison(streams, *flags);
            if (!flags->schedules.empty()) flags->job.schedule = flags->schedules.front();
            return RunCompare(streams, *flags);
          }};
}

}  // namespace perseus::cli
