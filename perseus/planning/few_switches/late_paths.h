// Remembers paths of the iteration that made earlier moves late. They give a cheap test that
// rejects most moves, and show what to change in addition.
//
// Most moves of a search are rejected because the iteration then ends too late, and often because
// of a path that made another move late just before. A path is no longer than the iteration. So a
// move that makes a known path longer than its latest time needs no computation of the time
// (timeline.h), and the test never rejects a move that the computation would accept. It rejects
// 95 to 98 % of the moves whose energy is low enough and that are too late (docs/algorithm.md).
//
// A path is stored as counts: how many instructions of each row (rank_clocks.h) it visits before
// each position of a pp_rank. If a stretch gets another clock, a few multiplications then give the
// new length of the path, for a stretch of any length. The path that rejected a move most recently
// is tried first. A new path replaces the path that has rejected no move for the longest time.
//
// Thread safety: one thread at a time.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/planning/few_switches/rank_clocks.h"
#include "perseus/planning/few_switches/ring.h"

namespace perseus::few_switches {

// Instructions of a pp_rank that get another clock: the positions from `begin` to `end` - 1.
struct Stretch {
  int pp_rank = 0;
  int begin = 0;
  int end = 0;
  int clock = 0;
  int old_clock = 0;
  bool pays = false;  // Whether the stretch begins with a clock change.
  bool paid = false;  // Whether it began with a change before the move.
};

class LatePaths {
 public:
  // Keeps a reference to `ranks`. `stall` is what a clock change adds to the instruction after it.
  LatePaths(const std::vector<RankClocks>& ranks, Nanoseconds stall);

  // Whether paths are worth their cost. If each instruction has options of its own (general
  // graphs), sums over many rows are slower than a pass over the iteration, and need much memory.
  bool are_worthwhile() const { return are_worthwhile_; }
  // Forgets all paths.
  void Clear() { used_ = 0; }
  // Adds a path that takes `length` now. The instructions are in any order. Requires
  // are_worthwhile().
  void Add(std::span<const int> instructions, Nanoseconds length);
  // Returns by how much a known path exceeds `latest` after the changes, or nullopt if no known
  // path does.
  std::optional<Nanoseconds> FindLate(std::span<const Stretch> stretches, Nanoseconds latest);
  // Updates the paths after the changes were made.
  void Apply(std::span<const Stretch> stretches);

  // The nearest faster clock of the segment that makes the path of the latest FindLate shorter by
  // `excess`. nullopt if it costs `most_j` or more, or if the path does not visit the segment.
  struct Speedup {
    int clock = 0;
    double energy_j = 0;  // Effective.
  };
  std::optional<Speedup> FindSpeedup(Nanoseconds excess, double most_j, int pp_rank,
                                     const Ring& ring, std::size_t segment);

 private:
  struct Path {
    Nanoseconds length = 0;
    // [first_[pp_rank] + position * row_count + row] the visits of that row before the position.
    std::vector<int> visits_before;
  };
  void MoveToFront(std::size_t path);
  Nanoseconds LengthAfter(const Path& path, std::span<const Stretch> stretches) const;

  const std::vector<RankClocks>& ranks_;
  Nanoseconds stall_;
  std::vector<std::size_t> first_;  // [pp_rank]
  std::size_t values_ = 0;          // How many values a path has.
  bool are_worthwhile_ = true;
  std::vector<bool> is_visited_;  // [instruction] the scratch memory of Add.
  // The first `used_` paths are known. The others keep their memory.
  std::vector<Path> paths_;
  std::size_t used_ = 0;
  std::vector<int> visits_;  // [row] the scratch memory of FindSpeedup, like counts_.
  std::vector<int> counts_;
};

}  // namespace perseus::few_switches
