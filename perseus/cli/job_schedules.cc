#include "perseus/cli/job_schedules.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "perseus/cli/schedule_report.h"
#include "perseus/cli/table.h"
#include "perseus/planning/plan/make_plan_file.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/in_flight.h"
#include "perseus/planning/schedule_search/tradeoff.h"

namespace perseus::cli {
namespace {

using schedule_search::Tradeoff;
using schedule_search::TradeoffRow;

std::vector<std::string> CellsOf(const std::string& name, const TradeoffRow& row) {
  return {name, schedule_search::FormatInFlight(row.candidate.in_flight),
          FormatQuantity(row.plan.evaluation.energy_j), FormatPercent(row.saving),
          row.most_saving ? FormatPercent(*row.most_saving) : ""};
}

// The plan of the schedule that runs, if it can be as fast as the reference.
std::optional<TradeoffRow> RowOfRunning(const schedule_search::SearchJob& job,
                                        const Tradeoff& tradeoff,
                                        const schedule::Schedule& schedule) {
  schedule_search::Candidate running{.schedule = schedule,
                                     .origin = schedule.name,
                                     .in_flight = schedule::PeakInFlight(schedule),
                                     .relaxed_energy_j = 0,
                                     .time_at_maximum = 0};
  auto row = schedule_search::PlanCandidate(job, tradeoff.reference, std::move(running),
                                            {.effort = plan::kFirstLook, .stop = {}, .finish = {}});
  if (!row) return std::nullopt;
  return *std::move(row);
}

}  // namespace

Result<std::string> CompareSchedules(const plan_file::PlannedJob& job,
                                     std::string_view profile_csv) {
  PERSEUS_ASSIGN_OR_RETURN(const auto profile,
                           profile::ParseProfile(profile_csv, "the job's profile"));
  const schedule_search::SearchJob search{.profile = profile,
                                          .model = job.model,
                                          .execution = plan::ModelOf(job),
                                          .pp_ranks = profile.stages(),
                                          .microbatches = job.schedule.microbatches};
  schedule_search::TradeoffOptions options{.stop = {}, .finish = {}, .progress = {}};
  options.more = {0, 1, 2};
  PERSEUS_ASSIGN_OR_RETURN(const auto tradeoff, schedule_search::ComputeTradeoff(search, options));
  const auto running = RowOfRunning(search, tradeoff, job.schedule);
  Table table({"schedule", "in flight", "energy (J)", "saving", "at most"});
  if (running) table.AddRow(CellsOf("of the job", *running));
  for (const TradeoffRow& row : tradeoff.rows) table.AddRow(CellsOf(NameOfRow(row), row));
  std::string text = table.Format() + "\n";
  if (!running) {
    text += fmt::format("The schedule of the job is slower than {} at maximum frequency.\n",
                        tradeoff.reference.schedule.name);
  }
  const TradeoffRow& best = tradeoff.rows.back();
  const double further = best.saving - (running ? running->saving : tradeoff.fixed.saving);
  if (further < schedule_search::kWorthSaying) {
    return text + "None of these schedules saves more than that of the job.\n";
  }
  return text + fmt::format(
                    "With the last schedule, a next run would save another {:.2f} % of the energy, "
                    "if its GPUs have the memory. This run keeps its own: perseus schedule search "
                    "writes others.\n",
                    further * 100);
}

}  // namespace perseus::cli
