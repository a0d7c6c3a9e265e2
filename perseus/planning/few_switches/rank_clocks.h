// The clocks of a pp_rank, and the time and energy of its instructions at each clock.
//
// Several option sets of a pp_rank (forward, backward, the stages of an interleaved schedule) share
// clocks. If an option set has several options at a clock, which differ in other knobs, searches
// use the fastest one. Bounds use all. Compare two clocks in every option set of the pp_rank. A
// clock is useless if another clock is always at least as fast and never needs more effective
// energy. That other clock can replace the useless one without an additional clock change. So the
// best plan with any number of changes needs only the other, useful clocks.
//
// Thread safety: the values do not change after construction.
#pragma once

#include <algorithm>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/units.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::few_switches {

struct RankClocks {
  // The instructions that have a clock, in the order of the pp_rank. Fixed instructions are left
  // out, because they do not change the clock.
  std::vector<int> instructions;
  std::vector<int> rows;  // [position] The row of the instruction in the tables below.
  int clocks = 0;         // The number of useful clocks. The highest frequency is first.
  int row_count = 0;
  // [position * row_count + row] How many earlier positions have that row. Position n (the number
  // of positions) also has an entry. So the count of a row in a stretch is the difference of two
  // entries.
  std::vector<int> rows_before;

  // Tables: [row * clocks + clock]. A row is an option set.
  std::vector<int> options;  // Index in the option set, or kUnmeasured if it has no such option.
  // An unmeasured option has the time and energy of the option with the nearest frequency. A switch
  // latency needs these values: it may let an instruction run at a clock at which the instruction
  // was not measured (plan/evaluation.h).
  std::vector<Nanoseconds> times;
  std::vector<double> energies_j;     // Effective energy.
  std::vector<Femtojoules> energies;  // Effective energy, rounded down.

  // The other options of a cell that need less effective energy, by cell. Empty if no cell has any.
  struct Slower {
    Nanoseconds time = 0;
    Femtojoules energy = 0;
  };
  std::vector<std::vector<Slower>> slower;

  // The least sum of energy and price * time of the options of a cell.
  Femtojoules LeastCost(std::size_t cell, Microwatts price) const {
    Femtojoules least = energies[cell] + price * times[cell];
    if (slower.empty()) return least;
    for (const Slower& one : slower[cell]) {
      least = std::min<Femtojoules>(least, one.energy + price * one.time);
    }
    return least;
  }

  static constexpr int kUnmeasured = -1;

  // Returns how many of the `length` positions from `begin` on have the row. The positions may wrap
  // around once.
  int CountRow(int row, int begin, int length) const {
    return CountRow(rows_before.data(), row, begin, length);
  }
  // The same for `counts_before`, which has the layout of rows_before.
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

// [pp_rank] The clocks of each pp_rank.
std::vector<RankClocks> CollectClocks(const schedule::InstructionGraph& graph,
                                      double blocking_power_w);

}  // namespace perseus::few_switches
