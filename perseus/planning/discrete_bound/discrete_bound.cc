#include "perseus/planning/discrete_bound/discrete_bound.h"

#include <algorithm>

#include "perseus/base/index.h"
#include "perseus/base/stopped.h"
#include "perseus/planning/discrete_bound/rank_program.h"
#include "perseus/planning/discrete_bound/rank_steps.h"

namespace perseus::discrete_bound {
namespace {

// A gain is negligible if it is less than the bound divided by this.
constexpr Femtojoules kNegligiblePart = 1'000'000;

// The nudges to try, as fractions of the average time of an instruction. Different jobs have
// different best nudges, and the gains differ by a tenth.
constexpr Nanoseconds kNudgeParts[] = {1'750, 7'000, 700};

Nanoseconds AverageFastestTime(const plan::Planner& planner) {
  const frontier::Network& network = planner.network();
  Nanoseconds sum = 0;
  for (std::int32_t i = 0; i < network.instructions; ++i) {
    sum += network.curve_of(network.arcs[At(i)]).fastest();
  }
  return sum / network.instructions;
}

struct Bound {
  Femtojoules base = 0;
  Femtojoules gain = 0;  // By how much the bound is above `base`.
};

Femtojoules NegligibleGain(Femtojoules base) {
  return std::max<Femtojoules>(base / kNegligiblePart, 1);
}

// The bound at the given prices. Adds to `work`.
Bound BoundOf(const PricedSteps& steps, const BoundLimits& limits, std::int64_t& work) {
  Bound bound{.base = steps.base, .gain = 0};
  std::int64_t left = limits.work;
  for (const std::vector<Step>& chain : steps.chains) {
    const LeastCost least = FindLeastCost(
        chain, {.first_cap = NegligibleGain(steps.base), .work = left, .stop = limits.stop});
    bound.gain += least.at_least;
    left = std::max<std::int64_t>(left - least.work, 0);
    work += least.work;
  }
  return bound;
}

}  // namespace

Result<DiscreteBound> BoundDiscretePlans(const plan::Planner& planner, Nanoseconds deadline,
                                         const BoundLimits& limits) {
  // A plan without dominated options takes at most SlowestTime().
  deadline = std::min(deadline, planner.SlowestTime());
  DiscreteBound best;
  if (planner.model().switch_latency > 0) {
    PERSEUS_ASSIGN_OR_RETURN(best.lower_bound_j, planner.BoundFor(deadline));
    return best;
  }
  if (deadline < planner.least_time()) {
    // BoundFor fails with the same message as for all plans.
    return Fail(planner.BoundFor(deadline));
  }
  const plan::InstructionWindows windows = plan::FindWindows(planner, deadline);
  const std::vector<std::vector<Way>> ways = FindWays(planner);
  const Nanoseconds average = AverageFastestTime(planner);
  for (const Nanoseconds part : kNudgeParts) {
    PERSEUS_ASSIGN_OR_RETURN(const DualPrices prices,
                             NudgedPrices(planner, deadline, average / part, limits.stop));
    const Bound found =
        BoundOf(MakeSteps(planner, deadline, windows, ways, prices), limits, best.work);
    if (limits.stop.stop_requested()) return FailAsStopped();
    best.lower_bound_j = std::max(best.lower_bound_j, ToJoules(found.base + found.gain));
    if (found.gain <= NegligibleGain(found.base)) break;
  }
  return best;
}

bool MayGain(const plan::Planner& planner, Nanoseconds deadline) {
  if (planner.model().switch_latency > 0) return false;
  Nanoseconds largest_step = 0;
  for (const std::vector<Way>& ways : FindWays(planner)) {
    for (std::size_t i = 1; i < ways.size(); ++i) {
      largest_step = std::max(largest_step, ways[i].time - ways[i - 1].time);
    }
  }
  return deadline - planner.least_time() < largest_step;
}

void RaiseBound(const plan::Planner& planner, plan::Plan& plan, const BoundLimits& limits) {
  if (!MayGain(planner, plan.deadline)) return;
  const auto bound = BoundDiscretePlans(planner, plan.deadline, limits);
  if (bound) plan.lower_bound_j = std::max(plan.lower_bound_j, bound->lower_bound_j);
}

}  // namespace perseus::discrete_bound
