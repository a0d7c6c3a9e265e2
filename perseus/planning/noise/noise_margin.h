// Changes a plan so that it keeps its promised time under noise, with the least energy.
//
// The problem. Minimize the mean energy, such that the mean time is at most (1 + slowdown) times
// the mean time of the baseline with the same noise. A margin (faster options) is necessary
// somewhere. The question is where it costs least.
//
// Alternatives. (a) Search for an earlier deadline, and plan for this deadline. This shortens the
// longest path without noise. But it ignores that some paths are the longest more often than
// others, and each try is a whole plan. (b) A flat factor on all times. This also makes
// instructions faster that are never critical. (c) A descent with the derivative of the mean time.
// Chosen. At an optimum, a common price per second of mean time exists: no instruction can run
// faster for less than this price. The derivative of the mean time by the time of an instruction is
// its criticality (Fulkerson 1962; infinitesimal perturbation analysis). Noise makes the mean time
// smooth, so the derivative is useful here. Without noise, it is not.
//
// Method. Two steps with 200 common samples: repair, then polish.
//   repair   While the mean time is too long, some instructions get their next faster option. These
//            are the instructions with the least energy per second of mean time, which is
//            cost / (criticality * shorter by). There are as many of them as close the gap to first
//            order. Then the samples run again.
//   polish   The instructions with the highest gain per second of mean time get their next slower
//            option, up to a budget of mean time. Then a repair follows. If this saves energy, the
//            result is kept. Otherwise, the budget is halved.
// noise_bound.h shows how far the result may be from the best plan.
//
// With a switch cost, a faster clock for a single instruction is expensive, because it causes two
// changes. So a second descent uses moves that add no change (SegmentMoves in margin_moves.h). The
// better result of the two descents is kept. If changes are limited, only this second descent runs.
// It starts from the given plan, and from plans that have as many changes and earlier deadlines.
// Under noise, the given plan is late by some time. The deadlines are earlier by one, two and three
// times this time.
//
// The noise also makes the baseline slower. So a plan that keeps the mean time may be late without
// noise. Then the cheapest instructions of its longest path get faster options, as in a repair.
//
// A plan that is the best for 200 samples is a little too slow for other samples. So 2,000 new
// samples check its time. The target is corrected by the difference, and both steps run again, a
// few times.
//
// Deterministic: the work is a number of runs of the samples, not a time.
#pragma once

#include <span>
#include <stop_token>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/noise/noisy_execution.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/target.h"

namespace perseus::noise {

struct MarginLimits {
  int samples = 200;
  int check_samples = 2000;
  int runs = 400;  // About how often the search runs all samples.
  // The mean time may exceed the promised time by allowance + tolerance. Both are fractions, too
  // small to notice. The target is the promised time plus `allowance`, because the last part of the
  // time is expensive: with 1 % of noise, 0.04 % more time saves 0.8 points more (GPT-3 on A100, 24
  // microbatches).
  double allowance = 4e-4;
  double tolerance = 1e-4;
  // kNoMore: no pp_rank has more clock changes than the busiest pp_rank of the given plan.
  enum class Changes { kAny, kNoMore } changes = Changes::kAny;
  std::stop_token stop = {};
  // After a finish request, the search ends as soon as it has a plan with a short enough mean time.
  std::stop_token finish = {};
};

struct NoisyPlan {
  plan::Plan plan;         // Evaluated without noise. Its deadline, bound and target are kept.
  NoisyDifference before;  // The given plan under noise, against the baseline.
  NoisyDifference after;   // `plan` under noise, with the same samples.
  int runs = 0;
};

// The mean time may exceed the mean time of the baseline by the fraction `slowdown`. Fails with
// kUnreachable if no plan has such a mean time, and with kSystem after a stop request.
//
// With a switch latency, an instruction may wait for the clock of the previous instruction, which
// the derivative does not include. So the descent may end without a plan although one exists. Then
// it starts again from plans for earlier deadlines, and at last from the baseline, which changes no
// clock.
Result<NoisyPlan> AddNoiseMargin(const plan::Planner& planner, const plan::Plan& plan,
                                 const Noise& noise, double slowdown,
                                 const MarginLimits& limits = {});

// Compares the plan with the baseline. Uses the same samples as AddNoiseMargin when it checks a
// plan with a margin. So all outputs show the same numbers for a plan.
NoisyDifference CompareWithBaseline(const plan::Planner& planner, std::span<const int> options,
                                    const Noise& noise, const MarginLimits& limits = {});

// The same as the first AddNoiseMargin, for a plan that was made for `target`. A slowdown is
// relative to the baseline with the same noise, and a deadline is a time. If the target does not
// limit the time (plan::LimitsTime), the plan needs no margin: it is not changed, only compared.
Result<NoisyPlan> AddNoiseMargin(const plan::Planner& planner, const plan::Plan& plan,
                                 const plan::Target& target, const Noise& noise,
                                 const MarginLimits& limits = {});

}  // namespace perseus::noise
