#include "perseus/planning/few_switches/window_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace perseus::few_switches {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr Nanoseconds kAtNoTime = std::numeric_limits<Nanoseconds>::max();
// At first, the widest window has about kFirstCells cells. This number can be halved kMostHalvings
// times.
constexpr Nanoseconds kFirstCells = 32;
constexpr int kMostHalvings = 4;
// Limits on the labels for each position, number of changes and clock. With more than kMany, later
// searches have larger cells. With more than kTooMany, the search ends.
constexpr std::int64_t kMany = 2;
constexpr std::int64_t kTooMany = 8;
// Below kFewLabels, a search never ends because of kTooMany. At kMostLabels (64 MB), it always
// ends.
constexpr std::int64_t kFewLabels = 50'000;
constexpr std::int64_t kMostLabels = 2'000'000;
// The first cap exceeds the least cost without windows by at least this part of the largest sum of
// weights.
constexpr double kLeastExcess = 1e-5;

}  // namespace

WindowProgram::WindowProgram(std::vector<PositionWindow> windows, std::vector<Nanoseconds> times,
                             int clocks, Nanoseconds stall)
    : positions_(static_cast<int>(windows.size())),
      clocks_(clocks),
      stall_(stall),
      windows_(std::move(windows)),
      times_(std::move(times)),
      before_(times_.size(), 0) {
  Nanoseconds widest = 0;
  for (int p = 0; p < positions_; ++p) {
    const auto row = times_.begin() + static_cast<std::ptrdiff_t>(Cell(p, 0));
    fastest_.push_back(*std::min_element(row, row + clocks_));
    const PositionWindow& window = windows_[At(p)];
    widest = std::max(widest, window.latest_end - window.earliest_start - fastest_.back());
    for (int c = 0; p > 0 && c < clocks_; ++c) {
      before_[Cell(p, c)] = before_[Cell(p - 1, c)] + times_[Cell(p - 1, c)] + window.delay;
    }
  }
  while ((widest >> cell_shift_) >= kFirstCells) ++cell_shift_;
  coarsest_shift_ = cell_shift_ + kMostHalvings;
}

Nanoseconds WindowProgram::StartAfter(const Label& label, int position) const {
  const PositionWindow& window = windows_[At(position)];
  return window.waits ? std::max(window.earliest_start, label.end + window.delay)
                      : window.earliest_start;
}

void WindowProgram::Begin(const SegmentProgram& program, int changes, int held, double cap) {
  labels_.clear();
  lists_.assign(At(changes + 1) * At(clocks_) + 1, 0);
  for (int c = 0; c < clocks_; ++c) {
    lists_[At(c)] = static_cast<std::int32_t>(labels_.size());
    const Nanoseconds end = windows_.front().earliest_start + times_[Cell(0, c)];
    const bool may_begin = held == kAny || c == held;
    if (!may_begin || end > windows_.front().latest_end) continue;
    if (program.backward_cost(0, changes, c) > cap) continue;
    labels_.push_back({end, program.weight(0, c), -1, c, c});
  }
  std::fill(lists_.begin() + clocks_, lists_.end(), static_cast<std::int32_t>(labels_.size()));
}

void WindowProgram::CollectEntries(int position, int changes, double change_cost) {
  entering_.clear();
  if (changes == 0) return;
  const Nanoseconds earliest = windows_[At(position)].earliest_start;
  const Nanoseconds latest = windows_[At(position)].latest_end - fastest_[At(position)];
  if (latest < earliest) return;
  cells_.assign(static_cast<std::size_t>((latest - earliest) >> cell_shift_) + 1,
                {kAtNoTime, kInfinite, 0, 0});
  const std::int32_t end = lists_[At(changes) * At(clocks_)];
  for (std::int32_t i = lists_[At(changes - 1) * At(clocks_)]; i < end; ++i) {
    const Label& label = labels_[At(i)];
    const Nanoseconds start = StartAfter(label, position) + stall_;
    if (start > latest) continue;
    Entry& cell = cells_[static_cast<std::size_t>((start - earliest) >> cell_shift_)];
    const Nanoseconds least_start = std::min(cell.start, start);
    if (label.cost < cell.cost) cell = {start, label.cost, i, label.first};
    cell.start = least_start;
  }
  double least = kInfinite;
  for (const Entry& cell : cells_) {
    if (cell.cost >= least) continue;
    least = cell.cost;
    entering_.push_back(cell);
    entering_.back().cost += change_cost;
  }
}

