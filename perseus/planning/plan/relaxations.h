// The latest relaxed optima of a planner. Each one is solved only once.
//
// Several computations start from the relaxed optimum of the same deadline: the search for the
// plan, the search for a plan with few clock changes, and the bound of such plans. The optimum
// takes a large part of their time.
//
// Thread safety: Get may be called from several threads. If two threads request the same optimum at
// the same time, both solve it.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>

#include "perseus/base/mutex.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/frontier/check.h"

namespace perseus::plan {

class Relaxations {
 public:
  using Solve = std::function<Result<frontier::Solution>()>;
  // Returns the optimum for this deadline and price floor. If it is not stored, calls `solve` and
  // stores the result, but not an error.
  Result<frontier::Solution> Get(Nanoseconds deadline, Microwatts price_floor, const Solve& solve) {
    if (auto known = Find(deadline, price_floor)) return *std::move(known);
    Result<frontier::Solution> solution = solve();
    if (!solution) return solution;
    const MutexLock lock(mutex_);
    if (latest_.size() == kMost) latest_.pop_front();
    latest_.push_back({deadline, price_floor, *solution});
    return solution;
  }

 private:
  // Enough for the targets of `perseus plan` and the plans of its report. In the largest jobs, each
  // optimum takes 2.5 MB, but such jobs have few plans in their report.
  static constexpr std::size_t kMost = 32;

  struct Relaxed {
    Nanoseconds deadline = 0;
    Microwatts price_floor = 0;
    frontier::Solution solution;
  };

  std::optional<frontier::Solution> Find(Nanoseconds deadline, Microwatts price_floor) const {
    const MutexLock lock(mutex_);
    for (const Relaxed& relaxed : latest_) {
      if (relaxed.deadline == deadline && relaxed.price_floor == price_floor) {
        return relaxed.solution;
      }
    }
    return std::nullopt;
  }

  mutable Mutex mutex_;
  std::deque<Relaxed> latest_ PERSEUS_GUARDED_BY(mutex_);
};

}  // namespace perseus::plan
