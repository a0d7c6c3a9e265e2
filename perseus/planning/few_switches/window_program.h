// A close lower bound on the cost of the best clocks of one pp_rank. The number of clock changes is
// limited, and each instruction has to run within a window of time.
//
// WHY
//   Prices alone let a pp_rank mix sequences: one that is too slow, and one that is too fast. Where
//   clocks are coarse, such a mixture costs less than any single sequence that is in time. Now let
//   all other instructions run at their fastest times. Then each instruction has a window of time
//   (plan::InstructionWindows), and every plan within the deadline keeps this window. So a sequence
//   that breaks a window can be excluded at any prices.
//
// PROBLEM
//   The problem of SegmentProgram (segment_program.h), where position p starts at S[p] and ends at
//   end[p]:
//
//       S[p] = max(earliest_start[p], end[p-1] + delay[p]),     end[p] = S[p] + time[p][c] + stall,
//
//   The stall is added only if the clock changes at p. Each position must keep end[p] <=
//   latest_end[p]. In a real plan, the instructions start at these times or later, because they
//   also wait for other pp_ranks. So every plan within the deadline is allowed here.
//
// METHOD
//   The method is label setting. A label stands for all sequences of the positions so far that have
//   k changes and the last clock c. It has their least cost and the least time at which they end. A
//   label is dropped if another label with the same c costs no more, ends no later, and has no more
//   changes.
//
//   Labels that are close to each other are merged into one label. It has the least cost and the
//   least end of all of them. This only adds possibilities, so the result is never above the least
//   cost. The program could compare labels by their ends. But then errors would add up: at each
//   position, new sequences would change to a clock and pull the merged end forward. So for labels
//   of clock c, the program compares the end minus the sum of the times of clock c up to here. This
//   difference stays the same as long as the clock does. The error is then at most two cells for
//   each change.
//
//   The search has a cap on the cost. A label is dropped if its cost plus the least cost of the
//   remaining positions, without windows, is above the cap. A backward run of SegmentProgram gives
//   this least cost. If no label remains, the least cost is above the cap, and the next search has
//   a higher cap. A good first cap is the result of a search with similar weights.
//
//   The last position is followed by position 0, as in SegmentProgram. Either the clock changes at
//   position 0, or the first and the last clock are the same. An open search ignores this
//   condition. For each last clock, it gives a bound and the first clock of the sequence that
//   attains the bound. If the two clocks differ, and if the bound is below the best result so far,
//   another search follows. It holds the first clock at this last clock.
//
// NUMBERS
//   Costs are whole numbers in doubles, as in SegmentProgram. Times are nanoseconds.
//
// COMPLEXITY
//   Let n be the number of positions, N of changes and C of clocks. One search takes O(n N C
//   cells), and each cap needs at most C + 1 searches. Example: a step of the price ascent with
//   eight stages, 96 microbatches and 2 changes. It has 110,000 labels for GPT-3 on A100, and
//   350,000 for Bloom on A40, where most last clocks need another search.
//
// ALTERNATIVES
//   - Compare labels by the time since the earliest start, instead of by the end minus the sum of
//     times. Example: a gap for GPT-3 with 96 microbatches and 2 changes. With 32 cells, the chosen
//     comparison closes this gap. With 64 cells, this alternative leaves a fifth of it.
//   - Run SegmentProgram backward for each first clock, and search for each first clock whose least
//     cost in this run is below the cap. For GPT-3, this is five to ten times as slow, because
//     there the open search is enough.
//   - Narrower windows, computed without the clocks that no better plan can have (reduced costs).
//     At a gap of 0.5 %, this excludes between none and a seventh of all clocks of instructions,
//     and the windows hardly change (docs/benchmarks.md).
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/units.h"
#include "perseus/planning/few_switches/segment_program.h"

