#include "perseus/cli/verbs/compare_schedules.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/job_options.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/plan_text.h"
#include "perseus/cli/verbs/switches.h"
#include "perseus/planning/job/plausibility.h"
#include "perseus/planning/recipe/recipe.h"
#include "perseus/planning/report/report.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

struct Compared {
  std::string name;
  job::LoadedJob job;
  plan::Planner planner;
  plan::Frontier frontier;
  plan::Plan plan;
  std::vector<std::int64_t> in_flight;         // [pp_rank]
  std::vector<std::int64_t> activation_bytes;  // [pp_rank] On one GPU. Empty if unknown.
};

// What every schedule is compared with: the first schedule at maximum frequency.
struct Baseline {
  Nanoseconds time;
  double energy_j;

  double Saving(double other_j) const { return 1 - other_j / energy_j; }
  double Slowdown(const Compared& one) const {
    return ToSeconds(one.plan.evaluation.time) / ToSeconds(time) - 1;
  }
  double MostSaving(const Compared& one) const {
    return Saving(std::min(one.plan.lower_bound_j, one.plan.evaluation.energy_j));
  }
};

Baseline BaselineOf(const std::vector<Compared>& all) {
  const plan::Evaluation& evaluation = all.front().planner.baseline();
  return {evaluation.time, evaluation.energy_j};
}

job::JobSettings SettingsWith(job::JobSettings settings, const std::string& schedule) {
  settings.schedule = schedule;
  if (schedule == job::kAutoSchedule) return settings;
  // These settings are for the schedule auto only.
  settings.max_in_flight.clear();
  settings.memory = {};
  settings.fold = false;
  return settings;
}

// Returns the most bytes of activations that a GPU of each pp_rank holds at a time.
Result<std::vector<std::int64_t>> ActivationBytesOf(const job::MemorySettings& given,
                                                    const job::LoadedJob& job) {
  const schedule::Schedule& schedule = job.planned.schedule;
  std::vector<std::int64_t> of_stage = job.activations;
  if (!given.activation_mib.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(of_stage,
                             job::GivenActivations(given.activation_mib, schedule.stages()));
  }
  if (of_stage.empty()) return of_stage;
  return schedule::PeakActivations(schedule, of_stage);
}

Result<void> RefuseWithoutChunks(const job::LoadedJob& job, const std::string& name) {
  if (!job::InterleavesNothing(job.planned.schedule)) return {};
  return Fail(
      "schedule {} needs several chunks on each pp_rank, but the profile has one (profile every "
      "chunk, and write the column chunk)",
      name);
}

Result<Compared> PlanSchedule(const Streams& streams, const ScheduleComparisonFlags& flags,
                              const std::string& name, Nanoseconds time) {
  const job::JobSettings settings = SettingsWith(flags.job, name);
  PERSEUS_ASSIGN_OR_RETURN(auto job, job::LoadJob(settings));
  PERSEUS_RETURN_IF_ERROR(RefuseWithoutChunks(job, name));
  PERSEUS_RETURN_IF_ERROR(WarnIfImplausible(streams, job));
  PERSEUS_ASSIGN_OR_RETURN(auto planner, plan::Planner::Create(job.graph, job.model));
  plan::Target target{.kind = plan::Target::Kind::kSlowdown};
  if (time > planner.baseline().time) {
    target = {.kind = plan::Target::Kind::kDeadline, .value = ToSeconds(time)};
  }
  recipe::Wishes wishes = job.wishes(target);
  wishes.with_frontier = true;
  PlanRows rows(streams.err, planner, RowBlock::Lines::kNo);
  auto plans = recipe::PlanJob(planner, wishes, rows);
  if (!plans) return Fail(plans, "schedule " + name);
  plan::Plan plan = plans->targets.front().plan;
  auto in_flight = schedule::PeakInFlight(job.planned.schedule);
  PERSEUS_ASSIGN_OR_RETURN(auto activation_bytes, ActivationBytesOf(flags.job.memory, job));
  return Compared{name,
                  std::move(job),
                  std::move(planner),
                  *std::move(plans->frontier),
                  std::move(plan),
                  std::move(in_flight),
                  std::move(activation_bytes)};
}

std::string FormatTable(const std::vector<Compared>& all) {
  const Baseline baseline = BaselineOf(all);
  const bool has_bytes = !all.front().activation_bytes.empty();
  std::vector<std::string> header{"schedule", "at maximum", "energy",   "saving",
                                  "at most",  "slowdown",   "in flight"};
  if (has_bytes) header.emplace_back("most");
  Table table(std::move(header));
  for (const Compared& one : all) {
    std::vector<std::string> row{one.name,
                                 FormatQuantity(ToSeconds(one.planner.baseline().time), "s"),
                                 FormatQuantity(one.plan.evaluation.energy_j, "J"),
                                 FormatPercent(baseline.Saving(one.plan.evaluation.energy_j)),
                                 FormatPercent(baseline.MostSaving(one)),
                                 FormatPercent(baseline.Slowdown(one)),
                                 schedule_search::FormatInFlight(one.in_flight)};
    if (has_bytes) row.push_back(FormatGib(std::ranges::max(one.activation_bytes)));
    table.AddRow(std::move(row));
  }
  return fmt::format(
      "{} at maximum frequency: {}, {}\n\n{}"
      "at maximum: iteration time at maximum frequency; at most: no plan saves more\n"
      "in flight: microbatches that pp_ranks 0, 1, ... hold at a time\n{}",
      all.front().name, FormatQuantity(ToSeconds(baseline.time), "s"),
      FormatQuantity(baseline.energy_j, "J"), table.Format(),
      has_bytes ? "most: activations on the GPU that holds most\n" : "");
}

