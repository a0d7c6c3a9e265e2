#include "perseus/planning/discrete_bound/rank_steps.h"

#include <algorithm>

#include "perseus/base/index.h"
#include "perseus/planning/profile/curve.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::discrete_bound {
namespace {

Nanoseconds FastestTime(const plan::Planner& planner, int instruction) {
  const frontier::Network& network = planner.network();
  return network.curve_of(network.arcs[At(instruction)]).fastest();
}

// [instruction] the instruction before it on its pp_rank if it waits for that one, or else -1.
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
    const Femtojoules price = prices.instructions[i];
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
  made.base = -Femtojoules{prices.value - planner.blocking_price()} * deadline;
  for (std::size_t d = 0; d < graph.dependencies.size(); ++d) {
    made.base += Femtojoules{prices.dependencies[d]} * graph.dependencies[d].delay;
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

}  // namespace perseus::discrete_bound
