// The clocks of a pp_rank, and the time and energy of its instructions at each clock.
//
// A clock is one combination of frequency and other knobs. Several option sets of a pp_rank
// (forward, backward, the stages of an interleaved schedule) share clocks. A clock is useful for a
// pp_rank unless another clock is no slower and needs no more effective energy in every option set
// of that pp_rank. To replace a useless clock by the other one never adds a clock change, so the
// best plan with any number of changes needs only useful clocks.
//
// Thread safety: the values do not change after construction.
#pragma once

#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/units.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::few_switches {

struct RankClocks {
  // The instructions that have a clock, in the order of the pp_rank. Fixed instructions are not
  // among them: they do not change the clock.
  std::vector<int> instructions;
  std::vector<int> rows;  // [position] which row of the tables below.
  int clocks = 0;         // The useful ones, highest frequency first.
  int row_count = 0;
  // [position * row_count + row] how many earlier positions have that row. Position n has an entry,
  // too, so the count in a stretch is the difference of two entries.
  std::vector<int> rows_before;

  // Tables: [row * clocks + clock]. A row is an option set.
  std::vector<int> options;  // Index in the option set; kUnmeasured: no such option.
  // An unmeasured option has the values of the option with the nearest frequency: a switch latency
  // may let an instruction run at a clock at which it was not measured (plan/evaluation.h).
  std::vector<Nanoseconds> times;
  std::vector<double> energies_j;     // Effective energy.
  std::vector<Femtojoules> energies;  // The same, rounded down.

  static constexpr int kUnmeasured = -1;

  // How many of `length` positions from `begin` on have the row. The positions may wrap around
  // once.
  int CountRow(int row, int begin, int length) const {
    return CountRow(rows_before.data(), row, begin, length);
  }
  // As above, but for other counts with the layout of rows_before.
  int CountRow(const int* counts_before, int row, int begin, int length) const {
    const auto until = [&](int position) {
      return counts_before[At(position) * At(row_count) + At(row)];
    };
    const int end = begin + length;
    if (end <= positions()) return until(end) - until(begin);
    return until(positions()) - until(begin) + until(end - positions());
  }

  int positions() const { return static_cast<int>(instructions.size()); }
  std::size_t Cell(int position, int clock) const {
    return At(rows[At(position)]) * At(clocks) + At(clock);
  }
};

// [pp_rank]
std::vector<RankClocks> CollectClocks(const schedule::InstructionGraph& graph,
                                      double blocking_power_w);

}  // namespace perseus::few_switches
