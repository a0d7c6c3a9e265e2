#include "perseus/cli/verbs/plan_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "perseus/cli/verbs/schedule_report.h"
#include "perseus/planning/plan/make_plan_file.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/report/trace.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::cli {
namespace {

// The trace shows the baseline and the plan with the slug `first_asked`.
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
