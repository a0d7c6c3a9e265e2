#include "perseus/planning/plan/slow_plans.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::plan {
namespace {

// A plan is better only if it gains more than this fraction. Sums of doubles are rounded.
constexpr double kRounding = 1e-12;

// The watts above the blocking price, in whole microwatts. At least 0.
Microwatts RewardOf(const Planner& planner, double watts) {
  return std::max(FromWatts(watts) - planner.blocking_price(), Microwatts(0));
}

}  // namespace

SlowPlans::SlowPlans(const Planner& planner)
    : planner_(planner),
      evaluator_(planner.graph(), planner.model()),
      idle_(BestOptions(0)),
      fastest_(BestAt(0)),
      slowest_(fastest_) {
  for (;;) {
    const double power_w = slowest_.evaluation.average_power_w();
    Plan next = BestAt(RewardOf(planner, power_w));
    if (next.evaluation.average_power_w() >= power_w * (1 - kRounding)) break;
    slowest_ = std::move(next);
  }
}

std::vector<SlowPlans::Best> SlowPlans::BestOptions(Microwatts reward) const {
  std::vector<Best> best;
  for (const schedule::OptionSet& set : planner_.graph().option_sets) {
    const auto rank_of = [&](const profile::Option& option) {
      const Femtojoules energy =
          profile::FlooredEffectiveEnergy(option, planner_.model().blocking_power_w);
      return std::tuple(energy - reward * option.time, option.time, option.frequency_mhz);
    };
    const auto least = std::ranges::min_element(set.options, {}, rank_of);
    best.push_back({static_cast<int>(least - set.options.begin()), std::get<0>(rank_of(*least))});
  }
  return best;
}

Plan SlowPlans::BestAt(Microwatts reward) const {
  const schedule::InstructionGraph& graph = planner_.graph();
  const std::vector<Best> on_path = BestOptions(reward);
  const std::size_t count = graph.instructions.size();
  std::vector<std::vector<const schedule::Dependency*>> into(count);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    into[At(dependency.to)].push_back(&dependency);
  }
  std::vector<int> options;
  std::vector<Femtojoules> length(count, 0);  // The longest path that ends here.
  std::vector<int> previous(count, -1);
  for (std::size_t i = 0; i < count; ++i) {
    for (const schedule::Dependency* dependency : into[i]) {
      const Femtojoules before = length[At(dependency->from)] + reward * dependency->delay;
      if (previous[i] >= 0 && before <= length[i]) continue;
      length[i] = before;
      previous[i] = dependency->from;
    }
    const std::size_t set = At(graph.instructions[i].option_set);
    length[i] += idle_[set].cost - on_path[set].cost;
    options.push_back(idle_[set].option);
  }
  for (auto i = static_cast<int>(std::ranges::max_element(length) - length.begin()); i >= 0;
       i = previous[At(i)]) {
    options[At(i)] = on_path[At(graph.instructions[At(i)].option_set)].option;
  }
  return Evaluated(std::move(options));
}

Plan SlowPlans::Evaluated(std::vector<int> options) const {
  Plan plan;
  plan.evaluation = evaluator_.Evaluate(options);
  plan.options = std::move(options);
  plan.deadline = plan.evaluation.time;
  plan.lower_bound_j = planner_.BoundOf(plan.evaluation.time, 0);
  return plan;
}

std::optional<Plan> SlowPlans::Within(double watts) const {
  const auto meets = [&](const Plan& plan) { return plan.evaluation.average_power_w() <= watts; };
  if (meets(fastest_)) return fastest_;
  if (!meets(slowest_)) return std::nullopt;
  Plan fast = fastest_;
  Plan slow = slowest_;
  while (slow.evaluation.time > fast.evaluation.time) {
    const double seconds = ToSeconds(slow.evaluation.time - fast.evaluation.time);
    const Microwatts reward =
        RewardOf(planner_, (slow.evaluation.energy_j - fast.evaluation.energy_j) / seconds);
    const double price_w = ToWatts(planner_.blocking_price() + reward);
    const auto cost_of = [&](const Plan& plan) {
      return plan.evaluation.energy_j - price_w * ToSeconds(plan.evaluation.time);
    };
    Plan between = BestAt(reward);
    const double least_j = cost_of(between);
    const double chord_j = std::min(cost_of(fast), cost_of(slow));
    if (least_j >= chord_j - kRounding * slow.evaluation.energy_j) {
      Plan plan = Between(fast, slow, watts);
      if (planner_.model().SwitchesAreFree()) {
        plan.lower_bound_j =
            std::max(plan.lower_bound_j, least_j + price_w * ToSeconds(plan.evaluation.time));
      }
      return plan;
    }
    (meets(between) ? slow : fast) = std::move(between);
  }
  return slow;
}

Plan SlowPlans::Between(const Plan& fast, const Plan& slow, double watts) const {
  std::vector<std::size_t> differ;
  for (std::size_t i = 0; i < fast.options.size(); ++i) {
    if (fast.options[i] != slow.options[i]) differ.push_back(i);
  }
  Plan best = slow;
  std::size_t too_few = 0;  // The number of instructions that have their option of `slow`.
  for (std::size_t enough = differ.size(); enough - too_few > 1;) {
    const std::size_t middle = too_few + (enough - too_few) / 2;
    std::vector<int> options = fast.options;
    for (std::size_t i = 0; i < middle; ++i) options[differ[i]] = slow.options[differ[i]];
    Plan plan = Evaluated(std::move(options));
    if (plan.evaluation.average_power_w() > watts) {
      too_few = middle;
      continue;
    }
    enough = middle;
    if (plan.evaluation.time <= best.evaluation.time) best = std::move(plan);
  }
  return best;
}

}  // namespace perseus::plan
