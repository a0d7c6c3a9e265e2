// What an A/B comparison of two ways to run a job can tell: how many times as much time and energy
// a step takes under B as under A, with a confidence interval, and whether that is enough to say.
//
// Design of the experiment. Steps come in blocks, blocks in pairs, one of A and one of B beside it,
// and a coin decides which comes first. Then, for each pair,
//
//     d = ln(B / A) = θ + ε
//
// where θ is what is sought and ε is symmetric around 0, whatever the noise looks like: had the
// coin fallen the other way, noise and drift of the two blocks would have been exchanged, and ε
// would be -ε. A clock that drifts, a machine that warms up, a checkpoint now and then need no
// model; slow ones nearly cancel within a pair.
//
// Interval. For differences symmetric around θ the Wilcoxon signed-rank statistic has a known
// distribution, so the interval between two order statistics of the pairwise (Walsh) averages
// (d_i + d_j) / 2 covers θ with a probability that can be computed exactly, for any symmetric noise
// (Hodges & Lehmann 1963; Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, 3.3). The
// estimate is the averages' median.
//
// Rivals. Student's t on d is 5 % shorter if the noise is normal, and wrong by an unknown amount if
// one block in a hundred holds a checkpoint. A bootstrap of ten pairs covers noticeably less than
// it says. Comparing all A steps with all B steps counts drift as effect, or as noise.
//
// Edges. Whoever makes the blocks leaves out the steps beside a change from A to B, on both sides:
// the one after it, in which the switch lands, and as many as the energy counter's period is long.
// A window of the counter that spans the change has some of both in it. On virtual GPUs with blocks
// of three periods, leaving out the first step only made savings 10 % too small, and intervals for
// 95 % covered 88 %.
//
// What it cannot do. The level is one of a few: with 5 pairs the widest interval covers 93.75 %, so
// 6 is the least for 95 %. An effect that grows over the run is averaged.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::profiler {

// Of one pair, per step (means over the block's steps); > 0.
struct BlockPair {
  double baseline_time_s = 0;
  double baseline_energy_j = 0;
  double planned_time_s = 0;
  double planned_energy_j = 0;
};

struct Interval {
  double estimate = 0;
  double lower = 0;
  double upper = 0;
};

enum class Verdict {
  kCannotTell,
  kLess,     // Below, as far as the interval goes.
  kSame,     // Within the tolerance.
  kGreater,  // Above.
};

struct Comparison {
  int pairs = 0;
  // Probability that an interval covers the truth; at least what was asked for.
  double level = 0;
  // 1 - planned / baseline energy: 0.12 saves 12 %.
  Interval saving;
  // planned / baseline time - 1.
  Interval slowdown;
  // kGreater: it saves. kLess: it costs. Never kSame.
  Verdict saves = Verdict::kCannotTell;
  // kSame: slower by no more than the tolerance. kGreater: slower, by more than nothing. kLess:
  // faster.
  Verdict slows = Verdict::kCannotTell;
  // About so many pairs would settle what cannot be told; 0 if all is told. The interval shrinks
  // with the root of the number of pairs.
  int pairs_needed = 0;
};

struct ComparisonOptions {
  double level = 0.95;                // Above 0.5, below 1.
  double slowdown_tolerance = 0.002;  // What still counts as no slowdown.
};

// How many pairs the level takes at least: 6 for 0.95.
int LeastPairs(double level);

// Fails (kInput) with fewer than LeastPairs(level) pairs, and for times or energies that are not
// above 0.
Result<Comparison> Compare(std::span<const BlockPair> pairs, const ComparisonOptions& options = {});

// "saves 12.1 % of the energy (11.8 to 12.4 % at 95.2 % confidence)"; two lines, one of energy and
// one of time, and a third on what would settle it where something cannot be told.
std::string Describe(const Comparison& comparison, const ComparisonOptions& options = {});

// The interval for the centre of differences that are symmetric around it. Requires
// differences.size() >= LeastPairs(level).
struct SignedRankInterval {
  Interval interval;
  double level = 0;
};
SignedRankInterval CentreOf(std::span<const double> differences, double level);

}  // namespace perseus::profiler
