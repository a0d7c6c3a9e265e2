#include "perseus/plan/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "perseus/profile/layer_profile.h"

namespace perseus {
namespace {

constexpr double kNoBound = std::numeric_limits<double>::infinity();

std::size_t At(int i) { return static_cast<std::size_t>(i); }

// sums[i] is that of the layers before i.
std::vector<Nanoseconds> PrefixSums(std::span<const Nanoseconds> times) {
  std::vector<Nanoseconds> sums(times.size() + 1, 0);
  std::partial_sum(times.begin(), times.end(), sums.begin() + 1);
  return sums;
}

// For 1 to `stages` stages and every first layer i, the best way to split what is from i on:
// best[s][i] is the best over the second stage's first layer j of
// `combine(time of layers i..j, best[s-1][j])`; nothing where there are too few layers.
template <typename Combine, typename Better>
std::vector<std::vector<Nanoseconds>> BestOfRest(std::span<const Nanoseconds> sums, int stages,
                                                 Nanoseconds worst, Combine combine,
                                                 Better better) {
  const int layers = static_cast<int>(sums.size()) - 1;
  std::vector<std::vector<Nanoseconds>> best(At(stages + 1),
                                             std::vector<Nanoseconds>(sums.size(), worst));
  for (int i = 0; i < layers; ++i) {
    const Nanoseconds whole = sums[At(layers)] - sums[At(i)];
    best[1][At(i)] = combine(whole, whole);
  }
  for (int s = 2; s <= stages; ++s) {
    for (int i = 0; i + s <= layers; ++i) {
      for (int j = i + 1; j + s - 1 <= layers; ++j) {
        const Nanoseconds value = combine(sums[At(j)] - sums[At(i)], best[At(s - 1)][At(j)]);
        if (better(value, best[At(s)][At(i)])) best[At(s)][At(i)] = value;
      }
    }
  }
  return best;
}

// Which stages a split may have, so that it can keep the time at all (see the header).
class StageLimits {
 public:
  StageLimits(const Profile& layers, const Schedule& schedule,
              std::span<const InstructionKind> kinds, Nanoseconds deadline)
      : microbatches_(schedule.microbatches), deadline_(deadline) {
    std::vector<Nanoseconds> work;
    std::vector<Nanoseconds> fill;
    for (int layer = 0; layer < layers.stages(); ++layer) {
      work.push_back(0);
      fill.push_back(0);
      for (const InstructionKind kind : kinds) {
        const auto& options = layers.Find(layer, 0, kind)->options;
        const Nanoseconds fastest = std::ranges::min_element(options, {}, &Option::time)->time;
        work.back() += fastest;
        // A full backward is the last that a rank runs, and goes back through those before.
        if (kind == InstructionKind::kForward || kind == InstructionKind::kBackward) {
          fill.back() += fastest;
        }
      }
    }
    work_ = PrefixSums(work);
    fill_ = PrefixSums(fill);
  }

  int layers() const { return static_cast<int>(work_.size()) - 1; }
  bool Allow(int first, int end) const {
    return (work_[At(end)] - work_[At(first)]) <= (deadline_ - fill_[At(first)]) / microbatches_;
  }

  bool AllowAll(const Boundaries& split) const {
    for (std::size_t stage = 0; stage + 1 < split.size(); ++stage) {
      if (!Allow(split[stage], split[stage + 1])) return false;
    }
    return true;
  }

  // [s][i]: in how many ways the layers from i on make s allowed stages, at most
  // Partition::kMostCounted.
  std::vector<std::vector<std::int64_t>> CountWays(int stages) const {
    std::vector<std::vector<std::int64_t>> ways(At(stages + 1),
                                                std::vector<std::int64_t>(work_.size(), 0));
    ways[0].back() = 1;
    for (int s = 1; s <= stages; ++s) {
      for (int i = 0; i < layers(); ++i) {
        std::int64_t& sum = ways[At(s)][At(i)];
        for (int j = i + 1; j <= layers() && Allow(i, j); ++j) {
          sum = std::min(Partition::kMostCounted, sum + ways[At(s - 1)][At(j)]);
        }
      }
    }
    return ways;
  }

