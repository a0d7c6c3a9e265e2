// Chooses which clocks to measure next, so that measurements at a few clocks give nearly the same
// plan as measurements at all clocks.
//
// The problem. A GPU has 40 to 100 clocks, and a pipeline has 16 to 500 groups of instructions
// (rank, chunk, kind). Every step at a low clock is a slow step. A no-slowdown plan uses only a few
// clocks of a group. Which clocks these are depends on the other groups: which of them are
// critical, and how much slack the others have.
//
// The idea. All groups measure at the same time, each at its own clock, for a *round* of a few
// steps. After each round:
//  1. Fit the measurements (option_model.h), so that every option has a mean and an uncertainty.
//  2. Solve the relaxed plan on the means. Its dual gives the price of a second for every single
//     instruction: the flow λ on the arc of the instruction, in watts (frontier/deadline.h). With
//     these prices, the plan splits into independent choices: instruction i takes the option of
//     least *reduced cost* e - P t + λ_i t.
//  3. So a measurement can only change the plan if it changes which option has the least reduced
//     cost. Let d be the difference between an option's reduced cost and the reduced cost of the
//     best other option. Let s be the standard deviation of d. For this instruction, measuring the
//     option saves on average
//         E[(s N - d)^+] = s (φ(d/s) - d/s Φ(-d/s)),      N standard normal,
//     (expected improvement; Mockus 1975, Jones et al. 1998). The sum over instructions is the
//     *gain* of a measurement in joules per iteration. The gain is large for uncertain options that
//     the plan uses, and for options that might be better.
//  4. Choose clocks for the groups in the order of gain. Through the shared part of the model, a
//     measurement also informs about other groups at the same clock. This information counts as
//     gain, too. It is subtracted from the gains of those groups, so that similar stages share the
//     work.
// The first rounds are a fixed descent from the highest clock, so that the fit has a basis. A group
// leaves the descent when a lower clock needs more effective energy and more time.
//
// Budget. `frequencies` limits the clocks of a group, `steps` all steps, and `slowdown` the mean
// slowdown over these steps. A round that would exceed `slowdown` gets higher clocks. A sweep ends
// when the budget is spent, or when all measurements of a round together promise less than
// `least_gain` of the iteration's energy.
//
// Every result depends only on the measurements and on the spent budget. So a sweep can resume from
// these two values.
//
// Alternatives that we rejected: evenly spaced clocks, and separate groups without sharing.
// docs/explanation/client-design.md has the numbers.
//
// Thread safety: all functions are pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/runtime/profiler/measured_option.h"
#include "perseus/runtime/profiler/sweep_plan.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"

namespace perseus::profiler {

struct SweepBudget {
  int frequencies = 10;  // For each group, including the highest clock. At least 2.
  int steps_per_round = 3;
  int steps = 60;
  double slowdown = 0.25;    // The mean over the steps, as a fraction of the baseline's step time.
  double least_gain = 2e-4;  // As a fraction of the iteration's energy.
};

// Fails (kInput) if the steps of the budget end before any clock except the highest is measured.
// The message says how many steps are necessary.
Result<void> CheckBudget(const SweepBudget& budget);

struct SweepSpent {
  int steps = 0;
  double seconds = 0;  // The time of these steps.
  // The slowdown of these steps relative to steps at the highest clocks, as a fraction. 0 before
  // the first step.
  double Slowdown(double baseline_s) const;
};

struct SweepRound {
  // The clock of every group of the job. Empty when the sweep has ended.
  std::vector<protocol::KindClock> clocks;
  int steps = 0;
  // The predicted time of one step. 0 if nothing is known yet.
  double predicted_s = 0;
  std::string reason;  // "descent", "adaptive", or the reason why the sweep has ended.
  bool is_over() const { return clocks.empty(); }
};

// Chooses the clocks of the next round. Fails (kInput) if `measured` has a group that the job
// lacks, or if a rank has no clocks. Also fails if the planner fails.
Result<SweepRound> ChooseRound(const SweepJob& job, const SweepBudget& budget,
                               std::span<const MeasuredOption> measured, const SweepSpent& spent);

}  // namespace perseus::profiler
