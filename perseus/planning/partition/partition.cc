#include "perseus/planning/partition/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/planning/profile/layer_profile.h"

namespace perseus::partition {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// The stages that a split may have if it has to keep the time (see the header).
class StageLimits {
 public:
  StageLimits(const profile::Profile& layers, const schedule::Schedule& schedule,
              std::span<const InstructionKind> kinds, Nanoseconds deadline)
      : microbatches_(schedule.microbatches), deadline_(deadline) {
    std::vector<Nanoseconds> work;
    std::vector<Nanoseconds> fill;
    for (int layer = 0; layer < LayerCount(layers); ++layer) {
      work.push_back(0);
      fill.push_back(0);
      for (const InstructionKind kind : kinds) {
        const auto& options = layers.Find(layer, 0, kind)->options;
        const Nanoseconds fastest =
            std::ranges::min_element(options, {}, &profile::Option::time)->time;
        work.back() += fastest;
        // A full backward is the last instruction of a pp_rank. Its gradient then passes the
        // earlier layers.
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

  // [s][i] The number of ways to make s allowed stages of the layers from i on, at most
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

void ListRest(const StageLimits& limits, const std::vector<std::vector<std::int64_t>>& ways,
              int stages_left, Boundaries& begun, std::vector<Boundaries>& all) {
  const int first = begun.back();
  if (stages_left == 0) {
    all.push_back(begun);
    return;
  }
  for (int end = first + 1; end <= limits.layers() && limits.Allow(first, end); ++end) {
    if (ways[At(stages_left - 1)][At(end)] == 0) continue;
    begun.push_back(end);
    ListRest(limits, ways, stages_left - 1, begun, all);
    begun.pop_back();
  }
}

// Every split that `limits` allow, in lexicographic order.
std::vector<Boundaries> ListSplits(const StageLimits& limits, int stages) {
  std::vector<Boundaries> all;
  Boundaries begun{0};
  ListRest(limits, limits.CountWays(stages), stages, begun, all);
  return all;
}

std::vector<InstructionKind> KindsOf(const schedule::Schedule& schedule) {
  std::vector<InstructionKind> kinds;
  for (const auto& pp_rank : schedule.pp_ranks) {
    for (const schedule::Instruction& instruction : pp_rank) {
      if (std::ranges::find(kinds, instruction.kind) == kinds.end())
        kinds.push_back(instruction.kind);
    }
  }
  std::ranges::sort(kinds);
  return kinds;
}

Result<plan::Planner> PlannerOf(const PartitionJob& job, const Boundaries& split) {
  PERSEUS_ASSIGN_OR_RETURN(auto graph,
                           schedule::BuildInstructionGraph(
                               job.schedule, profile::StageProfile(job.layers, split), job.model));
  return plan::Planner::Create(std::move(graph),
                               {job.model.blocking_power_w * job.model.gpus_per_stage, 0});
}

// The splits in which a run of consecutive cuts is moved by one layer, without an empty stage.
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

// Computes a value for each split only once. Descend goes from a split to its best neighbor, until
// no neighbor has a lower value.
class SplitSearch {
 public:
  using Value = std::function<double(const Boundaries&)>;
  explicit SplitSearch(Value value) : value_(std::move(value)) {}

  // The values of the splits that were tried.
  const std::map<Boundaries, double>& values() const { return values_; }
  // The split of least value. If several have it, the first in lexicographic order.
  const Boundaries& best() const {
    return std::ranges::min_element(values_, {}, [](const auto& entry) { return entry.second; })
        ->first;
  }

  double ValueOf(const Boundaries& split) {
    const auto [place, is_new] = values_.try_emplace(split, 0);
    if (is_new) place->second = value_(split);
    return place->second;
  }

  void Descend(Boundaries start, const StageLimits& limits) {
    double least = ValueOf(start);
    while (true) {
      Boundaries best = start;
      for (const Boundaries& next : Neighbors(start)) {
        if (!limits.AllowAll(next)) continue;
        const double value = ValueOf(next);
        if (value >= least) continue;
        least = value;
        best = next;
      }
      if (best == start) return;
      start = std::move(best);
    }
  }

 private:
  Value value_;
  std::map<Boundaries, double> values_;
};

Result<PlannedSplit> PlanSplit(const PartitionJob& job, std::span<const Nanoseconds> layer_times,
                               const Boundaries& split, std::optional<Nanoseconds> deadline) {
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, PlannerOf(job, split));
  PERSEUS_ASSIGN_OR_RETURN(auto plan, planner.PlanFor(deadline.value_or(planner.baseline().time)));
  plan.target = "no slowdown";
  return PlannedSplit{split, StageTimes(layer_times, split), planner.baseline(), std::move(plan)};
}

// Fails as the planner does. If the planner refuses the split, the message contains the split.
Result<PlannedSplit> PlanBalanced(const PartitionJob& job, std::span<const Nanoseconds> layer_times,
                                  const Boundaries& split) {
  auto planned = PlanSplit(job, layer_times, split, {});
  if (planned || planned.error().kind != ErrorKind::kInput) return planned;
  return Fail(planned, fmt::format("the split at layers {}", fmt::join(split, ",")));
}

// The baseline time, or kNone if the planner refuses the split.
double BaselineNanoseconds(const PartitionJob& job, const Boundaries& split) {
  const auto planner = PlannerOf(job, split);
  return planner ? static_cast<double>(planner->baseline().time) : kNone;
}

// The lower bound of the plans of a split, in J. kNone if no plan of the split meets the deadline,
// or if the planner refuses the split.
double BoundOf(const PartitionJob& job, const Boundaries& split, Nanoseconds deadline) {
  const auto planner = PlannerOf(job, split);
  if (!planner || planner->least_time() > deadline) return kNone;
  const auto bound = planner->BoundFor(deadline);
  return bound ? *bound : kNone;
}

// Plans the splits in order of their bounds. Ends when a bound is not below the energy of the best
// plan so far.
Result<void> PlanBest(const PartitionJob& job, std::span<const Nanoseconds> layer_times,
                      const std::map<Boundaries, double>& bounds, int most_plans,
                      Partition& partition) {
  std::vector<std::pair<double, Boundaries>> by_bound;
  for (const auto& [split, bound] : bounds) by_bound.emplace_back(bound, split);
  std::ranges::sort(by_bound);
  partition.lower_bound_j = by_bound.front().first;
  int plans = 0;
  for (const auto& [bound, split] : by_bound) {
    const double best_j = partition.least_energy.plan.evaluation.energy_j;
    if (bound >= best_j || plans == most_plans) break;
    if (split == partition.fastest.boundaries) continue;
    ++plans;
    PERSEUS_ASSIGN_OR_RETURN(auto planned,
                             PlanSplit(job, layer_times, split, partition.fastest.baseline.time));
    if (planned.plan.evaluation.energy_j < best_j) partition.least_energy = std::move(planned);
  }
  return {};
}

__extension__ using Product = __int128;

// All stages of a split must be between these limits.
struct Limits {
  Nanoseconds shortest = 0;
  Nanoseconds longest = 0;
};

// Returns the least good value in [from, to]. Requires that `to` is good, and that every value
// above a good value is also good.
template <typename IsGood>
Nanoseconds Bisect(Nanoseconds from, Nanoseconds to, IsGood is_good) {
  while (from < to) {
    const Nanoseconds middle = from + (to - from) / 2;
    if (is_good(middle)) {
      to = middle;
    } else {
      from = middle + 1;
    }
  }
  return from;
}

class Splits {
 public:
  Splits(std::span<const Nanoseconds> layer_times, int stages)
      : sums_(PrefixSums(layer_times)), stages_(stages) {}

  Nanoseconds total() const { return sums_.back(); }

  // Among all splits with stages of at least `shortest`, finds the one with the shortest longest
  // stage, and returns the time of this stage. Requires that such a split exists.
  Nanoseconds ShortestLongest(Nanoseconds shortest) const {
    return Bisect(shortest, total(), [&](Nanoseconds longest) {
      return Exists({shortest, longest});
    });
  }

  // The same for splits with stages of at most `longest`: returns the longest time of the shortest
  // stage. 0 if no such split exists.
  Nanoseconds LongestShortest(Nanoseconds longest) const {
    const Nanoseconds most = total() / stages_;
    return most - Bisect(0, most, [&](Nanoseconds less) {
             return less == most || Exists({most - less, longest});
           });
  }

  bool Exists(const Limits& limits) const { return Table(limits).back().front(); }

  // Returns the split within the limits that has the earliest cuts. Requires that a split exists.
  Boundaries Earliest(const Limits& limits) const {
    const auto can_rest = Table(limits);
    Boundaries boundaries{0};
    for (int rest = stages_ - 1; rest >= 0; --rest) {
      int end = WithinReach(boundaries.back(), limits).first;
      while (!can_rest[At(rest)][At(end)]) ++end;
      boundaries.push_back(end);
    }
    return boundaries;
  }

 private:
  int layers() const { return static_cast<int>(sums_.size()) - 1; }

  // The ends [first, second) that the limits allow for a stage that begins at `begin`.
  std::pair<int, int> WithinReach(int begin, const Limits& limits) const {
    const auto from = sums_.begin() + begin + 1;
    const Nanoseconds before = sums_[At(begin)];
    // The code compares differences, because a sum with a limit may overflow.
    const auto first = std::partition_point(
        from, sums_.end(), [&](Nanoseconds sum) { return sum - before < limits.shortest; });
    const auto second = std::partition_point(
        first, sums_.end(), [&](Nanoseconds sum) { return sum - before <= limits.longest; });
    return {static_cast<int>(first - sums_.begin()), static_cast<int>(second - sums_.begin())};
  }

  // [s][i]: whether the layers from i on can make s stages within the limits.
  std::vector<std::vector<bool>> Table(const Limits& limits) const {
    std::vector<std::pair<int, int>> reach;
    for (int i = 0; i < layers(); ++i) reach.push_back(WithinReach(i, limits));
    std::vector<std::vector<bool>> can(At(stages_ + 1), std::vector<bool>(sums_.size(), false));
    can[0].back() = true;
    std::vector<int> ends_before(sums_.size() + 1, 0);  // Counts the true values of can[s - 1].
    for (int s = 1; s <= stages_; ++s) {
      for (int i = 0; i <= layers(); ++i) {
        ends_before[At(i + 1)] = ends_before[At(i)] + (can[At(s - 1)][At(i)] ? 1 : 0);
      }
      for (int i = 0; i < layers(); ++i) {
        const auto [first, second] = reach[At(i)];
        can[At(s)][At(i)] = ends_before[At(second)] > ends_before[At(first)];
      }
    }
    return can;
  }

  std::vector<Nanoseconds> sums_;
  int stages_;
};

Result<void> CheckCounts(std::span<const Nanoseconds> layer_times, int stages) {
  const auto layers = static_cast<int>(layer_times.size());
  if (stages >= 1 && layers >= stages) return {};
  return Fail("{} layers cannot fill {} stages (choose 1 to {} stages)", layers, stages, layers);
}

}  // namespace

Result<Partition> PartitionLayers(const PartitionJob& job, const PartitionEffort& effort) {
  const auto stages = static_cast<int>(job.schedule.pp_ranks.size());
  if (job.schedule.stages() != stages) {
    return Fail(
        "schedule {} has {} stages on {} pp_ranks, but a partition needs one stage on each pp_rank "
        "(choose a schedule with a single chunk, such as 1f1b)",
        job.schedule.name, job.schedule.stages(), stages);
  }
  const std::vector<InstructionKind> kinds = KindsOf(job.schedule);
  PERSEUS_ASSIGN_OR_RETURN(const auto layer_times, profile::LayerTimes(job.layers, kinds));
  const auto boundaries = BalancedBoundaries(layer_times, stages);
  if (!boundaries) return Fail(boundaries, InFile(job.layers.name()));
  PERSEUS_ASSIGN_OR_RETURN(auto balanced, PlanBalanced(job, layer_times, *boundaries));

  // Finds the fastest split among those that may be as fast as the better one of two splits.
  SplitSearch times([&](const Boundaries& split) { return BaselineNanoseconds(job, split); });
  times.ValueOf(*boundaries);
  times.ValueOf(*ShortestLongestBoundaries(layer_times, stages));
  Boundaries start = times.best();
  const StageLimits as_fast(job.layers, job.schedule, kinds,
                            static_cast<Nanoseconds>(times.ValueOf(start)));
  const auto instructions = std::ssize(balanced.plan.options);
  const bool tries_all =
      as_fast.CountWays(stages)[At(stages)].front() <= effort.most_instructions / instructions;
  if (tries_all) {
    for (const Boundaries& split : ListSplits(as_fast, stages)) times.ValueOf(split);
  } else {
    times.Descend(start, as_fast);
  }
  const bool is_balanced = times.ValueOf(*boundaries) == times.ValueOf(times.best());
  PERSEUS_ASSIGN_OR_RETURN(
      auto fastest, PlanSplit(job, layer_times, is_balanced ? *boundaries : times.best(), {}));

  Partition partition{
      .balanced = std::move(balanced), .fastest = fastest, .least_energy = std::move(fastest)};
  const Nanoseconds deadline = partition.fastest.baseline.time;
  const StageLimits limits(job.layers, job.schedule, kinds, deadline);
  SplitSearch bounds([&](const Boundaries& split) { return BoundOf(job, split, deadline); });
  if (tries_all) {
    for (const Boundaries& split : ListSplits(limits, stages)) bounds.ValueOf(split);
  } else {
    bounds.Descend(partition.fastest.boundaries, limits);
  }
  partition.candidates = limits.CountWays(stages)[At(stages)].front();
  partition.bounded = std::ssize(bounds.values());
  partition.tried_all = tries_all;
  if (auto planned = PlanBest(job, layer_times, bounds.values(), effort.most_plans, partition);
      !planned) {
    return Fail(planned);
  }
  return partition;
}

std::vector<Nanoseconds> PrefixSums(std::span<const Nanoseconds> times) {
  std::vector<Nanoseconds> sums(times.size() + 1, 0);
  std::partial_sum(times.begin(), times.end(), sums.begin() + 1);
  return sums;
}

Result<Boundaries> BalancedBoundaries(std::span<const Nanoseconds> layer_times, int stages) {
  PERSEUS_RETURN_IF_ERROR(CheckCounts(layer_times, stages));
  const Splits splits(layer_times, stages);
  const Nanoseconds most_shortest = splits.LongestShortest(splits.total());
  const auto is_less = [](const Limits& one, const Limits& other) {
    return Product{one.longest} * other.shortest < Product{other.longest} * one.shortest;
  };
  Limits best;
  for (Nanoseconds shortest = 1; shortest <= most_shortest;) {
    Limits limits{shortest, splits.ShortestLongest(shortest)};
    // Every further split has at least this longest stage, and at most `most_shortest`.
    if (best.longest > 0 && !is_less({most_shortest, limits.longest}, best)) break;
    limits.shortest = splits.LongestShortest(limits.longest);
    if (best.longest == 0 || is_less(limits, best)) best = limits;
    shortest = limits.shortest + 1;
  }
  return splits.Earliest(best);
}

Result<Boundaries> ShortestLongestBoundaries(std::span<const Nanoseconds> layer_times, int stages) {
  PERSEUS_RETURN_IF_ERROR(CheckCounts(layer_times, stages));
  const Splits splits(layer_times, stages);
  const Nanoseconds longest = splits.ShortestLongest(1);
  return splits.Earliest({splits.LongestShortest(longest), longest});
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

}  // namespace perseus::partition