void WindowProgram::Add(const Entry& entry, int position, int clock, double weight,
                        bool begins_list) {
  const Nanoseconds base = before_[Cell(position, clock)];
  const Nanoseconds time = times_[Cell(position, clock)];
  const Label label{entry.start + time, entry.cost + weight, entry.parent, clock, entry.first};
  if (!begins_list) {
    Label& last = labels_.back();
    const Nanoseconds last_start = last.end - time;
    if ((last_start - base) >> cell_shift_ == (entry.start - base) >> cell_shift_) {
      const Nanoseconds end = last.end;
      last = label;
      last.end = end;
      return;
    }
  }
  labels_.push_back(label);
}

// Merges two rows of labels by their starts: the labels that stay at the clock, and entering_. In a
// list, each label costs less than all labels that start before it.
void WindowProgram::Extend(const SegmentProgram& program, int position, int list, double room) {
  const int clock = list % clocks_;
  const Nanoseconds time = times_[Cell(position, clock)];
  const Nanoseconds latest = windows_[At(position)].latest_end - time;
  const double weight = program.weight(position, clock);
  const auto begin = static_cast<std::int32_t>(labels_.size());
  std::int32_t own = lists_[At(list)];
  const std::int32_t own_end = lists_[At(list) + 1];
  auto entering = entering_.begin();
  while (entering != entering_.end() && entering->cost > room) ++entering;
  // The labels with one change less, at this position and clock.
  std::int32_t fewer = list >= clocks_ ? next_lists_[At(list - clocks_)] : 0;
  const std::int32_t fewer_end = list >= clocks_ ? next_lists_[At(list - clocks_) + 1] : 0;
  double least = kInfinite;
  while (own < own_end || entering != entering_.end()) {
    const Nanoseconds own_start =
        own < own_end ? StartAfter(labels_[At(own)], position) : kAtNoTime;
    Entry next;
    if (entering != entering_.end() && entering->start < own_start) {
      next = *entering++;
    } else if (own < own_end) {
      next = {own_start, labels_[At(own)].cost, own, labels_[At(own)].first};
      ++own;
    }
    if (next.start > latest) break;
    while (fewer < fewer_end && labels_[At(fewer)].end <= next.start + time) {
      least = std::min(least, labels_[At(fewer++)].cost - weight);
    }
    if (next.cost >= least || next.cost > room) continue;
    least = next.cost;
    Add(next, position, clock, weight, begin == static_cast<std::int32_t>(labels_.size()));
  }
}

bool WindowProgram::Run(const SegmentProgram& program, int changes, int held, double cap) {
  Begin(program, changes, held, cap);
  next_lists_.resize(lists_.size());
  for (int p = 1; p < positions_; ++p) {
    for (int k = 0; k <= changes; ++k) {
      CollectEntries(p, k, program.change_cost(p));
      for (int c = 0; c < clocks_; ++c) {
        const int list = k * clocks_ + c;
        next_lists_[At(list)] = static_cast<std::int32_t>(labels_.size());
        const bool has_own = lists_[At(list)] != lists_[At(list) + 1];
        if (!has_own && entering_.empty()) continue;
        const double room = cap - program.backward_cost(p, changes - k, c);
        if (room < 0) continue;
        if (has_own || entering_.back().cost <= room) Extend(program, p, list, room);
      }
      // The end of the last list. Extend reads it for the next number of changes.
      next_lists_[At((k + 1) * clocks_)] = static_cast<std::int32_t>(labels_.size());
    }
    lists_.swap(next_lists_);
    if (static_cast<std::int64_t>(labels_.size()) > most_labels_) break;
  }
  most_labels_ -= static_cast<std::int64_t>(labels_.size());
  return most_labels_ >= 0;
}

