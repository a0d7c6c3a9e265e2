#include "perseus/planning/few_switches/timeline.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::few_switches {

Timeline::Timeline(const schedule::InstructionGraph& graph)
    : first_before_(graph.instructions.size() + 1, 0), before_(graph.dependencies.size()) {
  std::vector<bool> is_awaited(graph.instructions.size(), false);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    ++first_before_[At(dependency.to) + 1];
    is_awaited[At(dependency.from)] = true;
  }
  std::partial_sum(first_before_.begin(), first_before_.end(), first_before_.begin());
  std::vector<int> slot(first_before_.begin(), first_before_.end() - 1);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    before_[At(slot[At(dependency.to)]++)] = {dependency.from, dependency.delay};
  }
  for (std::size_t i = 0; i < is_awaited.size(); ++i) {
    if (!is_awaited[i]) last_.push_back(static_cast<int>(i));
  }
}

void Timeline::Reset(std::vector<Nanoseconds> durations) {
  durations_ = std::move(durations);
  ends_.assign(durations_.size(), 0);
  time_ = UpdateFrom(0);
  undo_.clear();
  first_tried_ = 0;
  Keep();
}

Nanoseconds Timeline::StartOf(int instruction, const std::vector<Nanoseconds>& ends) const {
  Nanoseconds start = 0;
  for (int b = first_before_[At(instruction)]; b < first_before_[At(instruction) + 1]; ++b) {
    const Before& before = before_[At(b)];
    start = std::max(start, ends[At(before.instruction)] + before.delay);
  }
  return start;
}

Nanoseconds Timeline::UpdateFrom(int instruction) {
  for (std::size_t i = At(instruction); i < durations_.size(); ++i) {
    ends_[i] = StartOf(static_cast<int>(i), ends_) + durations_[i];
  }
  Nanoseconds time = 0;
  for (const int last : last_) time = std::max(time, ends_[At(last)]);
  return time;
}

void Timeline::ComputeTails() {
  tails_.assign(durations_.size(), 0);
  for (std::size_t i = durations_.size(); i-- > 0;) {
    const Nanoseconds from_start = tails_[i] + durations_[i];
    for (int b = first_before_[i]; b < first_before_[i + 1]; ++b) {
      const Before& before = before_[At(b)];
      Nanoseconds& tail = tails_[At(before.instruction)];
      tail = std::max(tail, from_start + before.delay);
    }
  }
  tails_are_valid_ = true;
}

Nanoseconds Timeline::TimeAtLeast(const std::vector<Change>& changes) {
  if (!tails_are_valid_) ComputeTails();
  Nanoseconds time = time_;
  // Changes of one pp_rank come in its order. Whether the next change follows the last one directly
  // does not matter: a pp_rank runs one instruction at a time, and the chain uses only changed
  // ones.
  Nanoseconds chain = 0;
  int previous = -1;
  for (const Change& change : changes) {
    const Nanoseconds start = ends_[At(change.instruction)] - durations_[At(change.instruction)];
    const bool follows =
        previous >= 0 && previous < change.instruction &&
        std::any_of(before_.begin() + first_before_[At(change.instruction)],
                    before_.begin() + first_before_[At(change.instruction) + 1],
                    [&](const Before& before) { return before.instruction == previous; });
    chain = std::max(start, follows ? chain : 0) + change.duration;
    time = std::max(time, chain + tails_[At(change.instruction)]);
    previous = change.instruction;
  }
  return time;
}

Nanoseconds Timeline::Try(const std::vector<Change>& changes) {
  undo_.clear();
  first_tried_ = static_cast<int>(durations_.size());
  for (const Change& change : changes) {
    Nanoseconds& duration = durations_[At(change.instruction)];
    undo_.push_back({change.instruction, duration});
    duration = change.duration;
    first_tried_ = std::min(first_tried_, change.instruction);
  }
  time_ = UpdateFrom(first_tried_);
  return time_;
}

void Timeline::Keep() {
  if (kept_ends_.size() != ends_.size()) {
    kept_ends_ = ends_;
  } else {
    std::copy(ends_.begin() + first_tried_, ends_.end(), kept_ends_.begin() + first_tried_);
  }
  kept_time_ = time_;
  tails_are_valid_ = false;
}

void Timeline::Undo() {
  std::copy(kept_ends_.begin() + first_tried_, kept_ends_.end(), ends_.begin() + first_tried_);
  for (std::size_t i = undo_.size(); i-- > 0;) {
    durations_[At(undo_[i].instruction)] = undo_[i].duration;
  }
  time_ = kept_time_;
}

}  // namespace perseus::few_switches
