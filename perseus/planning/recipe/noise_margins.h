// Plans that keep their time under noise.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/noise/noise_margin.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/recipe/targets.h"

namespace perseus::recipe {

// The results of the plans under noise, in the order of the plans.
struct NoiseOutcome {
  noise::Noise noise;
  std::vector<noise::NoisyDifference> without_margin;
  // Equals `without_margin` if the target limits no time.
  std::vector<noise::NoisyDifference> with_margin;
  // Upper bounds on the saving of any plan that is as fast on average (noise_bound.h).
  std::vector<double> most_savings;
};

// Replaces each plan for a slowdown or a deadline by a plan that keeps this target with its mean
// time under noise. If no plan can keep a target, drops it, or fails with kUnreachable if the user
// asked for it. A slowdown of 0 or more always has a plan, at worst the baseline. More slowdown
// never saves less on average.
//
// A better plan without noise may lead to a worse plan with a margin. So the search also starts
// from the plans of less effort, which ensures that more effort is never worse. After a finish
// request, it starts only from `planned`.
Result<NoiseOutcome> AddNoiseMargins(const plan::Planner& planner, const noise::Noise& noise,
                                     const noise::MarginLimits& limits,
                                     std::vector<PlannedTarget>& planned,
                                     const std::vector<std::vector<PlannedTarget>>& of_less_effort);

}  // namespace perseus::recipe
