// Plans that draw less power than every plan of the frontier.
//
// PROBLEM
//   The mean power of a plan is E/T. The frontier ends at the slow end, where each instruction has
//   the option of least effective energy e - P*t. A slower option needs more effective energy, so
//   it is dominated: the GPU could use the faster option and then wait. But a clock makes no GPU
//   wait. If a critical instruction gets the slower option, T grows, and E/T may still fall.
//
// IDEA
//   Choose a reward r of time, in watts, and minimize E - r*T. Below the power of waiting (P*S, for
//   S pp_ranks), time has a price. This is the problem of the planner. From P*S on, the problem is
//   much simpler. Let m = r - P*S, and let ê be an effective energy. T is the longest of all paths
//   through the graph, so
//
//     E - r*T = sum(ê_i) - m * max over paths (sum of t_i on the path)
//             = min over paths (sum(ê_i) - m * sum of t_i on the path).
//
//   The minimum over options and the minimum over paths may be exchanged. For a given path, each
//   instruction decides alone: on the path, it takes the least ê - m*t, and elsewhere the least ê.
//   So the best path is the longest one if instruction i has the length
//
//     min over options (ê) - min over options (ê - m*t)        (at least 0)
//
//   and a delay d has the length m*d. One pass over the graph finds it. This is exact for measured
//   options, without a relaxation.
//
//   Least power: start with r = the power of some plan, and let the next r be the power of the best
//   plan at r, until it stays the same (Dinkelbach 1967). It takes a few passes.
//
//   A power cap: the plans that are best for some r are the corners of the lower hull of all (T,
//   E). The cap meets the hull between two corners. Chords find this pair. Between the corners, one
//   instruction after the other changes to its option in the slow corner. If both corners have the
//   same critical path, all of these plans are on the hull.
//
// ALTERNATIVES
//   - A relaxation of the dominated part of the curves: it would let an instruction wait, so the
//     frontier would have no point beyond the slow end.
//   - A shifted blocking power, so that the existing search finds least power: the price of time is
//     then negative, and the flow of the relaxation is unbounded.
//
// LIMITS
//   With a switch latency or a switch cost, plans are compared by their own time and energy, but
//   the search ignores both, and the bound is that of the relaxation.
//
// Thread safety: const methods may be called from several threads.
#pragma once

#include <optional>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::plan {

class SlowPlans {
 public:
  // Keeps a reference to the planner. Takes a few passes over the graph.
  explicit SlowPlans(const Planner& planner);

  // The plan of least power. If switches are free, no plan for this profile draws less.
  const Plan& least_power() const { return slowest_; }

  // Returns the fastest plan that is found, with at most `watts` on average. No plan of this
  // length has less energy than its lower_bound_j. Returns nullopt if least_power() draws more.
  // The plan is never faster than the slow end of the frontier.
  std::optional<Plan> Within(double watts) const;

 private:
  // The options of least effective energy - reward * time, for one option set.
  struct Best {
    int option = 0;
    Femtojoules cost = 0;
  };
  std::vector<Best> BestOptions(Microwatts reward) const;
  // The plan of least energy - (blocking price + reward) * time. Requires reward >= 0.
  Plan BestAt(Microwatts reward) const;
  Plan Evaluated(std::vector<int> options) const;
  // Returns a plan between two plans. `fast` draws more than `watts`, and `slow` does not.
  Plan Between(const Plan& fast, const Plan& slow, double watts) const;

  const Planner& planner_;
  Evaluator evaluator_;
  std::vector<Best> idle_;  // [option set] BestOptions(0).
  Plan fastest_;            // At the slow end of the frontier.
  Plan slowest_;
};

}  // namespace perseus::plan
