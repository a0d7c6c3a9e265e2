#include "perseus/runtime/client/plan_thinner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace perseus::client {

void PlanThinner::AddStepBegin(std::int64_t step, Nanoseconds at) {
  if (last_step_ && step == *last_step_ + 1 && at > last_begin_) {
    step_times_.push_back(at - last_begin_);
    if (step_times_.size() > kStepTimes) step_times_.pop_front();
  }
  last_step_ = step;
  last_begin_ = at;
}

Nanoseconds PlanThinner::StepTimeOf(const ClockTable& table) const {
  if (step_times_.size() < kFewestStepTimes) return table.time;
  std::vector<Nanoseconds> times(step_times_.begin(), step_times_.end());
  const auto median = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), median, times.end());
  return *median;
}

std::unique_ptr<ThinnedPlan> PlanThinner::Drop() {
  basis_.reset();
  return std::exchange(is_thinned_, false) ? std::make_unique<ThinnedPlan>() : nullptr;
}

std::unique_ptr<ThinnedPlan> PlanThinner::Update(const ClockTable* table,
                                                 std::span<const int> sm_clocks_mhz,
                                                 double most_changes_per_s) {
  if (table == nullptr) return nullptr;
  if (table->number != table_) {
    table_ = table->number;
    step_times_.clear();
    basis_.reset();
  }
  if (table->source != ClockTable::Source::kPlan || table->costs.size() != table->order.size() ||
      most_changes_per_s <= 0) {
    return Drop();
  }
  const Nanoseconds step_time = StepTimeOf(*table);
  if (step_time <= 0) return nullptr;
  if (basis_ && basis_->most_changes_per_s == most_changes_per_s) {
    const auto before = static_cast<double>(basis_->step_time);
    if (std::abs(static_cast<double>(step_time) - before) <= kSameStepTime * before) return nullptr;
  }
  const Basis basis{most_changes_per_s, step_time};
  auto thinned = std::make_unique<ThinnedPlan>(
      Thin(*table, sm_clocks_mhz, {kShareUsed * most_changes_per_s, step_time}));
  if (thinned->skipped == 0) {
    auto dropped = Drop();
    basis_ = basis;
    return dropped;
  }
  basis_ = basis;
  is_thinned_ = true;
  return thinned;
}

std::string PlanThinner::Describe(const ThinnedPlan& thinned) const {
  const double step_s = basis_ ? ToSeconds(basis_->step_time) : 0;
  return fmt::format(
      "the agent allows this GPU {:.4g} clock changes per second, and the plan has {} in a step of "
      "{:.4g} s; {} of them, which save least, are skipped. Their instructions run at a higher "
      "clock than planned, so no step takes longer, but it saves less energy (raise perseus agent "
      "--max-changes, or plan with fewer changes: perseus plan --max-switches)",
      basis_ ? basis_->most_changes_per_s : 0, thinned.changes, step_s, thinned.skipped);
}

}  // namespace perseus::client
