// Changes a plan so that it keeps its promise of time under noise, for the least energy.
//
// The problem. Minimize the mean energy, such that the mean time is at most (1 + slowdown) times
// the mean time of the baseline under the same noise. A margin is necessary somewhere. The question
// is where it costs least.
//
// Alternatives. (a) Plan for an earlier deadline, which is searched. This shortens the longest path
// without noise. But it ignores that some paths are the longest more often than others, and each
// try is a whole plan. (b) A flat factor on all times: this also speeds up instructions that are
// never critical. (c) The chosen one: a descent with the derivative of the mean time. At an
// optimum, each instruction that could run faster pays at least the same price per second of mean
// time, and the derivative of the mean time by the time of an instruction is its criticality
// (Fulkerson 1962; infinitesimal perturbation analysis). The noise makes the mean time smooth, so
// the derivative is useful here, where it is not without noise.
//
// Method. With 200 common samples: repair, then polish.
//   repair   While the mean time is too long, the instructions with the least cost in energy per
//            second of mean time, cost / (criticality * shorter by), get their next faster option:
//            as many instructions as close the gap to first order. Then the samples run again.
//   polish   The instructions with the highest gain per second of mean time get their next slower
//            option, up to a budget of mean time; then repair. If this saves energy, it is kept.
//            Otherwise the budget is halved.
// noise_bound.h shows how far the result may be from the best plan.
//
// With a switch cost, single faster clocks are expensive, because each brings two changes. So a
// second descent has moves that add no change (SegmentMoves in margin_moves.h). The better result
// counts. If changes are limited, only this descent runs. It begins with the plan, and with plans
// that have as many changes and earlier deadlines: by one, two and three times the time by which
// the plan is late under the noise.
//
// The noise also makes the baseline slower. So a plan that keeps the mean may be late without
// noise. Then the cheapest instructions of its longest path get faster options, as in a repair.
//
// A plan that is best for 200 samples is a little too slow for others. So the time is checked with
// 2,000 new samples, the target is corrected by the difference, and both steps run again, a few
// times.
//
// Deterministic: work is counted in runs of the samples, never in seconds.
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
  int runs = 400;  // About how often all samples run.
  // The mean time may exceed the promised one by allowance + tolerance, as fractions, which are too
  // small to notice. The target is `allowance`, because the last part is expensive: with 1 % of
  // noise, 0.04 % of time are worth 0.8 points of saving (GPT-3 on A100, 24 microbatches).
  double allowance = 4e-4;
  double tolerance = 1e-4;
  // kNoMore: no pp_rank has more clock changes than the pp_rank of the given plan that has most.
  enum class Changes { kAny, kNoMore } changes = Changes::kAny;
  std::stop_token stop = {};
  // Once requested, the search ends as soon as it has a plan that is short enough on average.
  std::stop_token finish = {};
};

struct NoisyPlan {
  plan::Plan plan;         // Evaluated without noise. Its deadline, bound and target are kept.
  NoisyDifference before;  // The given plan under noise, against the baseline.
  NoisyDifference after;   // This plan, with the same samples.
  int runs = 0;
};

// `slowdown` is the fraction by which the mean time may exceed the baseline's. Fails (kUnreachable)
// if the mean time of no plan keeps it, and with kSystem once a stop is requested.
//
// With a switch latency, an instruction may wait for the clock of the one before it, which the
// derivative does not see. So the descent may end although a plan exists. Then it begins again with
// plans for earlier deadlines, and at last with the baseline, which changes no clock.
Result<NoisyPlan> AddNoiseMargin(const plan::Planner& planner, const plan::Plan& plan,
                                 const Noise& noise, double slowdown,
                                 const MarginLimits& limits = {});

// Compares the plan with the baseline. Uses the samples with which plans with a margin are checked,
// so that all outputs show the same numbers for a plan.
NoisyDifference CompareWithBaseline(const plan::Planner& planner, std::span<const int> options,
                                    const Noise& noise, const MarginLimits& limits = {});

// The same for a plan of that target. A slowdown is relative to the baseline with the same noise,
// and a deadline is a time. A plan for a target that does not limit the time (plan::LimitsTime)
// needs no margin: it stays as it is, and is only compared.
Result<NoisyPlan> AddNoiseMargin(const plan::Planner& planner, const plan::Plan& plan,
                                 const plan::Target& target, const Noise& noise,
                                 const MarginLimits& limits = {});

}  // namespace perseus::noise
