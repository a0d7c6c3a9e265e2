#include "perseus/planning/discrete_bound/dual_prices.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "perseus/base/index.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::discrete_bound {
namespace {

Result<frontier::Network> NudgedNetwork(const plan::Planner& planner, Nanoseconds nudge) {
  const schedule::InstructionGraph& graph = planner.graph();
  const auto fastest_time = [&](int instruction) {
    return planner.network().curve_of(planner.network().arcs[At(instruction)]).fastest();
  };
  std::vector<schedule::Dependency> dependencies = graph.dependencies;
  for (auto& [from, to, delay] : dependencies) {
    if (graph.instructions[At(from)].pp_rank == graph.instructions[At(to)].pp_rank) continue;
    // `to` neither starts before `from` starts, nor ends before `from` ends. So all events remain
    // between the source and the sink, as the solver requires.
    delay -= std::min({nudge, fastest_time(from), fastest_time(to)});
  }
  std::vector<std::int32_t> curve_of_instruction;
  curve_of_instruction.reserve(graph.instructions.size());
  for (const schedule::InstructionNode& instruction : graph.instructions) {
    curve_of_instruction.push_back(instruction.option_set);
  }
  return frontier::BuildNetwork(std::span(planner.network().curves).first(graph.option_sets.size()),
                                curve_of_instruction, dependencies);
}

struct Flows {
  std::vector<Microwatts> into;
  std::vector<Microwatts> out_of;
};

// Checks the promise of DualPrices, so that a bound never rests on a flow that is not one.
Result<void> CheckConserved(const schedule::InstructionGraph& graph, const DualPrices& prices) {
  const std::size_t count = graph.instructions.size();
  Flows flows{std::vector<Microwatts>(count, 0), std::vector<Microwatts>(count, 0)};
  std::vector<bool> waits(count, false);
  std::vector<bool> awaited(count, false);
  bool conserved = true;
  for (std::size_t d = 0; d < graph.dependencies.size(); ++d) {
    const std::size_t from = At(graph.dependencies[d].from);
    const std::size_t to = At(graph.dependencies[d].to);
    flows.out_of[from] += prices.dependencies[d];
    flows.into[to] += prices.dependencies[d];
    awaited[from] = waits[to] = true;
    conserved &= prices.dependencies[d] >= 0;
  }
  Microwatts from_source = 0;
  Microwatts to_sink = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Microwatts flow = prices.instructions[i];
    if (!waits[i]) from_source += flow;
    if (!awaited[i]) to_sink += flow;
    conserved &= flow >= 0 && (!waits[i] || flows.into[i] == flow) &&
                 (!awaited[i] || flows.out_of[i] == flow);
  }
  if (conserved && from_source == prices.value && to_sink == prices.value) return {};
  return FailAs(ErrorKind::kSystem,
                "the prices of the discrete bound are not a flow (please report this)");
}

// The flow of each dependency. If its two events are one node of the network, it has no arc. The
// node then has the end of one instruction and the starts of all that wait only for it, or the
// start of one instruction and the ends of all that only this one waits for (network.h). So the
// dependency carries the flow of the instruction that has no other dependency there.
DualPrices PricesOf(const schedule::InstructionGraph& graph, const frontier::Network& network,
                    const frontier::Solution& solution) {
  DualPrices prices;
  prices.value = solution.price;
  prices.instructions.assign(solution.flow.begin(), solution.flow.begin() + network.instructions);
  std::vector<int> waits_for(graph.instructions.size(), 0);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    ++waits_for[At(dependency.to)];
  }
  for (std::size_t d = 0; d < graph.dependencies.size(); ++d) {
    const schedule::Dependency& dependency = graph.dependencies[d];
    const std::int32_t arc = network.arc_of_dependency[d];
    const int same = waits_for[At(dependency.to)] == 1 ? dependency.to : dependency.from;
    prices.dependencies.push_back(arc >= 0 ? solution.flow[At(arc)]
                                           : prices.instructions[At(same)]);
  }
  return prices;
}

}  // namespace

Result<DualPrices> NudgedPrices(const plan::Planner& planner, Nanoseconds deadline,
                                Nanoseconds nudge, const std::stop_token& stop) {
  PERSEUS_ASSIGN_OR_RETURN(const frontier::Network network, NudgedNetwork(planner, nudge));
  PERSEUS_ASSIGN_OR_RETURN(
      const frontier::Solution solution,
      frontier::SolveDeadline(network, deadline, planner.blocking_price(), stop));
  DualPrices prices = PricesOf(planner.graph(), network, solution);
  PERSEUS_RETURN_IF_ERROR(CheckConserved(planner.graph(), prices));
  if (prices.value < planner.blocking_price()) {
    return FailAs(ErrorKind::kSystem,
                  "the price of time is below the blocking power (please report this)");
  }
  return prices;
}

}  // namespace perseus::discrete_bound
