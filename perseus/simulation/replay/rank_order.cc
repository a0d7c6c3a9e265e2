#include "perseus/simulation/replay/rank_order.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::replay {
namespace {

// The events of one rank. Take() adds them one after another, in order of their start.
class RankOrder {
 public:
  explicit RankOrder(const RecordedStep& step) : step_(step) {}

  // How many of the added events still run when `event` begins.
  int CountRunning(const JobEvent& event) {
    while (!running_.empty() && running_.top() <= event.start) running_.pop();
    return static_cast<int>(running_.size());
  }

  // The added events that `event` comes directly after.
  std::vector<int> PredecessorsOf(const JobEvent& event) const {
    std::vector<int> candidates;
    // A candidate that begins at latest_start comes after every event that had ended by then.
    Nanoseconds latest_start = std::numeric_limits<Nanoseconds>::min();
    const auto consider = [&](int earlier) {
      if (!IsAfter(step_.events[At(earlier)], event)) return;
      candidates.push_back(earlier);
      latest_start = std::max(latest_start, step_.events[At(earlier)].start);
    };
    const bool follows_computation = IsComputation(event.kind) && last_computation_ >= 0;
    if (follows_computation) {
      consider(last_computation_);
      // An event without a duration may begin and end with the computation, and come after it.
      --latest_start;
    }
    for (auto end = by_end_.upper_bound({LatestEndBefore(event), kAnyEvent});
         end != by_end_.begin();) {
      const auto [ends_at, earlier] = *--end;
      if (ends_at <= latest_start) break;
      if (!(follows_computation && earlier == last_computation_)) consider(earlier);
    }
    std::sort(candidates.begin(), candidates.end(), std::greater());
    std::vector<int> last;
    for (const int earlier : candidates) {
      const bool is_implied = std::any_of(last.begin(), last.end(), [&](int other) {
        return IsAfter(step_.events[At(earlier)], step_.events[At(other)]);
      });
      if (!is_implied) last.push_back(earlier);
    }
    return last;
  }

  void Take(int index) {
    const JobEvent& event = step_.events[At(index)];
    by_end_.insert({event.end(), index});
    running_.push(event.end());
    if (IsComputation(event.kind)) last_computation_ = index;
  }

 private:
  static constexpr int kAnyEvent = std::numeric_limits<int>::max();

  // An event that ends later is no predecessor, unless both are computations.
  static Nanoseconds LatestEndBefore(const JobEvent& event) {
    // An event without a duration overlaps with nothing.
    return event.duration == 0 ? std::numeric_limits<Nanoseconds>::max()
                               : event.start + event.duration / 2;
  }

  const RecordedStep& step_;
  std::set<std::pair<Nanoseconds, int>> by_end_;
  std::priority_queue<Nanoseconds, std::vector<Nanoseconds>, std::greater<>> running_;  // Ends.
  int last_computation_ = -1;
};

}  // namespace

bool IsAfter(const JobEvent& earlier, const JobEvent& later) {
  const Nanoseconds overlap = std::min(earlier.end(), later.end()) - later.start;
  if (overlap <= 0 || (IsComputation(earlier.kind) && IsComputation(later.kind))) return true;
  return overlap <= std::min(earlier.duration, later.duration) / 2;
}

Result<std::vector<std::vector<int>>> OrderWithinRanks(const RecordedStep& step) {
  std::vector<std::vector<int>> after;
  after.reserve(step.events.size());
  std::optional<RankOrder> order;
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    const JobEvent& event = step.events[i];
    if (i == 0 || event.dp_rank != step.events[i - 1].dp_rank ||
        event.pp_rank != step.events[i - 1].pp_rank) {
      order.emplace(step);
    }
    const int running = order->CountRunning(event);
    if (running >= kMostConcurrentEvents) {
      return Fail(
          "{}: it begins while {} other events of its rank run (expected fewer than {}: are ts and "
          "dur in us?)",
          Describe(event, step.number), running, kMostConcurrentEvents);
    }
    after.push_back(order->PredecessorsOf(event));
    order->Take(static_cast<int>(i));
  }
  return after;
}

}  // namespace perseus::replay
