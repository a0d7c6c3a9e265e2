// The latest relaxed optima of a planner.
//
// Several searches start from the relaxed optimum of the same deadline: that of the plan, that of
// the plan with few clock changes, and its bound. It takes a large part of their time.
//
// Thread safety: all functions may be called from several threads.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "perseus/base/units.h"
#include "perseus/planning/frontier/check.h"

namespace perseus::plan {

class Relaxations {
 public:
  std::optional<frontier::Solution> Find(Nanoseconds deadline, Microwatts price_floor) const {
    const std::lock_guard lock(mutex_);
    for (const Relaxed& relaxed : latest_) {
      if (relaxed.deadline == deadline && relaxed.price_floor == price_floor) {
        return relaxed.solution;
      }
    }
    return std::nullopt;
  }

  void Remember(Nanoseconds deadline, Microwatts price_floor, frontier::Solution solution) {
    const std::lock_guard lock(mutex_);
    if (latest_.size() == kMost) latest_.pop_front();
    latest_.push_back({deadline, price_floor, std::move(solution)});
  }

 private:
  // More than the targets of `perseus plan`. The largest jobs need 2.5 MB for each.
  static constexpr std::size_t kMost = 16;

  struct Relaxed {
    Nanoseconds deadline = 0;
    Microwatts price_floor = 0;
    frontier::Solution solution;
  };

  mutable std::mutex mutex_;
  std::deque<Relaxed> latest_;  // Guarded by mutex_.
};

}  // namespace perseus::plan
