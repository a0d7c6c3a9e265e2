#include "perseus/simulation/emulator/pipeline_runs.h"

#include <algorithm>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::emulator {

RunSummary Summarize(const schedule::InstructionGraph& graph, const Execution& execution) {
  const plan::Evaluation& evaluation = execution.run.evaluation;
  RunSummary summary{.time = evaluation.time,
                     .energy_j = evaluation.energy_j,
                     .switches = evaluation.switches,
                     .pp_ranks = std::vector<RunSummary::Rank>(graph.pp_rank_orders.size()),
                     .noticed = execution.noticed};
  for (std::size_t rank = 0; rank < graph.pp_rank_orders.size(); ++rank) {
    for (const int instruction : graph.pp_rank_orders[rank]) {
      summary.pp_ranks[rank].busy += evaluation.durations[At(instruction)];
      summary.pp_ranks[rank].energy_j += evaluation.energies_j[At(instruction)];
    }
    summary.pp_ranks[rank].switches = evaluation.pp_rank_switches[rank];
  }
  return summary;
}

PipelineRuns::PipelineRuns(const plan::Planner& planner,
                           const std::vector<Disturbance>& disturbances, int pipelines,
                           const JobClock& clock)
    : planner_(planner),
      disturbances_(disturbances),
      clock_(clock),
      executor_(planner, disturbances),
      disturbances_of_(At(pipelines)) {
  for (int i = 0; At(i) < disturbances.size(); ++i) {
    disturbances_of_[At(disturbances[At(i)].dp_rank)].push_back(i);
  }
}

int PipelineRuns::AddPlan(std::vector<int> options) {
  const auto next = static_cast<int>(plans_.size());
  const auto [known, is_new] = plan_numbers_.try_emplace(std::move(options), next);
  if (is_new) plans_.push_back(&known->first);
  return known->second;
}

std::vector<Presence> PipelineRuns::PresencesIn(int iteration, int pipeline,
                                                Nanoseconds horizon) const {
  std::vector<Presence> presences;
  const Nanoseconds start = clock_.StartOf(iteration);
  for (const int i : disturbances_of_[At(pipeline)]) {
    const Disturbance& disturbance = disturbances_[At(i)];
    const auto begins = clock_.TimeOf(disturbance.from, iteration);
    if (!begins) continue;
    const Nanoseconds from = std::max<Nanoseconds>(*begins - start, 0);
    if (from > 0 && from >= horizon) continue;
    const auto ends = clock_.TimeOf(disturbance.until, iteration);
    Nanoseconds until = ends ? *ends - start : kForever;
    if (until <= from) continue;
    if (until >= horizon) until = kForever;
    presences.push_back({i, from, until});
  }
  return presences;
}

Result<int> PipelineRuns::StateIn(int iteration, int pipeline, int plan) {
  // The horizon depends on the length of the iteration, which depends on the disturbances up to the
  // horizon.
  Nanoseconds horizon = 0;
  State state{plan, PresencesIn(iteration, pipeline, horizon)};
  for (;;) {
    PERSEUS_ASSIGN_OR_RETURN(const auto number, NumberOf(state));
    const Nanoseconds time = run(number).time;
    if (time <= horizon || !IsDisturbed(pipeline)) return number;
    horizon = time;
    State further{plan, PresencesIn(iteration, pipeline, horizon)};
    if (further == state) return number;
    state = std::move(further);
  }
}

Result<int> PipelineRuns::NumberOf(State state) {
  const auto known = numbers_.find(state);
  if (known != numbers_.end()) {
    reach_ = std::max(reach_, run(known->second).time);
    return known->second;
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto execution, Execute(state));
  runs_.push_back(Summarize(planner_.graph(), execution));
  reach_ = std::max(reach_, runs_.back().time);
  const auto number = static_cast<int>(states_.size());
  states_.push_back(&numbers_.emplace(std::move(state), number).first->first);
  return number;
}

}  // namespace perseus::emulator
