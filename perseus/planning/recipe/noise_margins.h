// Plans that keep their time under noise.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/noise/noise_margin.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/recipe/targets.h"

namespace perseus::recipe {

// The plans under noise, in the order of the plans.
struct NoiseOutcome {
  noise::Noise noise;
  std::vector<noise::NoisyDifference> without_margin;
  // Equals `without_margin` if the target limits no time.
  std::vector<noise::NoisyDifference> with_margin;
  // Upper bounds on the saving of any plan that is as fast on average (noise_bound.h).
  std::vector<double> most_savings;
};

// Replaces each plan whose target is a slowdown or a deadline by one whose mean time keeps it under
// noise. Drops a target that cannot be met, or fails with kUnreachable if it is asked for. No
// slowdown, and each greater one, can be met: at worst by the baseline. More slowdown never saves
// less on average.
//
// A better plan without noise may lead to a worse one with a margin. So the plans of less effort
// are starts, too, and more effort is never worse. After a request to finish, only `planned` are
// starts.
Result<NoiseOutcome> AddNoiseMargins(const plan::Planner& planner, const noise::Noise& noise,
                                     const noise::MarginLimits& limits,
                                     std::vector<PlannedTarget>& planned,
                                     const std::vector<std::vector<PlannedTarget>>& of_less_effort);

}  // namespace perseus::recipe
