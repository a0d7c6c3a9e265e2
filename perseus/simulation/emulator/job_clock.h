// When the iterations of an emulated job begin, and which moments have passed by then.
#pragma once

#include <functional>
#include <optional>
#include <queue>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/simulation/emulator/emulation.h"

namespace perseus::emulator {

class JobClock {
 public:
  // `edges` are the moments at which what runs may change.
  explicit JobClock(std::vector<Moment> edges);

  // The next iteration begins. If nothing changes, all of it is over `reach` later, at most.
  void Begin(Nanoseconds start, Nanoseconds reach);

  Nanoseconds StartOf(int iteration) const { return starts_[static_cast<std::size_t>(iteration)]; }
  // When that is or was, as far as it is known when `iteration` begins: an iteration that has yet
  // to begin has no time.
  std::optional<Nanoseconds> TimeOf(const Moment& moment, int iteration) const;
  // Whether it is not later than that iteration's beginning.
  bool HasCome(const Moment& moment, int iteration) const;
  // Whether an edge may make that iteration differ from the one before: it came since that began,
  // or comes before the end, or cut the one before.
  bool HasEdge(int iteration) const { return has_edge_[static_cast<std::size_t>(iteration)]; }

 private:
  std::vector<Moment> edges_;  // By iteration. Those before `next_` have a time,
  std::size_t next_ = 0;
  // which is here until it has come.
  std::priority_queue<Nanoseconds, std::vector<Nanoseconds>, std::greater<>> ahead_;
  std::vector<Nanoseconds> starts_;  // Of the iterations so far.
  std::vector<bool> has_edge_;       // [iteration]
  bool was_cut_ = false;
};

}  // namespace perseus::emulator