 private:
  std::vector<Nanoseconds> work_;
  std::vector<Nanoseconds> fill_;
  std::int64_t microbatches_;
  Nanoseconds deadline_;
};

// Every split that `limits` allow, in lexicographic order.
void ListSplits(const StageLimits& limits, const std::vector<std::vector<std::int64_t>>& ways,
                int stages_left, Boundaries& begun, std::vector<Boundaries>& all) {
  const int first = begun.back();
  if (stages_left == 0) {
    all.push_back(begun);
    return;
  }
  for (int end = first + 1; end <= limits.layers() && limits.Allow(first, end); ++end) {
    if (ways[At(stages_left - 1)][At(end)] == 0) continue;
    begun.push_back(end);
    ListSplits(limits, ways, stages_left - 1, begun, all);
    begun.pop_back();
  }
}

std::vector<InstructionKind> KindsOf(const Schedule& schedule) {
  std::vector<InstructionKind> kinds;
  for (const auto& rank : schedule.ranks) {
    for (const Action& action : rank) {
      if (std::ranges::find(kinds, action.kind) == kinds.end()) kinds.push_back(action.kind);
    }
  }
  std::ranges::sort(kinds);
  return kinds;
}

// The bounds of splits, each computed once.
class SplitSearch {
 public:
  SplitSearch(const PartitionJob& job, Nanoseconds deadline) : job_(job), deadline_(deadline) {}

  const std::map<Boundaries, double>& bounds() const { return bounds_; }

  // kNoBound if no plan of the split keeps the time, or the planner refuses it.
  double BoundOf(const Boundaries& split);
  // From `start`, from neighbour to neighbour, to where none has a lower bound.
  void Descend(Boundaries start, const StageLimits& limits);

