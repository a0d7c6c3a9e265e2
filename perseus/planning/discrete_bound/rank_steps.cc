#include "perseus/planning/discrete_bound/rank_steps.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "perseus/base/index.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/profile/curve.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::discrete_bound {
namespace {

Nanoseconds FastestTime(const plan::Planner& planner, int instruction) {
  const frontier::Network& network = planner.network();
  return network.curve_of(network.arcs[At(instruction)]).fastest();
}

// [instruction] the previous instruction on its pp_rank; -1 if the instruction need not wait for
// it.
std::vector<int> AwaitedOnRank(const schedule::InstructionGraph& graph) {
  std::vector<int> previous(graph.instructions.size(), -1);
  for (const std::vector<int>& order : graph.pp_rank_orders) {
    for (std::size_t k = 1; k < order.size(); ++k) previous[At(order[k])] = order[k - 1];
  }
  std::vector<int> awaited(graph.instructions.size(), -1);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    if (previous[At(dependency.to)] == dependency.from) {
      awaited[At(dependency.to)] = dependency.from;
    }
  }
  return awaited;
}

// Adds the cost of the choices of each step. Returns the sum of the least costs.
Femtojoules AddChoices(const schedule::InstructionGraph& graph,
                       const std::vector<std::vector<Way>>& ways, const DualPrices& prices,
                       std::vector<Step>& steps) {
  Femtojoules sum = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::vector<Way>& own = ways[At(graph.instructions[i].option_set)];
    const Microwatts price = prices.instructions[i];
    Femtojoules least = own.front().energy + price * own.front().time;
    for (const Way& way : own) least = std::min(least, way.energy + price * way.time);
    for (const Way& way : own) {
      steps[i].choices.push_back({way.time, way.energy + price * way.time - least});
    }
    sum += least;
  }
  return sum;
}

// Charges the wait of each dependency to a pp_rank, as discrete_bound.h explains.
void AddWaits(const plan::Planner& planner, const plan::InstructionWindows& windows,
              const DualPrices& prices, const std::vector<int>& awaited_on_rank,
              std::vector<Step>& steps) {
  const schedule::InstructionGraph& graph = planner.graph();
  std::vector<bool> waits(steps.size(), false);
  std::vector<bool> awaited(steps.size(), false);
  for (std::size_t d = 0; d < graph.dependencies.size(); ++d) {
    const auto& [from, to, delay] = graph.dependencies[d];
    waits[At(to)] = awaited[At(from)] = true;
    const Microwatts price = prices.dependencies[d];
    if (awaited_on_rank[At(to)] == from) {
      steps[At(to)].wait_price += price;
      steps[At(to)].delay = std::max(steps[At(to)].delay, delay);
      continue;
    }
    if (price == 0) continue;
    const Nanoseconds width_of_end = windows.latest_ends[At(from)] -
                                     windows.earliest_starts[At(from)] - FastestTime(planner, from);
    const Nanoseconds width_of_start =
        windows.latest_ends[At(to)] - windows.earliest_starts[At(to)] - FastestTime(planner, to);
    if (width_of_end <= width_of_start) {
      steps[At(to)].late.push_back({price, windows.latest_ends[At(from)] + delay});
    } else {
      steps[At(from)].early.push_back({price, windows.earliest_starts[At(to)] - delay});
    }
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!waits[i]) steps[i].late.push_back({prices.instructions[i], 0});
    if (!awaited[i]) steps[i].early.push_back({prices.instructions[i], planner.least_time()});
  }
}

Result<frontier::Network> NudgedNetwork(const plan::Planner& planner, Nanoseconds nudge) {
  const schedule::InstructionGraph& graph = planner.graph();
  const auto fastest_time = [&](int instruction) {
    return planner.network().curve_of(planner.network().arcs[At(instruction)]).fastest();
  };
  std::vector<schedule::Dependency> dependencies = graph.dependencies;
  for (auto& [from, to, delay] : dependencies) {
    if (graph.instructions[At(from)].pp_rank == graph.instructions[At(to)].pp_rank) continue;
    // `to` does not start before `from` starts, and does not end before `from` ends. So all events
    // are between the source and the sink, as the solver requires.
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

// Checks that the prices are a flow (see DualPrices). Otherwise the bound would be wrong.
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

// Returns the flow of each dependency. If the two events of a dependency are one node of the
// network, the dependency has no arc. Such a node has one of two forms (network.h):
//   - the end of one instruction, and the starts of all instructions that wait only for it;
//   - the start of one instruction, and the ends of all instructions for which only it waits. In
//     both forms, one of the two instructions of the dependency has no other dependency at this
//     node. So the dependency has the flow of this instruction.
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

std::vector<std::vector<Way>> FindWays(const plan::Planner& planner) {
  const double blocking_power_w = planner.model().blocking_power_w;
  std::vector<std::vector<Way>> ways;
  for (const schedule::OptionSet& set : planner.graph().option_sets) {
    std::vector<Way>& own = ways.emplace_back();
    for (const int index : profile::ParetoFront(set.options, blocking_power_w)) {
      const profile::Option& option = set.options[At(index)];
      own.push_back({option.time, profile::FlooredEffectiveEnergy(option, blocking_power_w)});
    }
  }
  return ways;
}

PricedSteps MakeSteps(const plan::Planner& planner, Nanoseconds deadline,
                      const plan::InstructionWindows& windows,
                      const std::vector<std::vector<Way>>& ways, const DualPrices& prices) {
  const schedule::InstructionGraph& graph = planner.graph();
  std::vector<Step> steps(graph.instructions.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps[i].earliest_start = windows.earliest_starts[i];
    steps[i].latest_end = windows.latest_ends[i];
  }
  PricedSteps made;
  made.base = (planner.blocking_price() - prices.value) * deadline;
  for (std::size_t d = 0; d < graph.dependencies.size(); ++d) {
    made.base += prices.dependencies[d] * graph.dependencies[d].delay;
  }
  made.base += AddChoices(graph, ways, prices, steps);
  const std::vector<int> awaited = AwaitedOnRank(graph);
  AddWaits(planner, windows, prices, awaited, steps);
  for (const std::vector<int>& order : graph.pp_rank_orders) {
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (k == 0 || awaited[At(order[k])] < 0) made.chains.emplace_back();
      made.chains.back().push_back(std::move(steps[At(order[k])]));
    }
  }
  return made;
}

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
