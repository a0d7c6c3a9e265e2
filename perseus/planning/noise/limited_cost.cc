#include "perseus/planning/noise/limited_cost.h"

namespace perseus::noise {

LimitedCost::LimitedCost(const plan::Planner& planner, int most_changes)
    : most_changes_(most_changes),
      ranks_(few_switches::CollectClocks(planner.graph(), planner.model().blocking_power_w)),
      bound_(planner, ranks_, planner.baseline().time) {
  // Then the bound has no term of a deadline, and none of dependencies.
  prices_.price = planner.blocking_price();
  prices_.flow.assign(planner.network().arcs.size(), 0);
  prices_.of_stalls.assign(planner.graph().instructions.size(), 0);
}

std::optional<double> LimitedCost::Solve(std::span<const double> of_times_w,
                                         std::span<const double> of_stalls_w) {
  for (std::size_t i = 0; i < of_times_w.size(); ++i) {
    prices_.flow[i] = static_cast<Microwatts>(kMicrowattsPerWatt * of_times_w[i]);
    prices_.of_stalls[i] = static_cast<Microwatts>(kMicrowattsPerWatt * of_stalls_w[i]);
  }
  best_ = bound_.Solve(prices_, most_changes_);
  if (!best_.exists) return std::nullopt;
  return ToJoules(best_.bound);
}

double LimitedCost::work() const {
  double choices = 0;
  for (const few_switches::RankClocks& rank : ranks_) {
    choices += static_cast<double>(rank.positions()) * rank.clocks;
  }
  return choices * (most_changes_ + 2);
}

}  // namespace perseus::noise
