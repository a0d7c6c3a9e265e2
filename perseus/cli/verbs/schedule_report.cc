#include "perseus/cli/verbs/schedule_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "perseus/planning/plan/target.h"

namespace perseus::cli {
namespace {

using schedule_search::kBytesPerGib;
using schedule_search::SearchJob;
using schedule_search::Tradeoff;
using schedule_search::TradeoffRow;

Result<plan::Planner> PlannerOf(const SearchJob& job, const TradeoffRow& row) {
  PERSEUS_ASSIGN_OR_RETURN(
      auto graph, schedule::BuildInstructionGraph(row.candidate.schedule, job.profile, job.model));
  return plan::Planner::Create(std::move(graph), job.execution);
}

report::ScheduleRow ReportedRow(const Tradeoff& tradeoff, const TradeoffRow& row,
                                std::string name) {
  double memory = row.more;
  if (!tradeoff.activations.empty()) {
    memory = static_cast<double>(schedule_search::MostBytes(tradeoff, row)) / kBytesPerGib;
  }
  return {.name = std::move(name),
          .in_flight = row.candidate.in_flight,
          .memory = memory,
          .energy_j = row.plan.evaluation.energy_j,
          .saving = row.saving,
          .most_saving = row.most_saving};
}

Result<void> AddTimeline(const SearchJob& job, const TradeoffRow& row, std::string name,
                         report::ScheduleTradeoff& reported) {
  PERSEUS_ASSIGN_OR_RETURN(auto planner, PlannerOf(job, row));
  reported.timelines.push_back({std::move(name), std::move(planner), row.plan});
  return {};
}

// Returns the row whose schedule is shown beside the reference. If the memory of the GPUs is known,
// this is the row that fits into this memory. Otherwise this is the first row that saves energy, or
// the first row if no row saves energy.
const TradeoffRow& ChosenRow(const Tradeoff& tradeoff) {
  if (tradeoff.fitting) return *tradeoff.fitting;
  const auto first = std::ranges::find_if(tradeoff.rows, [&](const TradeoffRow& row) {
    return row.saving - tradeoff.fixed.saving >= schedule_search::kWorthSaying;
  });
  return first == tradeoff.rows.end() ? tradeoff.rows.front() : *first;
}

}  // namespace

SearchJob SearchJobOf(const job::LoadedJob& job) {
  const profile::Profile& profile = *job.auto_schedule->profile;
  return {.profile = profile,
          .model = job.planned.model,
          .execution = job.model,
          .pp_ranks = profile.pp_ranks(),
          .microbatches = job.planned.schedule.microbatches,
          .changes = job.auto_schedule->changes,
          .placement = job.auto_schedule->placement};
}

std::string NameOfRow(const TradeoffRow& row) {
  if (row.candidate.schedule.name == job::kAutoSchedule) return row.candidate.schedule.name;
  return row.more < 0 ? "fits" : fmt::format("+{}", row.more);
}

Result<report::ScheduleTradeoff> ReportedSchedules(const SearchJob& job, const Tradeoff& tradeoff,
                                                   const std::string& memory_source) {
  const std::string& reference = tradeoff.reference.schedule.name;
  report::ScheduleTradeoff reported{.reference = reference,
                                    .unit = tradeoff.activations.empty() ? "microbatches" : "GiB",
                                    .memory_source = memory_source,
                                    .rows = {ReportedRow(tradeoff, tradeoff.fixed, reference)},
                                    .chosen = 0,
                                    .timelines = {},
                                    .conclusion = schedule_search::Conclude(tradeoff)};
  for (const TradeoffRow& row : tradeoff.rows) {
    reported.rows.push_back(ReportedRow(tradeoff, row, NameOfRow(row)));
  }
  const TradeoffRow& chosen = ChosenRow(tradeoff);
  if (tradeoff.fitting) {
    reported.rows.push_back(ReportedRow(tradeoff, chosen, NameOfRow(chosen)));
  }
  // The line of the chart goes from less to more memory.
  std::stable_sort(reported.rows.begin() + 1, reported.rows.end(),
                   [](const auto& a, const auto& b) { return a.memory < b.memory; });
  const auto place =
      std::ranges::find(reported.rows, NameOfRow(chosen), &report::ScheduleRow::name);
  reported.chosen = static_cast<std::size_t>(place - reported.rows.begin());
  PERSEUS_RETURN_IF_ERROR(AddTimeline(job, tradeoff.fixed, reference, reported));
  PERSEUS_RETURN_IF_ERROR(AddTimeline(job, chosen, NameOfRow(chosen), reported));
  return reported;
}

Result<std::string> MakeSearchReport(const job::UnscheduledJob& job, const Tradeoff& tradeoff,
                                     std::vector<report::FrontierCurve> overlays) {
  TradeoffRow chosen = ChosenRow(tradeoff);
  PERSEUS_ASSIGN_OR_RETURN(auto reported,
                           ReportedSchedules(job.search_job(), tradeoff, job.memory.source));
  chosen.plan.target = plan::Describe(plan::Target{.kind = plan::Target::Kind::kSlowdown});
  chosen.candidate.schedule.name = NameOfRow(chosen);
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, PlannerOf(job.search_job(), chosen));
  plan_file::PlannedJob planned = job.planned;
  planned.schedule = chosen.candidate.schedule;
  return report::FormatReportData({.planner = planner,
                                   .job = std::move(planned),
                                   .noise = {},
                                   .frontier = {},
                                   .plans = {{"no-slowdown", chosen.plan}},
                                   .overlays = std::move(overlays),
                                   .switch_tradeoff = {},
                                   .schedule_tradeoff = std::move(reported),
                                   .compared_with = report::OtherBaseline{
                                       tradeoff.reference.schedule.name, tradeoff.reference.time,
                                       tradeoff.reference.energy_j}});
}

}  // namespace perseus::cli
