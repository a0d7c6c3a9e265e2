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
  // `edges` are the moments at which the states of pipelines may change.
  explicit JobClock(std::vector<Moment> edges);

  // Begins the next iteration. Unless a state changes, it ends at most `reach` later.
  void Begin(Nanoseconds start, Nanoseconds reach);

  Nanoseconds StartOf(int iteration) const { return starts_[static_cast<std::size_t>(iteration)]; }
  // The time of a moment. Empty if the moment belongs to an iteration after `iteration`, whose
  // begin is unknown.
  std::optional<Nanoseconds> TimeOf(const Moment& moment, int iteration) const;
  // Whether the moment is not later than the begin of that iteration.
  bool HasCome(const Moment& moment, int iteration) const;
  // Whether an edge may make that iteration differ from the previous one: the edge is between the
  // two begins, or within this iteration, or was within the previous one.
  bool HasEdge(int iteration) const { return has_edge_[static_cast<std::size_t>(iteration)]; }

 private:
  std::vector<Moment> edges_;  // Sorted by iteration.
  std::size_t next_ = 0;       // The first edge whose time is unknown.
  // The known times of edges that have not come.
  std::priority_queue<Nanoseconds, std::vector<Nanoseconds>, std::greater<>> ahead_;
  std::vector<Nanoseconds> starts_;  // By iteration.
  std::vector<bool> has_edge_;       // By iteration.
  bool was_cut_ = false;
};

}  // namespace perseus::emulator
