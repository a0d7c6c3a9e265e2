#include "perseus/planning/few_switches/segment_program.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

namespace perseus::few_switches {

// Fills costs_ and least_ for 0 .. `changes` changes.
void SegmentProgram::Run(int changes, int held, Direction direction) {
  const std::size_t clocks = At(clocks_);
  const std::size_t levels = At(changes) + 1;
  costs_.assign(levels * clocks, kForbidden);
  least_.assign(levels, kForbidden);
  for (int step = 0; step < positions_; ++step) {
    const int position = direction == Direction::kForward ? step : positions_ - 1 - step;
    const double* weight = weights_.data() + At(position) * clocks;
    // The change between this position and the one before it in `direction`.
    const double change =
        change_costs_[At(direction == Direction::kForward || step == 0 ? position : position + 1)];
    for (std::size_t k = levels; k-- > 0;) {
      double* cost = costs_.data() + k * clocks;
      if (step == 0) {
        for (std::size_t c = 0; c < clocks; ++c) {
          if (held == kAny || c == At(held)) cost[c] = weight[c];
          least_[k] = std::min(least_[k], cost[c]);
        }
        continue;
      }
      const double from_other = k > 0 ? least_[k - 1] + change : kForbidden;
      // Two independent chains of minima, because each one waits for the one before.
      double even = std::numeric_limits<double>::infinity();
      double odd = even;
      std::size_t c = 0;
      for (; c + 1 < clocks; c += 2) {
        cost[c] = std::min(cost[c], from_other) + weight[c];
        cost[c + 1] = std::min(cost[c + 1], from_other) + weight[c + 1];
        even = std::min(even, cost[c]);
        odd = std::min(odd, cost[c + 1]);
      }
      if (c < clocks) {
        cost[c] = std::min(cost[c], from_other) + weight[c];
        even = std::min(even, cost[c]);
      }
      least_[k] = std::min(even, odd);
    }
  }
}

SegmentProgram::Best SegmentProgram::Search(int changes) {
  // One change is none, and more changes than positions are of no use.
  changes = std::min(changes == 1 ? 0 : changes, positions_);
  Best best;
  Run(changes, kAny, Direction::kForward);
  const auto level = costs_.begin() + static_cast<std::ptrdiff_t>(At(changes) * At(clocks_));
  std::vector<double> bounds(level, level + clocks_);  // [clock] of case 2.
  if (changes == 0) {
    best.cost = least_[0];
    best.held = static_cast<int>(std::min_element(bounds.begin(), bounds.end()) - bounds.begin());
    return best;
  }
  best = {least_[At(changes) - 1] + change_costs_[0], changes - 1, kAny};
  Run(changes, kAny, Direction::kBackward);
  for (std::size_t c = 0; c < bounds.size(); ++c) {
    bounds[c] = std::max(bounds[c], costs_[At(changes) * At(clocks_) + c]);
  }
  std::vector<int> order(bounds.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return bounds[At(a)] < bounds[At(b)]; });
  for (const int clock : order) {
    if (bounds[At(clock)] >= best.cost) break;
    Run(changes, clock, Direction::kForward);
    const double cost = costs_[At(changes) * At(clocks_) + At(clock)];
    if (cost < best.cost) best = {cost, changes, clock};
  }
  return best;
}

// Runs the program of `best` again, and remembers each decision: whether a clock follows another
// one, and which one that is.
std::vector<int> SegmentProgram::Trace(const Best& best) {
  const std::size_t clocks = At(clocks_);
  const std::size_t levels = At(best.changes) + 1;
  is_change_.resize(At(positions_) * levels * clocks);
  least_clock_.resize(At(positions_) * levels);
  costs_.assign(levels * clocks, kForbidden);
  least_.assign(levels, kForbidden);
  for (int p = 0; p < positions_; ++p) {
    const double* weight = weights_.data() + At(p) * clocks;
    for (std::size_t k = levels; k-- > 0;) {
      double* cost = costs_.data() + k * clocks;
      const double from_other = p > 0 && k > 0 ? least_[k - 1] + change_costs_[At(p)] : kForbidden;
      if (p == 0) {
        for (std::size_t c = 0; c < clocks; ++c) {
          const bool may_begin = best.held == kAny || c == At(best.held);
          cost[c] = (may_begin ? 0 : kForbidden) + weight[c];
        }
      } else {
        std::uint8_t* is_change = is_change_.data() + (At(p) * levels + k) * clocks;
        for (std::size_t c = 0; c < clocks; ++c) {
          is_change[c] = static_cast<std::uint8_t>(from_other < cost[c]);
          cost[c] = std::min(cost[c], from_other) + weight[c];
        }
      }
      const double* least = std::min_element(cost, cost + clocks);
      least_[k] = *least;
      least_clock_[At(p) * levels + k] = static_cast<std::int16_t>(least - cost);
    }
  }
  std::vector<int> chosen(At(positions_));
  std::size_t k = levels - 1;
  int clock = best.held == kAny ? least_clock_[At(positions_ - 1) * levels + k] : best.held;
  for (int p = positions_ - 1; p >= 0; --p) {
    chosen[At(p)] = clock;
    if (p == 0 || is_change_[(At(p) * levels + k) * clocks + At(clock)] == 0) continue;
    --k;
    clock = least_clock_[At(p - 1) * levels + k];
  }
  return chosen;
}

SegmentProgram::Answer SegmentProgram::Solve(int changes) {
  const Best best = Search(changes);
  if (best.cost >= kForbidden) return {best.cost, {}};
  return {best.cost, Trace(best)};
}

}  // namespace perseus::few_switches
