#include "perseus/cli/verbs/plan_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/plan_text.h"
#include "perseus/cli/verbs/schedule_report.h"
#include "perseus/cli/verbs/summary_file.h"
#include "perseus/cli/verbs/switches.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/plan/make_plan_file.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/report/trace.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;
using recipe::NoiseOutcome;
using recipe::PlannedTarget;
using recipe::SwitchTradeoff;

constexpr double kJoulesPerKilojoule = 1e3;

double SavingOf(const plan::Planner& planner, double energy_j) {
  return 1 - energy_j / planner.baseline().energy_j;
}

std::string FormatJoules(double energy_j) {
  return energy_j >= kJoulesPerKilojoule ? fmt::format("{:.1f} kJ", energy_j / kJoulesPerKilojoule)
                                         : fmt::format("{:.1f} J", energy_j);
}

ordered_json DescribePlan(const plan::Planner& planner, const PlannedTarget& planned) {
  const plan::Evaluation& evaluation = planned.plan.evaluation;
  ordered_json plan{{"target", planned.plan.target},
                    {"name", planned.slug},
                    {"deadline_s", ToSeconds(planned.plan.deadline)},
                    {"time_s", ToSeconds(evaluation.time)},
                    {"energy_j", evaluation.energy_j},
                    {"saving", SavingOf(planner, evaluation.energy_j)},
                    {"average_power_w", evaluation.average_power_w()},
                    {"switches", evaluation.switches},
                    {"switches_per_gpu", SwitchesPerGpu(evaluation)},
                    {"switches_per_gpu_s", SwitchesPerGpuAndSecond(evaluation)},
                    {"lower_bound_j", planned.plan.lower_bound_j},
                    {"gap", planned.plan.gap()}};
  if (planned.most_switches) plan["max_switches"] = *planned.most_switches;
  return plan;
}

