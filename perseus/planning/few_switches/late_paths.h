// Stores paths of the iteration that made earlier moves late. They give a cheap test that rejects
// most moves, and they show what else a move has to change.
//
// Most moves of a search are rejected because the iteration would end too late. Often, the reason
// is a path that has just made another move late. A path is no longer than the iteration. So if a
// move makes a known path longer than the latest allowed time, the search need not compute the
// iteration time (timeline.h). The test never rejects a move that the computation would accept. Of
// the moves that have a low energy but are too late, it rejects 95 to 98 % (docs/algorithm.md).
//
// A path is stored as counts: how many instructions of each row (rank_clocks.h) it visits before
// each position of a pp_rank. If a stretch of any length gets another clock, a few multiplications
// give the new length of the path. The path that rejected a move most recently is tried first. A
// new path replaces the path that has rejected no move for the longest time.
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

// Instructions of a pp_rank that get another clock in a move: the positions from `begin` to `end` -
// 1.
struct Stretch {
  int pp_rank = 0;
  int begin = 0;
  int end = 0;
  int clock = 0;
  int old_clock = 0;
  bool pays = false;  // Whether it begins with a clock change after the move.
  bool paid = false;  // Whether it began with a clock change before the move.
};

class LatePaths {
 public:
  // Keeps a reference to `ranks`. A clock change adds `stall` to the instruction after it.
  LatePaths(const std::vector<RankClocks>& ranks, Nanoseconds stall);

  // Whether paths save time. They do not if each instruction has its own options, as in a general
  // graph. Then there are many rows. A sum over many rows is slower than a pass over the iteration,
  // and the counts of the rows need much memory.
  bool are_worthwhile() const { return are_worthwhile_; }
  // Forgets all paths.
  void Clear() { used_ = 0; }
  // Adds a path that now takes `length`. The instructions may be in any order. Requires
  // are_worthwhile().
  void Add(std::span<const int> instructions, Nanoseconds length);
  // Computes the lengths of the known paths after the changes in `stretches`. Returns by how much
  // one of them is longer than `latest`, or nullopt if none is longer.
  std::optional<Nanoseconds> FindLate(std::span<const Stretch> stretches, Nanoseconds latest);
  // Updates the lengths of the paths. Call it when the search accepts the changes in `stretches`.
  void Apply(std::span<const Stretch> stretches);

  // Returns the nearest faster clock of the segment that shortens the path of the latest FindLate
  // by at least `excess`. Returns nullopt if such a clock costs `most_j` or more, or if the path
  // does not visit the segment.
  struct Speedup {
    int clock = 0;
    double energy_j = 0;  // The additional effective energy.
  };
  std::optional<Speedup> FindSpeedup(Nanoseconds excess, double most_j, int pp_rank,
                                     const Ring& ring, std::size_t segment);

 private:
  struct Path {
    Nanoseconds length = 0;
    // [first_[pp_rank] + position * row_count + row] How often the path visits that row before the
    // position.
    std::vector<int> visits_before;
  };
  void MoveToFront(std::size_t path);
  Nanoseconds LengthAfter(const Path& path, std::span<const Stretch> stretches) const;

  const std::vector<RankClocks>& ranks_;
  Nanoseconds stall_;
  std::vector<std::size_t> first_;  // [pp_rank]
  std::size_t values_ = 0;          // How many values a path has.
  bool are_worthwhile_ = true;
  std::vector<bool> is_visited_;  // [instruction] Scratch memory of Add.
  // The first `used_` paths are known. The others keep their memory.
  std::vector<Path> paths_;
  std::size_t used_ = 0;
  std::vector<int> visits_;  // [row] Scratch memory of FindSpeedup, like counts_.
  std::vector<int> counts_;
};

}  // namespace perseus::few_switches
