// Which clocks to measure next, so that few of them give nearly the plan that all would give.
//
// The problem. A GPU has 40 to 100 clocks, a pipeline 16 to 500 groups of instructions (rank,
// chunk, kind), and every step spent at a low clock is a slow step. A no-slowdown plan uses few
// clocks of a group, and which ones depends on the other groups: on who is critical, and how much
// slack the others have.
//
// The idea. Let all groups measure at the same time, each at a clock of its own: a *round* of a few
// steps. After each round,
//   1. fit what was measured (curve_model.h): every option gets a mean and an uncertainty;
//   2. solve the relaxed plan on the means. Its dual says what a second is worth to every single
//      instruction: the flow λ on its arc, in watts (frontier/deadline.h). With it the plan falls
//      apart: instruction i takes the option of least *reduced cost* e - P t + λ_i t;
//   3. so a measurement can change the plan only by changing which option is the least. With
//      d the distance between an option's reduced cost and the best other one's, and s its
//      standard deviation, measuring it saves
//          E[(s N - d)^+] = s (φ(d/s) - d/s Φ(-d/s)),      N standard normal,
//      of this instruction on average (expected improvement; Mockus 1975, Jones et al. 1998).
//      Summed over instructions that is the *gain* of a measurement in joules per iteration: it
//      wants options that the plan uses and is not sure of, and options that might beat them.
//   4. groups are served in order of gain. What a measurement says of other groups' options at the
//      same clock (the model's shared part) counts as gain, too, and is taken off theirs, so that
//      stages that are alike share the work.
// The first rounds are a fixed descent from the highest clock, which gives the fit something to
// stand on. A group leaves it when a lower clock only loses: more effective energy at more time.
//
// Budget. `frequencies` a group; `steps` in all; `slowdown`, the mean over all those steps: a round
// that would overspend is brought up to clocks that do not. A sweep ends when the budget is spent
// or when all measurements together promise less than `least_gain` of the iteration's energy.
//
// Everything is a function of what was measured and spent, so a sweep resumes from those two.
//
// Rivals: evenly spaced clocks, and each group for itself (no sharing); docs/client.md has numbers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/runtime/profiler/measured_option.h"
#include "perseus/runtime/profiler/sweep_plan.h"
#include "perseus/runtime/protocol/assignment.h"

namespace perseus::profiler {

struct SweepBudget {
  int frequencies = 10;  // Of a group, the highest included; at least 2.
  int steps_per_round = 3;
  int steps = 60;
  double slowdown = 0.25;    // Mean over `steps`, as a fraction of the baseline's step.
  double least_gain = 2e-4;  // Of the iteration's energy.
};

// Fails (kInput), with how many it takes, if the budget's steps end before anything but the highest
// clocks was measured: a plan would be a guess.
Result<void> CheckBudget(const SweepBudget& budget);

struct SweepSpent {
  int steps = 0;
  double seconds = 0;  // Of those steps.
  // As a fraction, against steps at the highest clocks; 0 before the first step.
  double Slowdown(double baseline_s) const;
};

struct SweepRound {
  std::vector<protocol::KindClock>
      clocks;  // For every group of the job; empty when the sweep is over.
  int steps = 0;
  double gain = 0;         // Of the iteration's energy; 1 during the descent.
  double predicted_s = 0;  // Of a step of it; 0 where nothing is known yet.
  std::string reason;      // "descent", "adaptive", or why it is over.
  bool is_over() const { return clocks.empty(); }
};

// Fails (kInput) if `measured` holds a group that the job lacks or clocks are missing for a rank;
// passes the planner's failures on.
Result<SweepRound> ChooseRound(const SweepJob& job, const SweepBudget& budget,
                               std::span<const MeasuredOption> measured, const SweepSpent& spent);

}  // namespace perseus::profiler