namespace perseus::few_switches {

// The window of time in which a position may run.
struct PositionWindow {
  Nanoseconds earliest_start = 0;
  Nanoseconds latest_end = 0;
  // The least time from the end of the previous position to the start of this position.
  Nanoseconds delay = 0;
  bool waits = true;  // Whether this position waits for the previous one.
};

class WindowProgram {
 public:
  // `times`: [position * clocks + clock]. A change adds `stall` to the time of its position.
  WindowProgram(std::vector<PositionWindow> windows, std::vector<Nanoseconds> times, int clocks,
                Nanoseconds stall);

  struct Answer {
    // No sequence costs less. kForbidden or more if every sequence has an unmeasured option or
    // breaks a window.
    double cost = 0;
    // The least cost without windows, if the change between the last position and position 0 is
    // ignored.
    double open_cost = 0;
    std::vector<int> clocks;  // [position] A sequence that costs about this much.
    std::int64_t work = 0;    // The number of labels.
    bool complete = true;     // False if there were too many labels: the other values are invalid.
  };
  // `program` has the weights, and its results are overwritten. `excess` is a guess of cost -
  // open_cost. Requires changes >= 0. If this call had many labels, later calls merge more of them.
  Answer Solve(SegmentProgram& program, int changes, double excess);

 private:
  static constexpr int kAny = SegmentProgram::kAny;
  struct Label {
    Nanoseconds end = 0;
    double cost = 0;
    std::int32_t parent = 0;  // Index in labels_.
    std::int32_t clock = 0;
    std::int32_t first = 0;  // The clock of position 0.
  };
  // A label at the start of the next position.
  struct Entry {
    Nanoseconds start = 0;
    double cost = 0;  // Includes the cost of the change.
    std::int32_t parent = 0;
    std::int32_t first = 0;
  };
  struct Found {
    double cost = 0;
    std::int32_t label = 0;
  };

  // Fills labels_ with the sequences that cost at most `cap`. `held` is the clock of the first and
  // the last position, or kAny. Returns false if there are too many labels. Requires the backward
  // costs of `program` for `changes` and `held`.
  bool Run(const SegmentProgram& program, int changes, int held, double cap);
  void Begin(const SegmentProgram& program, int changes, int held, double cap);
  // Fills entering_ with the labels that have one change less, and so may change their clock at the
  // position.
  void CollectEntries(int position, int changes, double change_cost);
  // Adds the labels of the position to list number `list`, which stands for a number of changes and
  // a clock. Drops labels that cost more than `room` before this position.
  void Extend(const SegmentProgram& program, int position, int list, double room);
  void Add(const Entry& entry, int position, int clock, double weight, bool begins_list);
  Nanoseconds StartAfter(const Label& label, int position) const;
  // Returns the least cost, or infinity if it is above the cap.
  double SearchWithin(SegmentProgram& program, int changes, double cap, Answer& answer);
  // Returns the least cost for each clock of the last position. `closed` receives the best sequence
  // that has a change between the last position and position 0.
  std::vector<Found> CollectEnds(int changes, double closing_cost, Found& closed) const;
  std::vector<int> Trace(std::int32_t label) const;

  std::size_t Cell(int position, int clock) const { return At(position) * At(clocks_) + At(clock); }

  int positions_;
  int clocks_;
  Nanoseconds stall_;
  std::vector<PositionWindow> windows_;
  std::vector<Nanoseconds> times_;    // [Cell]
  std::vector<Nanoseconds> before_;   // [Cell] The sum of times and delays up to the position.
  std::vector<Nanoseconds> fastest_;  // [position]
  int cell_shift_ = 0;                // A cell is 2^cell_shift_ ns wide.
  int coarsest_shift_ = 0;
  std::int64_t most_labels_ = 0;  // The maximum number of labels of all remaining searches.

  std::vector<Label> labels_;  // The labels of all positions.
  // [changes * clocks + clock] Where each list of labels of the latest position begins. The last
  // additional entry is where the last list ends.
  std::vector<std::int32_t> lists_;
  std::vector<std::int32_t> next_lists_;
  std::vector<Entry> cells_;
  std::vector<Entry> entering_;  // Sorted by rising start and falling cost.
};

}  // namespace perseus::few_switches
