// Decides when a plan has to be thinned, for which limit, and for how long a step takes
// (thinning.h).
//
// The limit is the share that the agent has stored for the GPU, less 5 %, because steps do not all
// take the same time. The time of a step is the median of the last five since the plan is in force,
// and before three of them are known, the time that the plan has.
//
// A plan is thinned again if the plan or the share changes, or if the time of a step changes by
// more than 3 %. That is less than the 5 %, so the changes keep the share in between.
//
// A plan with one clock for each kind (a sweep of `perseus tune`) is not thinned: to raise its
// clocks would spoil what it measures.
//
// Not thread safe: for the background thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "perseus/base/units.h"
#include "perseus/runtime/client/clock_table.h"
#include "perseus/runtime/client/thinning.h"

namespace perseus::client {

class PlanThinner {
 public:
  static constexpr double kShareUsed = 0.95;
  static constexpr double kSameStepTime = 0.03;

  // The steps, in order. Some may be missing.
  void AddStepBegin(std::int64_t step, Nanoseconds at);
  // What the training thread shall follow instead of `table`, if that is new. One with table 0
  // says: the table itself. `table`: in force; null for none. `most_changes_per_s`: the share; 0:
  // no limit.
  std::unique_ptr<ThinnedPlan> Update(const ClockTable* table, std::span<const int> sm_clocks_mhz,
                                      double most_changes_per_s);
  // A warning for the user about what the last Update returned.
  std::string Describe(const ThinnedPlan& thinned) const;

 private:
  static constexpr std::size_t kStepTimes = 5;
  static constexpr std::size_t kFewestStepTimes = 3;

  std::unique_ptr<ThinnedPlan> Drop();
  Nanoseconds StepTimeOf(const ClockTable& table) const;

  std::optional<std::int64_t> last_step_;
  Nanoseconds last_begin_ = 0;
  std::deque<Nanoseconds> step_times_;  // The last ones of the table.
  std::uint64_t table_ = 0;
  struct Basis {
    double most_changes_per_s = 0;
    Nanoseconds step_time = 0;
  };
  std::optional<Basis> basis_;  // Of the last thinning of the table.
  bool is_thinned_ = false;     // The training thread has a thinned plan.
};

}  // namespace perseus::client
