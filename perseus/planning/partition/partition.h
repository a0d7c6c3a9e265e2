// Chooses where to cut a model into pipeline stages. There are three results: the most balanced
// split, the fastest split, and, among the splits that are as fast, the split with the least
// energy.
//
// The time of a stage is the time of its instructions for one microbatch at maximum frequency.
//
// 1. Balanced: the contiguous split with the least imbalance, which is the time of the longest
//    stage divided by the time of the shortest. Exact (BalancedBoundaries).
//
// 2. Fastest: the split with the shortest iteration at maximum frequency. This need not be the
//    balanced split: the time of a schedule also depends on where its longest stage is, and on how
//    long the pipeline fills and drains.
//
// 3. Least energy with no slowdown: its iteration is no longer than the iteration of the fastest
//    split at maximum frequency. Stages with the same time may differ in power, and a plan turns
//    the slack of a faster split into saved energy.
//
// How the last two are found:
//     - First, a test excludes splits that cannot keep the time. Suppose that a stage runs M
//       microbatches. It takes at least M times the time of its layers at their fastest. Before
//       that, the first forward has to pass the earlier layers. After that, the last full backward
//       has to pass back through these layers. This is a limit for each stage alone, so dynamic
//       programming counts the splits that satisfy it. At first, the time to keep is the better
//       time of two splits: the balanced split, and the split with the shortest longest stage.
//       Later, it is the time of the fastest split.
//     - If few splits pass this test, the method times each of them, and computes the lower bound
//       of its plans (Planner::BoundFor). If many splits pass, a local search minimizes the time,
//       and then the bound. It always goes to the best neighbor, until no neighbor is better. A
//       neighbor moves a run of consecutive cuts by one layer, so one stage gives the work of a
//       layer to another stage, near or far. (If a search moves only one cut at a time, it gets
//       stuck when adjacent stages are all as long as allowed.) The search can miss the best split:
//       for 299 of 300 random models of up to 16 layers and 6 stages, it found the fastest split.
//       In the other case, its split was 5.3 % slower. Whenever it found the fastest split, it also
//       found the least bound.
//     - The splits with the least bounds are planned, best bound first. This ends when the next
//       bound is at least the energy of the best plan, or when there are enough plans. The fastest
//       split is always planned, so the result never has more energy than its plan. The result may
//       have more energy than the plan of the balanced split, because that plan has a different
//       deadline: the time of the balanced split at maximum frequency.
//     If all splits were tried, `lower_bound_j` is a certificate: no plan of any split that keeps
//     the time has less energy. Splits that the planner refuses do not count here. (The planner
//     refuses a stage for which no clock makes a useful difference, such as an embedding alone.)
//
// The search does not consider GPU memory. A stage with more layers needs more memory, and the
// first pp_ranks of 1F1B hold the most activations.
//
// Deterministic: the same input gives the same splits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::partition {

// Splits a sequence of layers into stages with times as equal as possible.
//
// *Imbalance* is the time of the longest stage divided by the time of the shortest stage: 1 at
// best. The split with the shortest longest stage need not have the least imbalance. Example: the
// layers 1, 8, 5, 3, 3, 3, 2 in four stages make 1, 8, 8, 8 (imbalance 8) or 9, 5, 6, 5 (imbalance
// 1.8).
//
// The idea. Dynamic programming decides whether a split exists in which all stages are between two
// limits. The layers from i on can make s such stages if two conditions hold for some j: the layers
// from i to j - 1 are a stage within the limits, and the layers from j on can make s - 1 stages.
// The time of the stage grows with j, so the possible j are an interval, and a running count
// answers in constant time: O(layers * stages). Bisection then finds the shortest longest stage for
// a given shortest stage, and the longest shortest stage for a given longest stage. Both bisections
// in turn visit all splits that no other split beats in both values. One of these splits has the
// least imbalance. The search ends as soon as the imbalance can only rise: after at most 5 splits
// for 50 to 2,000 layers with random times in 4 to 32 stages, in less than a tenth of a second.
//
// Exact: it uses integers, without tolerances. Deterministic.
//
// Stage s has the layers boundaries[s] to boundaries[s + 1] - 1.
using Boundaries = std::vector<int>;

// Returns the split with the least imbalance. If several have it, returns the one with the shortest
// longest stage, and among these the one with the earliest cuts (the first pp_ranks of 1F1B hold
// the most activations). Requires times above 0 with a sum that fits 64 bits. Fails if there are
// fewer layers than stages.
Result<Boundaries> BalancedBoundaries(std::span<const Nanoseconds> layer_times, int stages);

// Returns the split with the shortest longest stage. If several have it, returns the one with the
// longest shortest stage, and among these the one with the earliest cuts. Requires and fails as
// BalancedBoundaries does.
Result<Boundaries> ShortestLongestBoundaries(std::span<const Nanoseconds> layer_times, int stages);

// The time of each stage, from the time of each layer.
std::vector<Nanoseconds> StageTimes(std::span<const Nanoseconds> layer_times,
                                    std::span<const int> boundaries);

// Returns the longest time divided by the shortest time. Requires times above 0.
double ImbalanceRatio(std::span<const Nanoseconds> stage_times);

// Element i is the sum of the first i times.
std::vector<Nanoseconds> PrefixSums(std::span<const Nanoseconds> times);

struct PartitionJob {
  profile::Profile layers;      // From ParseLayers (layer_profile.h).
  schedule::Schedule schedule;  // With one chunk on each pp_rank.
  schedule::PipelineModel model;
};

struct PartitionEffort {
  // If the number of splits times the instructions of an iteration is at most this, all splits are
  // tried (about ten seconds with the default). Otherwise, a local search tries some.
  std::int64_t most_instructions = 2'000'000;
  int most_plans = 8;
};

struct PlannedSplit {
  Boundaries boundaries;
  std::vector<Nanoseconds> stage_times;  // For one microbatch, at maximum frequency.
  plan::Evaluation baseline;             // All instructions at maximum frequency.
  plan::Plan plan;
};

struct Partition {
  static constexpr std::int64_t kMostCounted = 1'000'000'000'000'000'000;

  PlannedSplit balanced;      // The deadline of its plan is its own baseline time.
  PlannedSplit fastest;       // The deadline of its plan is its own baseline time.
  PlannedSplit least_energy;  // The deadline of its plan is the baseline time of `fastest`.
  // The number of splits that pass the test above for the time of `fastest`; at most kMostCounted.
  std::int64_t candidates = 0;
  std::int64_t bounded = 0;  // The candidates with a computed bound, `fastest` included.
  bool tried_all = false;    // If true, no split is faster, and lower_bound_j holds for all splits.
  double lower_bound_j = 0;  // The least bound of the splits that were tried.

  bool counts_all() const { return candidates < kMostCounted; }
  // How far the plan may be from lower_bound_j, as Plan::gap().
  double gap() const {
    return std::max(0.0, least_energy.plan.evaluation.energy_j / lower_bound_j - 1);
  }
};

// Fails (kInput) if the schedule has several chunks on a pp_rank, if the layers lack an instruction
// of the schedule, or if BalancedBoundaries, BuildInstructionGraph or the planner refuses the
// balanced split.
Result<Partition> PartitionLayers(const PartitionJob& job, const PartitionEffort& effort = {});

}  // namespace perseus::partition
