// The iteration time of a plan, updated after a few durations change.
//
// Every instruction starts as early as its predecessors allow. A change of durations affects only
// instructions that come later in topological order, so an update begins at the first one that
// changed. A bound from below often rejects a change before any update: if durations only grow, a
// path through a changed instruction takes at least the time until its present start, plus the new
// durations, plus the longest path after it.
//
// Thread safety: one thread at a time.
#pragma once

#include <vector>

#include "perseus/base/units.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::few_switches {

class Timeline {
 public:
  explicit Timeline(const schedule::InstructionGraph& graph);

  // Replaces all durations.
  void Reset(std::vector<Nanoseconds> durations);

  Nanoseconds time() const { return time_; }
  Nanoseconds duration(int instruction) const {
    return durations_[static_cast<std::size_t>(instruction)];
  }

  struct Change {
    int instruction = 0;
    Nanoseconds duration = 0;
  };
  // A lower bound of the time after the changes. Requires that no change makes a duration shorter.
  Nanoseconds TimeAtLeast(const std::vector<Change>& changes);
  // Applies the changes and returns the new time. Either Keep or Undo must follow.
  Nanoseconds Try(const std::vector<Change>& changes);
  void Keep();
  void Undo();

 private:
  struct Before {
    int instruction = 0;
    Nanoseconds delay = 0;
  };
  Nanoseconds StartOf(int instruction, const std::vector<Nanoseconds>& ends) const;
  Nanoseconds UpdateFrom(int instruction);
  void ComputeTails();

  std::vector<int> first_before_;  // [instruction] an index into before_.
  std::vector<Before> before_;
  std::vector<int> last_;  // The instructions that none waits for.
  std::vector<Nanoseconds> durations_;
  std::vector<Nanoseconds> ends_;
  std::vector<Nanoseconds> kept_ends_;
  std::vector<Nanoseconds> tails_;  // The longest path after the end of an instruction.
  bool tails_are_valid_ = false;
  Nanoseconds time_ = 0;
  Nanoseconds kept_time_ = 0;
  int first_tried_ = 0;
  std::vector<Change> undo_;
};

}  // namespace perseus::few_switches
