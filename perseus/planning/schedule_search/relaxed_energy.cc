#include "perseus/planning/schedule_search/relaxed_energy.h"

#include <numeric>
#include <utility>

#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule_search {
namespace {

// The largest error of an estimated energy above the relaxed optimum, as a fraction.
constexpr double kPrecision = 1e-6;
// Energies with a smaller relative difference are treated as equal.
constexpr double kEqual = 2 * kPrecision;

// Translates between the arcs of a network and the instructions of a schedule.
class OptimumOfSchedule {
 public:
  // Keeps references.
  OptimumOfSchedule(const schedule::Schedule& schedule, const plan::Planner& planner)
      : schedule_(schedule), planner_(planner), arcs_into_(planner.graph().instructions.size()) {
    const schedule::InstructionGraph& graph = planner.graph();
    for (std::size_t i = 0; i < graph.dependencies.size(); ++i) {
      const schedule::Dependency& dependency = graph.dependencies[i];
      const bool is_order = graph.instructions[At(dependency.from)].pp_rank ==
                            graph.instructions[At(dependency.to)].pp_rank;
      ArcsInto& into = arcs_into_[At(dependency.to)];
      (is_order ? into.order : into.data) = planner.network().arc_of_dependency[i];
    }
  }

  // Returns a guess for this schedule, made from the optimum of another schedule.
  frontier::Solution Guess(const RelaxedOptimum& other) const {
    const frontier::Network& network = planner_.network();
    frontier::Solution guess;
    guess.event_times.resize(At(network.nodes));
    guess.flow.resize(network.arcs.size());
    guess.price = other.price;
    ForEachArc([&](const schedule::Instruction& instruction, int arc, const ArcsInto& into) {
      const RelaxedOptimum::Part& part = other.Of(instruction);
      const auto [tail, head, curve] = network.arcs[At(arc)];
      guess.event_times[At(tail)] = std::max(guess.event_times[At(tail)], part.start);
      guess.event_times[At(head)] = std::max(guess.event_times[At(head)], part.end);
      guess.flow[At(arc)] = part.flow;
      if (into.order >= 0) guess.flow[At(into.order)] = part.flow_of_order;
      if (into.data >= 0) guess.flow[At(into.data)] = part.flow_of_data;
    });
    return guess;
  }

  RelaxedOptimum From(const frontier::Solution& solution) const {
    RelaxedOptimum optimum(schedule_.stages(), schedule_.microbatches);
    optimum.price = solution.price;
    const auto flow_of = [&](int arc) { return arc < 0 ? 0 : solution.flow[At(arc)]; };
    ForEachArc([&](const schedule::Instruction& instruction, int arc, const ArcsInto& into) {
      const auto [tail, head, curve] = planner_.network().arcs[At(arc)];
      optimum.Of(instruction) = {.start = solution.event_times[At(tail)],
                                 .end = solution.event_times[At(head)],
                                 .flow = flow_of(arc),
                                 .flow_of_order = flow_of(into.order),
                                 .flow_of_data = flow_of(into.data)};
    });
    return optimum;
  }

 private:
  struct ArcsInto {  // -1: none.
    int order = -1;
    int data = -1;
  };

  // Calls visit(instruction, its arc, the arcs of its dependencies) for all computations.
  template <typename Visit>
  void ForEachArc(Visit visit) const {
    const schedule::InstructionGraph& graph = planner_.graph();
    for (std::size_t pp_rank = 0; pp_rank < schedule_.pp_ranks.size(); ++pp_rank) {
      auto instruction = schedule_.pp_ranks[pp_rank].begin();
      for (const int node : graph.pp_rank_orders[pp_rank]) {
        if (!IsComputation(graph.options_of(node).kind)) continue;
        visit(*instruction++, node, arcs_into_[At(node)]);
      }
    }
  }

  const schedule::Schedule& schedule_;
  const plan::Planner& planner_;
  std::vector<ArcsInto> arcs_into_;  // [instruction of the graph]
};

Femtojoules ToFemtojoules(double energy_j) {
  return static_cast<Femtojoules>(energy_j * kFemtojoulesPerJoule);
}

}  // namespace

bool Judgment::IsBetterThan(const Judgment& other) const {
  const double gain_j = other.relaxed_energy_j - relaxed_energy_j;
  if (gain_j > kEqual * other.relaxed_energy_j) return true;
  return gain_j >= -kEqual * other.relaxed_energy_j && memory < other.memory;
}

std::optional<Judgment> RelaxedEnergy::Judge(const schedule::Schedule& schedule,
                                             const Judgment* best) const {
  const std::vector<std::int64_t> peaks =
      schedule::PeakActivations(schedule, limit_.size_of_stage, limit_.kept_of_stage);
  for (std::size_t pp_rank = 0; pp_rank < peaks.size(); ++pp_rank) {
    if (peaks[pp_rank] > limit_.of_pp_rank[pp_rank]) return std::nullopt;
  }
  const auto planner = PlannerOf(job_, schedule);
  if (!planner || planner->least_time() > deadline_) return std::nullopt;

  const OptimumOfSchedule optimum(schedule, *planner);
  frontier::Approximation approximation{
      .most_gap = ToFemtojoules(kPrecision * planner->baseline().energy_j)};
  frontier::Solution guess;
  if (best != nullptr) {
    guess = optimum.Guess(*best->optimum);
    approximation.near = &guess;
    approximation.most_cost =
        ToFemtojoules((1 + kEqual) * best->relaxed_energy_j - planner->BoundOf(0, 0));
  }
  const auto solution = frontier::ApproximateSchedule(planner->network(), deadline_,
                                                      planner->blocking_price(), approximation);
  if (!solution) return std::nullopt;
  return Judgment{.relaxed_energy_j =
                      planner->BoundOf(solution->time(planner->network()), solution->extra_energy),
                  .time_at_maximum = planner->baseline().time,
                  .memory = std::accumulate(peaks.begin(), peaks.end(), std::int64_t{0}),
                  .optimum = std::make_shared<const RelaxedOptimum>(optimum.From(*solution))};
}

}  // namespace perseus::schedule_search
