#include "perseus/planning/schedule_search/relaxed_energy.h"

#include <numeric>

#include "perseus/planning/plan/planner.h"
#include "perseus/planning/schedule/in_flight.h"

namespace perseus::schedule_search {
namespace {

// Below this fraction of the energy, a difference is rounding.
constexpr double kEqual = 1e-9;

}  // namespace

bool Judgment::IsBetterThan(const Judgment& other) const {
  const double gain_j = other.relaxed_energy_j - relaxed_energy_j;
  if (gain_j > kEqual * other.relaxed_energy_j) return true;
  return gain_j >= -kEqual * other.relaxed_energy_j && memory < other.memory;
}

std::optional<Judgment> RelaxedEnergy::Judge(const schedule::Schedule& schedule) const {
  const std::vector<std::int64_t> peaks = schedule::PeakActivations(schedule, limit_.size_of_stage);
  for (std::size_t pp_rank = 0; pp_rank < peaks.size(); ++pp_rank) {
    if (peaks[pp_rank] > limit_.of_pp_rank[pp_rank]) return std::nullopt;
  }
  auto graph = schedule::BuildInstructionGraph(schedule, job_.profile, job_.model);
  if (!graph) return std::nullopt;
  const auto planner = plan::Planner::Create(*std::move(graph), job_.execution);
  if (!planner || planner->least_time() > deadline_) return std::nullopt;
  const auto energy_j = planner->BoundFor(deadline_);
  if (!energy_j) return std::nullopt;
  return Judgment{.relaxed_energy_j = *energy_j,
                  .time_at_maximum = planner->baseline().time,
                  .memory = std::accumulate(peaks.begin(), peaks.end(), std::int64_t{0})};
}

}  // namespace perseus::schedule_search
