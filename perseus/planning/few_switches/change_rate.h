// Plans that keep a limit of clock changes for any target: a number in an iteration, or a highest
// rate, such as the one in hardware facts.
//
// A rate of r changes per second of a GPU allows N = floor(0.95 * r * T) changes in an iteration of
// time T. The other 5 % are for iterations that are shorter than planned. A plan with no GPU above
// N stays as it is. Otherwise, the plan of PlanFewSwitches with the limit N replaces it.
//
// DESIGN
//   N grows with T, so a slower plan may have more changes. A slowdown, a deadline and least energy
//   have one T. For these, N is fixed before the search. For a price and the energy-delay product,
//   the T of the plan without the limit counts, if it has a plan; another T may be slightly better.
//   With the limit, a plan needs more energy for the same T. So for an energy budget or a power
//   cap, the time grows in steps until a plan meets the target, up to the plan of least energy
//   within the limit. If that plan misses the target, more time does not help, and the error has
//   the plan's energy or power. The steps (0.1 %, 0.2 %, 0.5 %, 1 %, 2 %, 4 %, ...) grow, because
//   each one is a whole search, and most limits need little more time. A bisection would find a T
//   that is up to half a step less, for several times the work.
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

// The most clock changes of one GPU that `changes_per_s` allows in an iteration of length `time`.
// Requires changes_per_s >= 0.
int MostChanges(double changes_per_s, Nanoseconds time);

// The most changes of one pp_rank in an iteration.
int MostSwitches(const plan::Evaluation& evaluation);

// The target of a plan that has a limit: "no slowdown, at most 8 switches per GPU".
std::string NameWithLimit(std::string_view target, int most_changes);

// The limit on the clock changes of one GPU. If both are given, the number replaces the rate.
// Without both, no limit exists.
struct ChangeLimit {
  std::optional<int> most_changes = {};  // In an iteration.
  std::optional<double> changes_per_s = {};

  bool IsNone() const { return !most_changes && !changes_per_s; }
};

struct KeptPlan {
  plan::Plan plan;
  // The limit for which the plan was made. The plan's `target` then names the limit. nullopt: the
  // plan is the given one, unchanged.
  std::optional<int> most_changes;
};

// `plan` is the plan for `target` without a limit. Fails with kUnreachable if the search finds no
// plan that keeps the limit and the target. The message has a value of the target for which it
// found a plan. Fails with kSystem once a stop is requested.
Result<KeptPlan> KeepChangeLimit(const plan::Planner& planner, plan::Plan plan,
                                 const plan::Target& target, const ChangeLimit& limit,
                                 const SwitchLimits& limits = {});

}  // namespace perseus::few_switches
