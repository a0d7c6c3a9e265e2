#include "perseus/simulation/emulator/job_clock.h"

#include <algorithm>
#include <utility>

namespace perseus::emulator {

JobClock::JobClock(std::vector<Moment> edges) : edges_(std::move(edges)) {
  std::sort(edges_.begin(), edges_.end(),
            [](const Moment& a, const Moment& b) { return a.iteration < b.iteration; });
}

void JobClock::Begin(Nanoseconds start, Nanoseconds reach) {
  const auto iteration = static_cast<int>(starts_.size());
  starts_.push_back(start);
  for (; next_ < edges_.size() && edges_[next_].iteration <= iteration; ++next_) {
    ahead_.push(StartOf(edges_[next_].iteration) + edges_[next_].after);
  }
  bool has_come = false;
  for (; !ahead_.empty() && ahead_.top() <= start; ahead_.pop()) has_come = true;
  const bool is_cut = !ahead_.empty() && ahead_.top() < start + reach;
  has_edge_.push_back(has_come || is_cut || was_cut_);
  was_cut_ = is_cut;
}

std::optional<Nanoseconds> JobClock::TimeOf(const Moment& moment, int iteration) const {
  if (moment.iteration > iteration) return std::nullopt;
  return StartOf(moment.iteration) + moment.after;
}

bool JobClock::HasCome(const Moment& moment, int iteration) const {
  const auto time = TimeOf(moment, iteration);
  return time && *time <= StartOf(iteration);
}

}  // namespace perseus::emulator