// Returns a value for each limit of clock changes. The value is null if no plan was found.
ordered_json DescribeTradeoff(const plan::Planner& planner, const SwitchTradeoff& tradeoff) {
  ordered_json rows = ordered_json::array();
  for (const few_switches::BudgetPlan& limited : tradeoff.limited) {
    ordered_json row{{"max_switches", limited.most_changes},
                     {"lower_bound_j", limited.lower_bound_j},
                     {"energy_j", nullptr}};
    if (limited.plan) {
      row["energy_j"] = limited.plan->evaluation.energy_j;
      row["time_s"] = ToSeconds(limited.plan->evaluation.time);
      row["saving"] = SavingOf(planner, limited.plan->evaluation.energy_j);
      row["gap"] = limited.plan->gap();
      row["switches_of_pp_ranks"] = limited.changes;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

ordered_json DescribeNoise(const NoiseOutcome& noise, const std::vector<PlannedTarget>& planned) {
  const auto describe = [](const noise::NoisyDifference& difference) {
    return ordered_json{{"slowdown", difference.slowdown},
                        {"slowdown_ci", difference.slowdown_ci},
                        {"saving", difference.saving},
                        {"saving_ci", difference.saving_ci}};
  };
  ordered_json plans = ordered_json::array();
  for (std::size_t i = 0; i < planned.size(); ++i) {
    ordered_json plan{{"name", planned[i].slug}};
    plan.update(describe(noise.with_margin[i]));
    plan["most_saving"] = noise.most_savings[i];
    plan["without_margin"] = describe(noise.without_margin[i]);
    plans.push_back(std::move(plan));
  }
  return {{"independent", noise.noise.independent},
          {"common", noise.noise.common},
          {"plans", std::move(plans)}};
}

// Returns the line above a table whose plans have this limit.
std::string FormatLimit(const std::optional<int>& limit) {
  return limit ? fmt::format("at most {} per GPU and iteration:\n\n", Counted(*limit, "switch"))
               : "";
}

// Returns the target. Another limit than that of the table follows the target.
std::string RowName(const PlannedTarget& planned, const std::optional<int>& limit) {
  return planned.most_switches == limit ? plan::Describe(planned.target) : planned.plan.target;
}

// Formats the trace, which shows the baseline and the plan with the slug `first_asked`.
std::string FormatPlanTrace(const PlanOutcome& outcome, std::string_view first_asked) {
  const auto shown = std::find_if(outcome.targets.begin(), outcome.targets.end(),
                                  [&](const PlannedTarget& t) { return t.slug == first_asked; });
  const plan::Planner& planner = outcome.planner;
  const report::Timeline timelines[] = {
      {"maximum frequency", schedule::BaselineOptions(planner.graph()), planner.baseline()},
      {shown->plan.target, shown->plan.options, shown->plan.evaluation}};
  return report::FormatTrace(planner.graph(), planner.model().blocking_power_w, timelines);
}

}  // namespace

std::string FormatPlanTable(const PlanOutcome& outcome) {
  Table table({"plan", "time", "energy", "saving", "power", "switches", "gap"});
  const plan::Evaluation& baseline = outcome.planner.baseline();
  table.AddRow({"maximum frequency", FormatQuantity(ToSeconds(baseline.time), "s"),
                FormatQuantity(baseline.energy_j, "J"), "",
                FormatQuantity(baseline.average_power_w(), "W"),
                FormatSwitches(SwitchesPerGpu(baseline)), ""});
  const std::optional<int> limit = outcome.targets.front().most_switches;
  double most_per_s = 0;
  for (const PlannedTarget& planned : outcome.targets) {
    if (planned.is_stop()) continue;
    const plan::Evaluation& evaluation = planned.plan.evaluation;
    table.AddRow({RowName(planned, limit), FormatQuantity(ToSeconds(evaluation.time), "s"),
                  FormatQuantity(evaluation.energy_j, "J"),
                  FormatPercent(SavingOf(outcome.planner, evaluation.energy_j)),
                  FormatQuantity(evaluation.average_power_w(), "W"),
                  FormatSwitches(SwitchesPerGpu(evaluation)),
                  fmt::format("{:.3f} %", planned.plan.gap() * 100)});
    most_per_s =
        std::max(most_per_s, few_switches::MostSwitches(evaluation) / ToSeconds(evaluation.time));
  }
  return fmt::format("{}{}{}The busiest GPU switches up to {:.1f} times a second.\n",
                     FormatLimit(limit), table.Format(), kSwitchesNote, most_per_s);
}

std::string FormatFinding(const PlanOutcome& outcome) {
  const PlannedTarget& first = outcome.targets.front();
  const plan::Plan& plan = first.plan;
  const std::optional<int>& most_switches = first.most_switches;
  const double saved_j = outcome.planner.baseline().energy_j - plan.evaluation.energy_j;
  const int pipelines = outcome.job.planned.pipelines;
  const std::string all =
      pipelines == 1
          ? ""
          : fmt::format(" ({} over {} pipelines)", FormatJoules(saved_j * pipelines), pipelines);
  return fmt::format(
      "The plan with {} saves {} per iteration{}: {} of the energy at maximum frequency.\n"
      "No plan for this profile that is as fast{} can save more than {}{}.\n",
      plan::Describe(first.target), FormatJoules(saved_j), all,
      FormatPercent(SavingOf(outcome.planner, plan.evaluation.energy_j)),
      most_switches ? fmt::format(" and has at most {} per GPU", Counted(*most_switches, "switch"))
                    : "",
      FormatPercent(
          SavingOf(outcome.planner, std::min(plan.lower_bound_j, plan.evaluation.energy_j))),
      outcome.noise ? " without noise" : "");
}

std::string FormatSummary(const PlanOutcome& outcome, const std::string& directory,
                          const std::vector<std::string>& files,
                          const std::vector<std::string>& earlier_plans) {
  const job::LoadedJob& job = outcome.job;
  const plan::Evaluation& baseline = outcome.planner.baseline();
  ordered_json summary{{"format", "perseus-summary"}, {"version", 1}};
  summary["job"] = {{job.planned.IsGeneralGraph() ? "graph" : "profile", job.planned.profile},
                    {"schedule", job.graph.name},
                    {"instructions", job.graph.instructions.size()},
                    {"pipelines", job.planned.pipelines},
                    {"gpus_per_pipeline", job.gpus()}};
  if (!job.facts.path.empty()) summary["job"]["facts"] = job.facts.path;
  std::error_code error;
  if (!directory.empty() && std::filesystem::path(job.planned.profile).is_relative()) {
    summary["job"]["working_directory"] =
        std::filesystem::relative(std::filesystem::current_path(error), directory, error).string();
  }
  summary["baseline"] = {{"time_s", ToSeconds(baseline.time)},
                         {"energy_j", baseline.energy_j},
                         {"average_power_w", baseline.average_power_w()}};
  if (outcome.frontier) {
    const plan::FrontierPoint& least = outcome.frontier->points[outcome.frontier->least_energy];
    summary["frontier"] = {{"breakpoints", outcome.frontier->points.size()},
                           {"error", outcome.frontier->error},
                           {"least_time_s", ToSeconds(outcome.frontier->least_time())},
                           {"least_energy_time_s", ToSeconds(least.time)},
                           {"least_energy_bound_j", least.bound_j}};
  }
  summary["plans"] = ordered_json::array();
  for (const PlannedTarget& planned : outcome.targets) {
    summary["plans"].push_back(DescribePlan(outcome.planner, planned));
  }
  if (outcome.limit.most_switches) summary["max_switches"] = *outcome.limit.most_switches;
  if (outcome.was_interrupted) summary["stopped_early"] = true;
  if (outcome.switch_tradeoff) {
    const plan::Plan& unlimited = outcome.switch_tradeoff->unlimited;
    summary["switch_tradeoff"] = DescribeTradeoff(outcome.planner, *outcome.switch_tradeoff);
    summary["unlimited_plan"] = {
        {"target", unlimited.target},
        {"energy_j", unlimited.evaluation.energy_j},
        {"saving", SavingOf(outcome.planner, unlimited.evaluation.energy_j)}};
  }
  if (outcome.schedules) {
    summary["schedule_search"] = DescribeSearch(*job.auto_schedule, *outcome.schedules);
  }
  if (outcome.noise) summary["noise"] = DescribeNoise(*outcome.noise, outcome.targets);
  summary["files"] = files;
  if (!earlier_plans.empty()) summary["earlier_plans"] = earlier_plans;
  return JsonText(summary, 2) + '\n';
}

Result<std::string> MakePlanReportData(const PlanOutcome& outcome,
                                       std::vector<report::FrontierCurve> overlays,
                                       std::string_view first_asked) {
  report::Report report{.planner = outcome.planner,
                        .job = outcome.job.planned,
                        .noise = {},
                        .frontier = {},
                        .plans = {},
                        .overlays = std::move(overlays),
                        .stopped_early = outcome.was_interrupted};
  if (outcome.frontier) {
    report.frontier = {"bound", outcome.frontier->points, outcome.frontier->error};
  }
  for (const PlannedTarget& planned : outcome.targets) {
    if (planned.slug == first_asked) report.chosen = report.plans.size();
    report.plans.push_back({planned.slug, planned.plan});
  }
  if (outcome.noise) {
    report.noise = outcome.noise->noise;
    for (std::size_t i = 0; i < report.plans.size(); ++i) {
      report.plans[i].under_noise = {outcome.noise->with_margin[i], outcome.noise->most_savings[i]};
    }
  }
  if (outcome.switch_tradeoff) {
    report.switch_tradeoff = ReportedTradeoff(outcome.planner, *outcome.switch_tradeoff);
    report.switch_tradeoff->limit_of_plans = outcome.limit.most_switches;
  }
  if (outcome.schedules) {
    PERSEUS_ASSIGN_OR_RETURN(report.schedule_tradeoff,
                             ReportedSchedules(SearchJobOf(outcome.job), *outcome.schedules,
                                               outcome.job.auto_schedule->memory.source));
  }
  return report::FormatReportData(report);
}

Result<std::vector<ResultFile>> MakePlanFiles(const PlanOutcome& outcome,
                                              std::string_view first_asked,
                                              const std::string& report_data,
                                              const OptionalFiles& optional) {
  std::vector<ResultFile> files;
  if (outcome.frontier)
    files.push_back({"frontier.csv", report::FormatFrontier(*outcome.frontier)});
  for (const PlannedTarget& planned : outcome.targets) {
    const auto file = plan::DescribePlan(outcome.planner, planned.plan, outcome.job.planned);
    files.push_back({fmt::format("plans/{}.json", planned.slug), plan_file::FormatPlan(file)});
  }
  files.push_back({"trace.json", FormatPlanTrace(outcome, first_asked)});
  if (outcome.job.auto_schedule || optional.schedule) {
    const schedule::Schedule& schedule = outcome.job.planned.schedule;
    files.push_back({kScheduleCsv, schedule::FormatSchedule(schedule)});
    files.push_back({"schedule.txt", schedule::DescribeOrder(schedule)});
  }
  if (report::HasReportPage()) {
    PERSEUS_ASSIGN_OR_RETURN(auto page, report::FormatReportPage(report_data));
    files.push_back({"report.html", std::move(page)});
  }
  return files;
}

}  // namespace perseus::cli
