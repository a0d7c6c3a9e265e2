// Where to cut a model into pipeline stages: the split that is most even in time, and the one that
// costs least energy at the same iteration time.
//
// 1. Balanced: of all contiguous splits the one whose longest stage is shortest, where a stage's
//    time is what it runs of one microbatch, at maximum frequency. Of those, the one whose shortest
//    stage is longest; of those, the one that cuts first earliest (the first ranks of 1F1B hold the
//    most activations). Exact, by dynamic programming in O(layers^2 * stages) integer steps. Its
//    imbalance ratio, longest over shortest, is the least among splits of the shortest longest
//    stage; a split with a longer one may have a smaller ratio.
//
// 2. Least energy at no slowdown: the iteration is no longer than the balanced split's at maximum
//    frequency. The even split is not that of least energy in general: stages alike in time may
//    differ in watts, the position of the longest one decides how long the pipeline fills and
//    drains, and time gained there is given back as energy.
//    - Which splits can keep the time at all. A stage that runs M microbatches takes at least M
//      times what its layers take at their fastest, after the first forward has come through the
//      layers before it (and before the last full backward has gone back through them). That is a
//      limit on each stage alone, so dynamic programming counts the splits that keep to it.
//    - Few enough: each gets the lower bound of its plans (Planner::BoundFor). Else a local search
//      follows the bound from the balanced split, always to the best neighbour, until none is
//      better. A neighbour has a run of consecutive cuts moved by one layer, so that one stage
//      gives a layer's work to another, be it near or far. Moving only one cut at a time gets stuck
//      where stages beside each other are all as long as may be. This is a search and can miss: of
//      300 random models of up to 18 layers and 6 stages 2, by at most 0.92 % (54, by up to 5.4 %,
//      were it one cut at a time).
//    - Those of least bound are planned, best bound first, until the next bound is no less than the
//      best plan, or there are enough plans. The balanced split is always planned, so the result
//      never costs more than its plan.
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
#include <span>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/pipeline/operation_graph.h"
#include "perseus/plan/planner.h"
#include "perseus/profile/profile.h"

namespace perseus {

// As in layer_partition.h: stage s holds the layers from boundaries[s] to before boundaries[s + 1].
using Boundaries = std::vector<int>;

// The balanced split. Requires times > 0 whose sum fits 64 bits. Fails if there are fewer layers
// than stages.
Result<Boundaries> BalancedBoundaries(std::span<const Nanoseconds> layer_times, int stages);

// What each stage takes, of what each layer takes.
std::vector<Nanoseconds> StageTimes(std::span<const Nanoseconds> layer_times,
                                    std::span<const int> boundaries);

// The longest over the shortest: 1 is perfect balance. Requires times > 0.
double ImbalanceRatio(std::span<const Nanoseconds> stage_times);

struct PartitionJob {
  Profile layers;     // As ParseLayers (layer_profile.h) gives them.
  Schedule schedule;  // One chunk a rank.
  PipelineModel model;
};

struct PartitionEffort {
  // All splits are tried if there are no more than this over the operations of an iteration (about
  // ten seconds at the default); else some.
  std::int64_t most_operations = 2'000'000;
  int most_plans = 8;
};

struct PlannedSplit {
  Boundaries boundaries;
  std::vector<Nanoseconds> stage_times;  // Of one microbatch, at maximum frequency.
  Evaluation baseline;                   // Everything at maximum frequency.
  Plan plan;                             // Its deadline is the balanced split's baseline time.
};

struct Partition {
  static constexpr std::int64_t kMostCounted = 1'000'000'000'000'000'000;

  PlannedSplit balanced;
  PlannedSplit least_energy;
  std::int64_t candidates = 0;  // Splits that pass the first test above; at most kMostCounted.
  std::int64_t bounded = 0;     // Of them, those whose bound was computed; the balanced one too.
  bool tried_all = false;       // Then lower_bound_j holds for every split.
  double lower_bound_j = 0;     // The least bound of those tried.

  bool counts_all() const { return candidates < kMostCounted; }
  // Of the plan from lower_bound_j, as Plan::gap().
  double gap() const {
    return std::max(0.0, least_energy.plan.evaluation.energy_j / lower_bound_j - 1);
  }
};

// Fails for a schedule of several chunks a rank, for layers that lack an instruction of the
// schedule, and for what BalancedBoundaries, BuildOperationGraph and the planner refuse of the
// balanced split.
Result<Partition> PartitionLayers(const PartitionJob& job, const PartitionEffort& effort = {});

}  // namespace perseus