 private:
  const PartitionJob& job_;
  Nanoseconds deadline_;
  std::map<Boundaries, double> bounds_;
};

Result<Planner> PlannerOf(const PartitionJob& job, const Boundaries& split) {
  auto graph = BuildOperationGraph(job.schedule, StageProfile(job.layers, split), job.model);
  if (!graph) return Fail(graph);
  return Planner::Create(*std::move(graph),
                         {job.model.blocking_power_w * job.model.gpus_per_stage, 0});
}

double SplitSearch::BoundOf(const Boundaries& split) {
  const auto [place, is_new] = bounds_.try_emplace(split, kNoBound);
  if (!is_new) return place->second;
  const auto planner = PlannerOf(job_, split);
  if (!planner || planner->least_time() > deadline_) return kNoBound;
  if (const auto bound = planner->BoundFor(deadline_)) place->second = *bound;
  return place->second;
}

// Those with a run of consecutive cuts moved by one layer, and no stage empty.
std::vector<Boundaries> Neighbors(const Boundaries& split) {
  std::vector<Boundaries> neighbors;
  for (const int step : {-1, 1}) {
    for (std::size_t first = 1; first + 1 < split.size(); ++first) {
      Boundaries next = split;
      for (std::size_t last = first; last + 1 < split.size(); ++last) {
        next[last] += step;
        const bool is_empty = next[first - 1] == next[first] || next[last] == next[last + 1];
        if (!is_empty) neighbors.push_back(next);
      }
    }
  }
  return neighbors;
}

void SplitSearch::Descend(Boundaries start, const StageLimits& limits) {
  double least = BoundOf(start);
  while (true) {
    Boundaries best = start;
    for (const Boundaries& next : Neighbors(start)) {
      if (!limits.AllowAll(next)) continue;
      const double bound = BoundOf(next);
      if (bound >= least) continue;
      least = bound;
      best = next;
    }
    if (best == start) return;
    start = std::move(best);
  }
}

Result<PlannedSplit> PlanSplit(const PartitionJob& job, std::span<const Nanoseconds> layer_times,
                               const Boundaries& split, std::optional<Nanoseconds> deadline) {
  const auto planner = PlannerOf(job, split);
  if (!planner) return Fail(planner);
  auto plan = planner->PlanFor(deadline.value_or(planner->baseline().time));
  if (!plan) return Fail(plan);
  plan->target = "no slowdown";
  return PlannedSplit{split, StageTimes(layer_times, split), planner->baseline(), *std::move(plan)};
}

// Fails as the planner does; for a split that it refuses, with the split.
Result<PlannedSplit> PlanBalanced(const PartitionJob& job, std::span<const Nanoseconds> layer_times,
                                  const Boundaries& split) {
  auto planned = PlanSplit(job, layer_times, split, {});
  if (planned || planned.error().kind != ErrorKind::kInput) return planned;
  return Fail("split at layers {}: {}", fmt::join(split, ","), planned.error().message);
}

}  // namespace

Result<Boundaries> BalancedBoundaries(std::span<const Nanoseconds> layer_times, int stages) {
  const auto layers = static_cast<int>(layer_times.size());
  if (stages < 1 || layers < stages) {
    return Fail("{} layers cannot fill {} stages (choose 1 to {} stages)", layers, stages, layers);
  }
  const std::vector<Nanoseconds> sums = PrefixSums(layer_times);
  constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();
  const auto max = [](Nanoseconds a, Nanoseconds b) { return std::max(a, b); };
  const Nanoseconds longest =
      BestOfRest(sums, stages, kNever, max, std::less())[At(stages)].front();
  // 0 where a stage would be longer than that.
  const auto min_if_short = [&](Nanoseconds stage, Nanoseconds rest) {
    return stage > longest ? 0 : std::min(stage, rest);
  };
  const auto shortest = BestOfRest(sums, stages, 0, min_if_short, std::greater());
  const Nanoseconds least = shortest[At(stages)].front();

  Boundaries boundaries{0};
  for (int rest = stages - 1; rest > 0; --rest) {
    const int first = boundaries.back();
    int end = first + 1;
    while (min_if_short(sums[At(end)] - sums[At(first)], shortest[At(rest)][At(end)]) < least) {
      ++end;
    }
    boundaries.push_back(end);
  }
  boundaries.push_back(layers);
  return boundaries;
}

std::vector<Nanoseconds> StageTimes(std::span<const Nanoseconds> layer_times,
                                    std::span<const int> boundaries) {
  const std::vector<Nanoseconds> sums = PrefixSums(layer_times);
  std::vector<Nanoseconds> times;
  for (std::size_t stage = 0; stage + 1 < boundaries.size(); ++stage) {
    times.push_back(sums[At(boundaries[stage + 1])] - sums[At(boundaries[stage])]);
  }
  return times;
}

double ImbalanceRatio(std::span<const Nanoseconds> stage_times) {
  const auto [shortest, longest] = std::ranges::minmax(stage_times);
  return static_cast<double>(longest) / static_cast<double>(shortest);
}

Result<Partition> PartitionLayers(const PartitionJob& job, const PartitionEffort& effort) {
  const auto stages = static_cast<int>(job.schedule.ranks.size());
  if (job.schedule.stages() != stages) {
    return Fail(
        "schedule {} has {} stages on {} ranks, and only whole ranks are cut here (choose one of a "
        "single chunk a rank, such as 1f1b)",
        job.schedule.name, job.schedule.stages(), stages);
  }
  const std::vector<InstructionKind> kinds = KindsOf(job.schedule);
  const auto layer_times = LayerTimes(job.layers, kinds);
  if (!layer_times) return Fail(layer_times);
  const auto boundaries = BalancedBoundaries(*layer_times, stages);
  if (!boundaries) return Fail("{}: {}", job.layers.name(), boundaries.error().message);
  auto balanced = PlanBalanced(job, *layer_times, *boundaries);
  if (!balanced) return Fail(balanced);

  Partition partition{.balanced = *balanced, .least_energy = *std::move(balanced)};
  const Nanoseconds deadline = partition.balanced.baseline.time;
  const StageLimits limits(job.layers, job.schedule, kinds, deadline);
  const auto ways = limits.CountWays(stages);
  partition.candidates = ways[At(stages)].front();
  const auto operations = std::ssize(partition.balanced.plan.options);
  partition.tried_all = partition.candidates <= effort.most_operations / operations;
  SplitSearch search(job, deadline);
  if (partition.tried_all) {
    std::vector<Boundaries> all;
    Boundaries begun{0};
    ListSplits(limits, ways, stages, begun, all);
    for (const Boundaries& split : all) search.BoundOf(split);
  } else {
    search.Descend(*boundaries, limits);
  }

  partition.bounded = std::ssize(search.bounds());
  std::vector<std::pair<double, Boundaries>> by_bound;
  for (const auto& [split, bound] : search.bounds()) by_bound.emplace_back(bound, split);
  std::ranges::sort(by_bound);
  partition.lower_bound_j = by_bound.front().first;
  int plans = 0;
  for (const auto& [bound, split] : by_bound) {
    const double best_j = partition.least_energy.plan.evaluation.energy_j;
    if (bound >= best_j || plans == effort.most_plans) break;
    if (split == *boundaries) continue;
    ++plans;
    auto planned = PlanSplit(job, *layer_times, split, deadline);
    if (!planned) return Fail(planned);
    if (planned->plan.evaluation.energy_j < best_j) partition.least_energy = *std::move(planned);
  }
  return partition;
}

}  // namespace perseus
