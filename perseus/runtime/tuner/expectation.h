// How much a plan from noisy measurements really saves, and how much the noise costs.
//
// The problem. A planner prefers options that noise makes look better than they are (the winner's
// curse). So a plan seems to save more than it does, and a better plan exists that cannot be found
// yet.
//
// The estimate is a parametric bootstrap (Efron & Tibshirani, An Introduction to the Bootstrap,
// chapter 10): the measured options are taken as the truth, and measured again with noise of their
// standard errors, a few times. For each draw, a plan is made as `tune` makes it. Then all of
// these are known:
//
//     optimism   what the plan seems to save by its own draw - what it saves by the truth
//     left       what the plan of the truth saves            - what it saves by the truth
//     twice      the same as `left`, less what is left with errors that are smaller by sqrt(2)
//
// Errors. Half of the variance of an option is its own. The other half changes linearly over the
// clocks of its group, because the fitted model shares errors between neighboring clocks. The truth
// of the draws is itself measured, and seems to save too much. This cancels in the differences only
// in part.
//
// Thread safety: pure. Takes as long as 25 plans.
#pragma once

#include <cstdint>
#include <span>

#include "perseus/base/result.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/runtime/profiler/measured_option.h"
#include "perseus/runtime/profiler/sweep_plan.h"

namespace perseus::tuner {

// Fractions of the energy of an iteration at the highest clocks. None is negative.
struct Expectation {
  double optimism = 0;  // By how much a plan seems to save too much before it is followed.
  double left = 0;      // How much more a plan without errors of measurement would save.
  double twice = 0;     // How much of `left` twice as many measured steps would find.
};

// Fails as PlanFromSweep does.
Result<Expectation> ExpectFrom(const profiler::SweepJob& sweep, const plan_file::PlannedJob& job,
                               const plan::Target& target,
                               std::span<const profiler::MeasuredOption> measured,
                               std::uint64_t seed = 1);

}  // namespace perseus::tuner