std::vector<WindowProgram::Found> WindowProgram::CollectEnds(int changes, double closing_cost,
                                                             Found& closed) const {
  std::vector<Found> ends(At(clocks_), {kInfinite, -1});
  for (int list = 0; list < (changes + 1) * clocks_; ++list) {
    for (std::int32_t i = lists_[At(list)]; i < lists_[At(list) + 1]; ++i) {
      const Label& label = labels_[At(i)];
      if (label.cost < ends[At(label.clock)].cost) ends[At(label.clock)] = {label.cost, i};
      if (list < changes * clocks_ && label.cost + closing_cost < closed.cost) {
        closed = {label.cost + closing_cost, i};
      }
    }
  }
  return ends;
}

std::vector<int> WindowProgram::Trace(std::int32_t label) const {
  std::vector<int> clocks(At(positions_));
  for (std::size_t p = clocks.size(); p-- > 0;) {
    clocks[p] = labels_[At(label)].clock;
    label = labels_[At(label)].parent;
  }
  return clocks;
}

double WindowProgram::SearchWithin(SegmentProgram& program, int changes, double cap,
                                   Answer& answer) {
  program.ComputeBackwardCosts(changes);
  answer.complete = Run(program, changes, kAny, cap);
  if (!answer.complete) return kInfinite;
  Found best{kInfinite, -1};
  const std::vector<Found> ends = CollectEnds(changes, program.change_cost(0), best);
  std::vector<int> open;  // Last clocks whose sequence has another first clock.
  for (int c = 0; c < clocks_; ++c) {
    const Found& end = ends[At(c)];
    if (end.label < 0) continue;
    if (labels_[At(end.label)].first != c) {
      open.push_back(c);
    } else if (end.cost < best.cost) {
      best = end;
    }
  }
  if (best.label >= 0) answer.clocks = Trace(best.label);
  std::ranges::stable_sort(open, {}, [&](int c) { return ends[At(c)].cost; });
  for (const int c : open) {
    if (ends[At(c)].cost >= best.cost) break;
    program.ComputeBackwardCosts(changes, c);
    const double held_cap = std::min(cap, best.cost);
    if (program.backward_cost(0, changes, c) > held_cap) continue;
    if (!Run(program, changes, c, held_cap))
      return ends[At(c)].cost;  // A lower bound for all remaining clocks.
    Found unused{kInfinite, -1};
    const Found held = CollectEnds(changes, kInfinite, unused)[At(c)];
    if (held.cost >= best.cost) continue;
    best = held;
    answer.clocks = Trace(held.label);
  }
  return best.cost;
}

WindowProgram::Answer WindowProgram::Solve(SegmentProgram& program, int changes, double excess) {
  changes = std::min(changes == 1 ? 0 : changes, positions_);
  program.ComputeBackwardCosts(changes);
  Answer answer;
  answer.open_cost = SegmentProgram::kForbidden;
  for (int c = 0; c < clocks_; ++c) {
    answer.open_cost = std::min(answer.open_cost, program.backward_cost(0, changes, c));
  }
  answer.cost = answer.open_cost;
  if (answer.cost >= SegmentProgram::kForbidden) return answer;
  double largest = 0;
  for (int p = 0; p < positions_; ++p) {
    double most = 0;
    for (int c = 0; c < clocks_; ++c) {
      const double weight = program.weight(p, c);
      if (weight < SegmentProgram::kForbidden) most = std::max(most, weight);
    }
    largest += most;
  }
  const std::int64_t lists =
      std::int64_t{positions_} * (std::int64_t{changes} + 1) * std::int64_t{clocks_};
  const std::int64_t most_labels = std::clamp(kTooMany * lists, kFewLabels, kMostLabels);
  most_labels_ = most_labels;
  for (double room = std::max({excess, kLeastExcess * largest, 1.0}); answer.complete; room *= 2) {
    const double cap = std::min(answer.open_cost + std::floor(room), SegmentProgram::kLargestSum);
    answer.cost = SearchWithin(program, changes, cap, answer);
    if (answer.cost <= cap) break;
    if (cap == SegmentProgram::kLargestSum) {
      answer.cost = SegmentProgram::kForbidden;
      break;
    }
  }
  answer.work = most_labels - most_labels_;
  if (answer.work > kMany * lists) cell_shift_ = std::min(cell_shift_ + 1, coarsest_shift_);
  return answer;
}

}  // namespace perseus::few_switches
