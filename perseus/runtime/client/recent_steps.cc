#include "perseus/runtime/client/recent_steps.h"

#include <utility>
#include <vector>

#include "perseus/base/statistics.h"

namespace perseus::client {

void RecentSteps::Add(const protocol::RanStep& step) {
  const MutexLock lock(mutex_);
  ++costs_.steps;
  if (step.has_plan && step.on_plan && !step.LacksClocks()) ++costs_.steps_on_plan;
  steps_.push_back({step.step, step.begin, step.end});
  while (steps_.size() > kMostSteps ||
         (steps_.size() > kLeastSteps && steps_.front().begin < step.begin - kWindow)) {
    steps_.pop_front();
  }
}

void RecentSteps::Add(const EnergyReading& reading) {
  const MutexLock lock(mutex_);
  const double before_j = std::exchange(counter_j_, reading.energy_j).value_or(reading.energy_j);
  // A smaller value begins a new count, and the energy between the two is unknown.
  if (reading.energy_j < before_j) energy_.clear();
  if (reading.energy_j > before_j) costs_.energy_j += reading.energy_j - before_j;
  energy_.push_back({reading.after + (reading.until - reading.after) / 2, costs_.energy_j});
  // A step may take longer than the window.
  const Nanoseconds oldest = steps_.empty() ? energy_.back().at - kWindow : steps_.front().begin;
  while (energy_.size() > kMostSteps || (energy_.size() > 1 && energy_.front().at < oldest)) {
    energy_.pop_front();
  }
}

// The power while nothing was trained, as in an evaluation, does not count.
double RecentSteps::PowerOfSteps() const {
  if (steps_.empty()) return 0;
  const Energy* first = nullptr;
  const Energy* last = nullptr;
  for (const Energy& one : energy_) {
    if (one.at < steps_.front().begin) continue;
    if (one.at > steps_.back().end) break;
    if (first == nullptr) first = &one;
    last = &one;
  }
  if (first == last) return 0;
  return (last->energy_j - first->energy_j) / ToSeconds(last->at - first->at);
}

RecentSteps::Costs RecentSteps::Read() const {
  const MutexLock lock(mutex_);
  Costs costs = costs_;
  std::vector<double> times_s;
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    if (steps_[i].number != steps_[i - 1].number + 1) continue;
    times_s.push_back(ToSeconds(steps_[i].begin - steps_[i - 1].begin));
  }
  if (!times_s.empty()) costs.step_time_s = Median(std::move(times_s));
  costs.power_w = PowerOfSteps();
  return costs;
}

}  // namespace perseus::client