std::string FormatJson(const std::vector<Compared>& all) {
  const Baseline baseline = BaselineOf(all);
  ordered_json schedules = ordered_json::array();
  for (const Compared& one : all) {
    const plan::Evaluation& evaluation = one.plan.evaluation;
    schedules.push_back({{"schedule", one.name},
                         {"in_flight", one.in_flight},
                         {"time_at_maximum_s", ToSeconds(one.planner.baseline().time)},
                         {"energy_at_maximum_j", one.planner.baseline().energy_j},
                         {"target", one.plan.target},
                         {"time_s", ToSeconds(evaluation.time)},
                         {"energy_j", evaluation.energy_j},
                         {"lower_bound_j", one.plan.lower_bound_j},
                         {"saving", baseline.Saving(evaluation.energy_j)},
                         {"slowdown", baseline.Slowdown(one)},
                         {"switches_per_gpu", SwitchesPerGpu(evaluation)}});
    if (!one.activation_bytes.empty()) schedules.back()["activation_bytes"] = one.activation_bytes;
  }
  const ordered_json json{{"format", "perseus-schedule-comparison"},
                          {"version", 1},
                          {"baseline",
                           {{"schedule", all.front().name},
                            {"time_s", ToSeconds(baseline.time)},
                            {"energy_j", baseline.energy_j}}},
                          {"schedules", std::move(schedules)}};
  return JsonText(json, 2) + "\n";
}

report::ScheduleTradeoff TradeoffOf(const std::vector<Compared>& all) {
  const Baseline baseline = BaselineOf(all);
  report::ScheduleTradeoff tradeoff{.reference = all.front().name,
                                    .unit = "microbatches",
                                    .memory_source = {},
                                    .rows = {},
                                    .timelines = {},
                                    .conclusion = {}};
  for (const Compared& one : all) {
    tradeoff.rows.push_back({.name = one.name,
                             .in_flight = one.in_flight,
                             .energy_j = one.plan.evaluation.energy_j,
                             .saving = baseline.Saving(one.plan.evaluation.energy_j),
                             .most_saving = baseline.MostSaving(one)});
    tradeoff.timelines.push_back({one.name, one.planner, one.plan});
  }
  return tradeoff;
}

// Makes the data of a report about the first schedule. The frontiers and the plans of the others
// are overlays.
Result<std::string> ReportData(const std::vector<Compared>& all,
                               std::vector<report::FrontierCurve> overlays) {
  const Compared& first = all.front();
  report::Report report{.planner = first.planner,
                        .job = first.job.planned,
                        .frontier = {first.name, first.frontier.points, first.frontier.error},
                        .plans = {{"no-slowdown", first.plan}},
                        .overlays = {}};
  for (std::size_t i = 1; i < all.size(); ++i) {
    const plan::Evaluation& planned = all[i].plan.evaluation;
    report.overlays.push_back({all[i].name, all[i].frontier.points, all[i].frontier.error});
    report.overlays.push_back({all[i].name + ", plan", {{planned.time, planned.energy_j, 0}}});
  }
  std::ranges::move(overlays, std::back_inserter(report.overlays));
  report.schedule_tradeoff = TradeoffOf(all);
  const Baseline baseline = BaselineOf(all);
  report.compared_with = report::OtherBaseline{first.name, baseline.time, baseline.energy_j};
  return report::FormatReportData(report);
}

}  // namespace

Result<void> CompareSchedules(const Streams& streams, const ScheduleComparisonFlags& flags) {
  PERSEUS_RETURN_IF_ERROR(CheckFigures(flags.figures, {.has_orders = true}));
  PERSEUS_ASSIGN_OR_RETURN(auto overlays, LoadOverlays(flags.figures));
  std::vector<Compared> all;
  for (const std::string& name : flags.schedules) {
    const Nanoseconds time = all.empty() ? 0 : all.front().planner.baseline().time;
    PERSEUS_ASSIGN_OR_RETURN(auto one, PlanSchedule(streams, flags, name, time));
    all.push_back(std::move(one));
  }
  if (!flags.figures.figures.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(const auto data, ReportData(all, std::move(overlays)));
    PERSEUS_RETURN_IF_ERROR(WriteFigures(flags.figures, data));
  }
  return streams.Print(flags.as_json
                           ? FormatJson(all)
                           : FormatTable(all) + Wrapped(job::Describe(all.front().job.facts)));
}

}  // namespace perseus::cli
