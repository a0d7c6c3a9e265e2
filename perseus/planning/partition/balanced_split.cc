#include "perseus/planning/partition/balanced_split.h"

#include <algorithm>
#include <numeric>

#include "perseus/base/index.h"

namespace perseus::partition {
namespace {

__extension__ using Product = __int128;

// All stages of a split must be between these limits.
struct Limits {
  Nanoseconds shortest = 0;
  Nanoseconds longest = 0;
};

// The least good value of [from, to]. Requires that `to` is good, and that every value above a good
// value is good.
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

  // The least longest stage of all splits whose stages take at least `shortest`. Requires that such
  // a split exists.
  Nanoseconds ShortestLongest(Nanoseconds shortest) const {
    return Bisect(shortest, total(), [&](Nanoseconds longest) {
      return Exists({shortest, longest});
    });
  }

  // The most that the shortest stage can take in a split whose stages take at most `longest`. 0 if
  // no such split exists.
  Nanoseconds LongestShortest(Nanoseconds longest) const {
    const Nanoseconds most = total() / stages_;
    return most - Bisect(0, most, [&](Nanoseconds less) {
             return less == most || Exists({most - less, longest});
           });
  }

  bool Exists(const Limits& limits) const { return Table(limits).back().front(); }

  // The split within the limits with the earliest cuts. Requires that one exists.
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
