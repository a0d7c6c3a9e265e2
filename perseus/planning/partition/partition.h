// Where to cut a model into pipeline stages: the most balanced split, the fastest split, and the
// split with the least energy among the splits that are as fast.
//
// The time of a stage is the time of its instructions for one microbatch at maximum frequency.
//
// 1. Balanced: the contiguous split with the least imbalance, which is the time of the longest
//    stage divided by the time of the shortest. Exact (balanced_split.h).
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
//     - First, a test excludes splits that cannot keep the time. A stage that runs M microbatches
//       takes at least M times the time of its layers at their fastest, after the first forward has
//       passed the layers before it (and before the last full backward has passed back through
//       them). This is a limit for each stage alone, so dynamic programming counts the splits that
//       satisfy it. The time to keep is at first the better one of two splits, the balanced one and
//       the one with the shortest longest stage. Later it is the time of the fastest split.
//     - If there are few such splits, each is timed, and then gets the lower bound of its plans
//       (Planner::BoundFor). If there are many, a local search follows the time, and then the
//       bound, always to the best neighbor, until no neighbor is better. A neighbor has a run of
//       consecutive cuts moved by one layer, so one stage gives the work of a layer to another
//       stage, near or far. A search that moves only one cut at a time gets stuck if adjacent
//       stages are all as long as allowed. The search can miss the best split: for 299 of 300
//       random models of up to 16 layers and 6 stages, it found the fastest split. For the other
//       one, its split was 5.3 % slower. If it found the fastest split, it always found the least
//       bound, too.
//     - The splits with the least bounds are planned, best bound first, until the next bound is no
//       less than the energy of the best plan, or until there are enough plans. The fastest split
//       is always planned, so the result never has more energy than the plan of the fastest split.
//       It may have more energy than the plan of the balanced split, whose deadline is the balanced
//       split's own time at maximum frequency.
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
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/partition/balanced_split.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::partition {

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
  std::vector<Nanoseconds> stage_times;  // Of one microbatch, at maximum frequency.
  plan::Evaluation baseline;             // Everything at maximum frequency.
  plan::Plan plan;
};

struct Partition {
  static constexpr std::int64_t kMostCounted = 1'000'000'000'000'000'000;

  PlannedSplit balanced;      // The deadline of its plan is its own baseline time.
  PlannedSplit fastest;       // The deadline of its plan is its own baseline time.
  PlannedSplit least_energy;  // The deadline of its plan is the baseline time of `fastest`.
  // The number of splits that pass the test above for the time of `fastest`; at most kMostCounted.
  std::int64_t candidates = 0;
  std::int64_t bounded = 0;  // How many of them have a computed bound, `fastest` included.
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
