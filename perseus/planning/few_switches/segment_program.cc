#include "perseus/planning/few_switches/segment_program.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

namespace perseus::few_switches {
namespace {

// Minima are computed in this many independent chains, because each minimum of a chain waits for
// the previous minimum.
constexpr std::size_t kLanes = 4;

// One step of the program for one number of changes: to[c] = min(from[c], from_other) + weight[c].
// Returns the least to[c]. `to` and `from` may be the same row.
double Advance(const double* from, double from_other, const double* weight, std::size_t stride,
               double* to) {
  double least[kLanes];
  std::fill_n(least, kLanes, std::numeric_limits<double>::infinity());
  for (std::size_t c = 0; c < stride; c += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double cost = std::min(from[c + lane], from_other) + weight[c + lane];
      to[c + lane] = cost;
      least[lane] = std::min(least[lane], cost);
    }
  }
  return std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
}

}  // namespace

SegmentProgram::SegmentProgram(int positions, int clocks)
    : positions_(positions),
      clocks_(clocks),
      stride_((At(clocks) + kLanes - 1) / kLanes * kLanes),
      weights_(At(positions) * stride_, kForbidden),
      change_costs_(At(positions), 0) {
  for (int p = 0; p < positions; ++p) {
    for (int c = 0; c < clocks; ++c) weight(p, c) = 0;
  }
}

// Fills costs_ and least_ for 0 .. `changes` changes, or for kAnyNumber. Keeps either the last step
// or every step.
void SegmentProgram::Run(int changes, int held, Direction direction, Keep keep) {
  const bool is_limited = changes != kAnyNumber;
  levels_ = is_limited ? changes + 1 : 1;
  const std::size_t levels = At(levels_);
  const std::size_t steps = keep == Keep::kAllSteps ? At(positions_) : 1;
  costs_.resize(steps * levels * stride_);
  least_.resize(steps * levels);
  // The position of the first step.
  const int first = direction == Direction::kForward ? 0 : positions_ - 1;
  for (std::size_t c = 0; c < stride_; ++c) {
    const bool may_begin = held == kAny || c == At(held);
    costs_[c] = may_begin ? weights_[At(first) * stride_ + c] : kForbidden;
  }
  least_[0] = *std::min_element(costs_.data(), costs_.data() + stride_);
  for (std::size_t k = 1; k < levels; ++k) {
    std::copy_n(costs_.data(), stride_, costs_.data() + k * stride_);
    least_[k] = least_[0];
  }
  const double* from = costs_.data();
  const double* least_from = least_.data();
  for (int step = 1; step < positions_; ++step) {
    const int position = direction == Direction::kForward ? step : positions_ - 1 - step;
    const double* weight = weights_.data() + At(position) * stride_;
    // The change between this position and the one before it in `direction`.
    const double change =
        change_costs_[At(direction == Direction::kForward ? position : position + 1)];
    const std::size_t kept = keep == Keep::kAllSteps ? At(step) * levels : 0;
    double* to = costs_.data() + kept * stride_;
    double* least_to = least_.data() + kept;
    // From the highest k down: `to` may be `from`, and a step for k still needs the old values of
    // the level below it.
    for (std::size_t k = levels; k-- > 0;) {
      const double from_other = k > 0        ? least_from[k - 1] + change
                                : is_limited ? kForbidden
                                             : least_from[0] + change;
      least_to[k] = Advance(from + k * stride_, from_other, weight, stride_, to + k * stride_);
    }
    from = to;
    least_from = least_to;
  }
}

SegmentProgram::Best SegmentProgram::Search(int changes) {
  // A single change is impossible, so 1 means 0. There are as many pairs as positions.
  if (changes == 1) changes = 0;
  if (changes >= positions_) changes = kAnyNumber;
  const bool is_limited = changes != kAnyNumber;
  const std::size_t last = is_limited ? At(changes) : 0;
  Best best;
  Run(changes, kAny, Direction::kForward);
  const auto level = costs_.begin() + static_cast<std::ptrdiff_t>(last * stride_);
  std::vector<double> bounds(level, level + clocks_);  // [clock] The bounds of case 2 (header).
  if (changes == 0) {
    best.cost = least_[0];
    best.held = static_cast<int>(std::min_element(bounds.begin(), bounds.end()) - bounds.begin());
    return best;
  }
  best = is_limited ? Best{least_[last - 1] + change_costs_[0], changes - 1, kAny}
                    : Best{least_[0] + change_costs_[0], kAnyNumber, kAny};
  Run(changes, kAny, Direction::kBackward);
  for (std::size_t c = 0; c < bounds.size(); ++c) {
    bounds[c] = std::max(bounds[c], costs_[last * stride_ + c]);
  }
  std::vector<int> order(bounds.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return bounds[At(a)] < bounds[At(b)]; });
  for (const int clock : order) {
    if (bounds[At(clock)] >= best.cost) break;
    Run(changes, clock, Direction::kForward);
    const double cost = costs_[last * stride_ + At(clock)];
    if (cost < best.cost) best = {cost, changes, clock};
  }
  return best;
}

// Runs the program of `best` again, and follows its least costs back to the first position.
std::vector<int> SegmentProgram::Trace(const Best& best) {
  Run(best.changes, best.held, Direction::kForward, Keep::kAllSteps);
  const bool is_limited = best.changes != kAnyNumber;
  const std::size_t levels = At(levels_);
  const auto costs_of = [&](int p, std::size_t k) {
    return costs_.data() + (At(p) * levels + k) * stride_;
  };
  const auto least_clock = [&](int p, std::size_t k) {
    const double* costs = costs_of(p, k);
    return static_cast<int>(std::min_element(costs, costs + stride_) - costs);
  };
  std::vector<int> chosen(At(positions_));
  std::size_t k = levels - 1;
  int clock = best.held == kAny ? least_clock(positions_ - 1, k) : best.held;
  for (int p = positions_ - 1; p > 0; --p) {
    chosen[At(p)] = clock;
    if (is_limited && k == 0) continue;
    const std::size_t before = is_limited ? k - 1 : 0;
    const double after_change = least_[At(p - 1) * levels + before] + change_costs_[At(p)];
    if (after_change >= costs_of(p - 1, k)[clock]) continue;
    k = before;
    clock = least_clock(p - 1, k);
  }
  chosen[0] = clock;
  return chosen;
}

SegmentProgram::Answer SegmentProgram::Solve(int changes) {
  const Best best = Search(changes);
  if (best.cost >= kForbidden) return {best.cost, {}};
  return {best.cost, Trace(best)};
}

}  // namespace perseus::few_switches
