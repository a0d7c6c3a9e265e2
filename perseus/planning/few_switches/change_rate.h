// Plans for any target that keep a limit on clock changes. The limit is a number of changes in an
// iteration, or a rate (changes per second), such as the one in hardware facts.
//
// A rate of r changes per second of a GPU allows N = floor(0.95 * r * T) changes in an iteration of
// time T. The other 5 % are for iterations that are shorter than planned. If no GPU has more than N
// changes, the plan stays as it is. Otherwise, the plan of PlanFewSwitches with the limit N
// replaces it.
//
// DESIGN
//   N grows with T, so a slower plan may have more changes.
//
//   The targets slowdown, deadline and least energy have one T. For these targets, N is fixed
//   before the search. A price and the energy-delay product have no fixed T. For these targets, T
//   is the time of the plan without the limit, if a plan within the limit exists for this T.
//   Another T may be slightly better.
//
//   With the limit, a plan needs more energy for the same T than without it. So for an energy
//   budget or a power cap, T grows in steps until a plan meets the target. The last step is the
//   plan of least energy within the limit. For a power cap, energy counts until T, because more
//   time lowers the power, and the last step may be a plan with all instructions at one clock. If
//   the last step misses the target, more time does not help, and the error states the energy or
//   power of that plan. The steps of T (0.1 %, 0.2 %, 0.5 %, 1 %, 2 %, 4 %, ...) grow, because each
//   step is a whole search, and most limits need little more time. A bisection would reduce T by up
//   to half a step, but would take several times the work. With a latency or a cost of changes, the
//   first plan may be up to 6 % slower than necessary. Then a bisection follows.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/few_switches/few_switches.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/target.h"

namespace perseus::few_switches {

// The maximum number of clock changes of one GPU that `changes_per_s` allows in an iteration of
// length `time`. Requires changes_per_s >= 0.
int MostChanges(double changes_per_s, Nanoseconds time);

// The number of clock changes in an iteration, on the pp_rank that has the most.
int MostSwitches(const plan::Evaluation& evaluation);

// Names the target of a plan that has a limit: "no slowdown, at most 8 switches per GPU".
std::string NameWithLimit(std::string_view target, int most_changes);

// The limit on the clock changes of one GPU: a number in an iteration, a rate, or both. If both are
// given, the number is used and the rate is ignored. If neither is given, there is no limit.
struct ChangeLimit {
  std::optional<int> most_changes = {};  // The number of changes in an iteration.
  std::optional<double> changes_per_s = {};

  bool IsNone() const { return !most_changes && !changes_per_s; }
};

struct KeptPlan {
  plan::Plan plan;
  // The limit for which the plan was made. The plan's `target` then includes the limit. nullopt:
  // the plan is the given one, unchanged.
  std::optional<int> most_changes;
};

// Returns a plan for `target` that keeps the limit. `plan` is the plan without a limit. Fails with
// kUnreachable if the search finds no plan that keeps both. The message states a value of the
// target that a plan can keep. Fails with kSystem after a stop request.
Result<KeptPlan> KeepChangeLimit(const plan::Planner& planner, plan::Plan plan,
                                 const plan::Target& target, const ChangeLimit& limit,
                                 const SwitchLimits& limits = {});

}  // namespace perseus::few_switches
