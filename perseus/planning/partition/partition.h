// Where to cut a model into pipeline stages: the split that is most even in time, the fastest, and
// the one that costs least energy while it is as fast.
//
// A stage's time is what it runs of one microbatch, at maximum frequency.
//
// 1. Balanced: of all contiguous splits that of least imbalance, the longest stage over the
//    shortest. Exact (balanced_split.h).
//
// 2. Fastest: the shortest iteration with everything at maximum frequency. Stages alike in time
//    need not be that: a schedule's time depends on where its longest stage is, and on how long the
//    pipeline fills and drains, too.
//
// 3. Least energy at no slowdown: its iteration is no longer than the fastest split's at maximum
//    frequency. Stages alike in time may differ in watts, and time gained by another split is given
//    back as energy.
//
// Of the last two:
//    - Which splits can keep the time at all. A stage that runs M microbatches takes at least M
//      times what its layers take at their fastest, after the first forward has come through the
//      layers before it (and before the last full backward has gone back through them). That is a
//      limit on each stage alone, so dynamic programming counts the splits that keep to it.
//      The time to keep is at first the better one of the balanced split and that of the shortest
//      longest stage, then the fastest's.
//    - Few enough: each is timed, and then gets the lower bound of its plans (Planner::BoundFor).
//      Else a local search follows the time, and then the bound, always to the best neighbour,
//      until none is better. A neighbour has a run of consecutive cuts moved by one layer, so that
//      one stage gives a layer's work to another, be it near or far. Moving only one cut at a time
//      gets stuck where stages beside each other are all as long as may be. This is a search and
//      can miss: of 300 random models of up to 16 layers and 6 stages it found the fastest split of
//      all but one, which was 5.3 % slower, and where it did, always the least bound.
//    - Those of least bound are planned, best bound first, until the next bound is no less than the
//      best plan, or there are enough plans. The fastest split is always planned, so the result
//      never costs more than its plan. It may cost more than the balanced split's plan, which may
//      take as long as that split does at maximum frequency.
//    Where all were tried, `lower_bound_j` is a certificate: no split whatsoever has a plan that
//    keeps the time and costs less. Splits that the planner refuses (a stage of which no clock
//    changes anything useful, such as an embedding alone) do not count as splits in this.
//
// What it does not look at: memory. A stage of more layers needs more, and the first ranks of 1F1B
// hold the most activations.
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
  profile::Profile layers;      // As ParseLayers (layer_profile.h) gives them.
  schedule::Schedule schedule;  // One chunk a rank.
  schedule::PipelineModel model;
};

struct PartitionEffort {
  // All splits are tried if there are no more than this over the instructions of an iteration
  // (about ten seconds at the default); else some.
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

  PlannedSplit balanced;      // Its plan's deadline is its own baseline time.
  PlannedSplit fastest;       // The deadline of both plans
  PlannedSplit least_energy;  // is the fastest split's baseline time.
  // Splits that pass the test above with the fastest split's time; at most kMostCounted.
  std::int64_t candidates = 0;
  std::int64_t bounded = 0;  // Of them, those whose bound was computed; the fastest one too.
  bool tried_all = false;    // Then none is faster, and lower_bound_j holds for every split.
  double lower_bound_j = 0;  // The least bound of those tried.

  bool counts_all() const { return candidates < kMostCounted; }
  // Of the plan from lower_bound_j, as Plan::gap().
  double gap() const {
    return std::max(0.0, least_energy.plan.evaluation.energy_j / lower_bound_j - 1);
  }
};

// Fails for a schedule of several chunks a rank, for layers that lack an instruction of the
// schedule, and for what BalancedBoundaries, BuildInstructionGraph and the planner refuse of the
// balanced split.
Result<Partition> PartitionLayers(const PartitionJob& job, const PartitionEffort& effort = {});

}  // namespace perseus::partition
