// An upper bound on the saving of any plan under noise: a certificate for plans with a margin.
//
// PROBLEM
//   Instruction i takes t_i * f_i. Its factor f_i is random, with mean 1. Its effective energy e_i
//   (profile/curve.h) is a convex function of t_i. T is the mean length of the longest path. If all
//   pp_ranks together have the blocking power P, the mean energy is sum e_i(t_i) + P*T. What is the
//   least mean energy if T may be at most D?
//
// IDEA
//   Weak duality, as for the bound without noise. Take any rule that chooses a path for each
//   outcome of the factors. Let w_i be the mean of f_i over all outcomes, where f_i counts as 0 if
//   the chosen path does not contain i. Then T >= sum w_i*t_i + (the mean of the path's delays). So
//   for every price L >= P:
//
//     energy >= sum over i of min over t [ e_i(t) + L*w_i*t ] + L*delays - (L - P)*D.
//
//   Each minimum is one search in a curve. A rule and a price give a line: a bound for every D.
//
// WHICH RULES
//   The rule takes the longest path for some times t' of the instructions. The best t' are the
//   times of the best relaxed plan, and the prices L*w give such times. The method of Frank & Wolfe
//   (1956) finds both the times and w. A step computes the times that the prices require. Then it
//   takes the longest paths of a few new samples for these times, and moves w towards them. The
//   rule is then a mixture of the rules of all steps, each with its weight. At a breakpoint of a
//   curve, the times would jump. So the steps use smoothed curves, but the bound does not. The
//   search for the next price starts from the w of the previous price.
//
// WHY ESTIMATES ARE SAFE
//   The samples of a step are new, so the times of the step do not depend on them. So w is an
//   unbiased estimate for the rule of the step. The bound is concave in w. So by Jensen's
//   inequality, the mean of the bound over the samples is not above the bound of the rule itself.
//   The time and energy of the baseline come from the same samples, which cancels most of the
//   error. With other seeds, the bound on the saving has a standard deviation of 0.004 points
//   (Bloom) and 0.013 points (GPT-3; 12 microbatches, 1 % of noise).
//
// THE BOUND WITHOUT NOISE
//   The longest path of a plan without noise is not above T (Jensen's inequality again). So the
//   relaxed optimum without noise also gives a line: its flow is a rule that does not depend on the
//   factors. This line is better than the other lines if the noise is small, or if few paths are
//   nearly the longest.
//
//   This line has no samples that cancel the errors of the baseline. So the time of its baseline
//   comes from all samples. They estimate only one difference: the longest path minus the path that
//   is longest without noise. The mean of this second path is known exactly. (With only the latest
//   samples, the line was up to 0.4 points too low for a single pp_rank with common noise.)
//
// FEW CLOCK CHANGES
//   With a limit on changes, the minimum is over all plans within the limit. It is a sum over
//   pp_ranks, and a dynamic program finds each part (LimitedCost). The w of plans without a limit
//   gives a good bound on the saving (GPT-3, 12 microbatches, 4 changes, 1 % of noise: 14.2 %, and
//   15.2 % without the limit). More steps at the best price make it better (13.75 %; a plan saves
//   13.52 %). These steps use the mean times of the plans that the program finds, because a single
//   plan changes much from step to step.
//
//   A stall has no noise. So a second of stall before an instruction costs L times the fraction of
//   outcomes in which the path contains this instruction.
//
//   With a switch latency, an instruction runs partly at the previous clock, and the size of this
//   part depends on the outcome. But in this bound, a plan has one time for each instruction. So
//   with a latency, the bound is only an estimate. It is inexact only for the small part of the
//   time in which instructions run at a previous clock. (In a small job with a latency of a fifth
//   of an instruction, no plan was above the estimate: the test of the bound tries all plans.)
//
// TRIED
//   For the same work, many steps of few samples give a better bound than few steps of many samples
//   (GPT-3, 24 microbatches, 1 % of noise: 13.68 % with 400 steps of 5 samples, 13.98 % with 50 of
//   40). Sixteen times the work improves the bound by 0.07 to 0.15 points (GPT-3, 24 microbatches:
//   13.57, 11.75 and 9.79 % at 1, 2 and 3 % of noise, instead of 13.64, 11.90 and 9.94 %). Another
//   start of the margin (noise_margin.h), the best relaxed times rounded to options, is hardly
//   different: the descent ends within 0.03 points of its result from the plan without a margin.
//
// REFERENCES
//   M. Frank and P. Wolfe, An Algorithm for Quadratic Programming, Naval Research Logistics
//     Quarterly 3 (1956).
//   D. R. Fulkerson, Expected Critical Path Lengths in PERT Networks, Operations Research 10
//     (1962): for the rule of the longest path, w_i is the derivative of T by t_i.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "perseus/planning/noise/noisy_execution.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::noise {

struct BoundLimits {
  int steps = 400;  // The number of steps for each price.
  int samples = 5;  // The number of samples in each step.
  std::uint64_t seed = 2'000'003;
  // The maximum number of clock changes of a pp_rank that a plan may have.
  std::optional<int> most_changes = {};
  std::stop_token finish = {};  // After a request, the bound uses the prices so far.
};

class NoiseBound {
 public:
  // Returns the bound for plans with a mean time of at most (1 + slowdown) times the mean time of
  // the baseline, with the same noise. No such plan saves more than this fraction of the mean
  // energy of the baseline.
  double MostSaving(double slowdown) const {
    double least = 1;
    for (const Line& line : lines_) least = std::min(least, line.At(slowdown));
    return least;
  }

 private:
  class Search;
  friend NoiseBound ComputeNoiseBound(const plan::Planner& planner, const Noise& noise,
                                      std::span<const double> slowdowns, const BoundLimits& limits);
  struct Line {
    double without_slowdown = 0;
    double of_slowdown = 0;

    double At(double slowdown) const { return without_slowdown + of_slowdown * slowdown; }
  };
  std::vector<Line> lines_;
};

// Computes a bound that is valid for every slowdown. The bound is tight from the least of
// `slowdowns` on (with a limit on changes, only at these slowdowns). At each of `slowdowns`, it is
// at least as good as the bound without noise. Requires at least one slowdown.
NoiseBound ComputeNoiseBound(const plan::Planner& planner, const Noise& noise,
                             std::span<const double> slowdowns, const BoundLimits& limits = {});

}  // namespace perseus::noise
