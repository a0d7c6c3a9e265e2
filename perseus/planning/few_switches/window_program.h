// The best clocks of one pp_rank with a limited number of clock changes, if each instruction has to
// run within a window of time: a close lower bound on their cost.
//
// WHY
//   Prices alone let a pp_rank mix sequences: one that is too slow, and one that is too fast. Where
//   clocks are coarse, such a mixture costs less than any one sequence that is in time. But if all
//   other instructions run at their fastest times, each instruction has a window of time
//   (plan::InstructionWindows), and every plan within the deadline keeps it. So a sequence that
//   breaks a window can be excluded at any prices.
//
// PROBLEM
//   That of SegmentProgram (segment_program.h), where position p starts at
//
//       S[p] = max(earliest_start[p], end[p-1] + delay[p]),     end[p] = S[p] + time[p][c] + stall,
//
//   (the stall only if its clock changes) and end[p] <= latest_end[p]. The instructions of a real
//   plan start no earlier than that, because they also wait for other pp_ranks. So every plan
//   within the deadline is allowed here.
//
// METHOD
//   A label stands for all sequences of the positions so far with k changes and the last clock c:
//   their least cost, and the least time at which they end. Of two labels with the same k and c,
//   one that costs no less and ends no earlier is dropped. So is a label that costs no less and
//   ends no earlier than a label with fewer changes.
//
//   Labels that are close to each other are merged: the least cost of all, and the least end of
//   all. This only adds possibilities, so the result is never above the least cost. If only ends
//   were compared, errors would add up: at each position, new sequences enter a clock and pull the
//   merged end forward. So labels of clock c are merged by end - (the sum of times of clock c up to
//   here), which stays the same as long as the clock does. An error is then at most two cells for
//   each change.
//
//   The search has a cap: a label is dropped if its cost and the least cost of the rest, without
//   windows, is above it. The least cost of the rest is known from a backward run of
//   SegmentProgram. If nothing is left, the least cost is above the cap, and the next search has a
//   higher cap. A good first cap is what the search with similar weights found.
//
//   The ring is closed as in SegmentProgram: with a change at position 0, or with a first clock
//   that is the last one. The search without this condition gives a bound for each last clock, and
//   the first clock of the sequence that attains it. If they are not the same, a search in which
//   the first clock is held follows.
//
// NUMBERS
//   Costs are whole numbers in doubles, as in SegmentProgram. Times are nanoseconds.
//
// COMPLEXITY
//   O(n N C cells) for one search, and at most C + 1 searches for each cap. With eight stages and
//   96 microbatches, a step of the price ascent has 110,000 labels for GPT-3 on A100 and 2 changes,
//   and 350,000 for Bloom on A40, where most last clocks need a search of their own.
//
// ALTERNATIVES (docs/benchmarks.md has the numbers)
//   - Cells of the time since the earliest start, without the sum of times: for GPT-3 with 96
//     microbatches and 2 changes, 64 such cells leave a fifth of the gap that 32 cells close.
//   - A backward run for each first clock, and a search for each of those below the cap: five to
//     ten times as slow for GPT-3, where the open search is enough.
//   - Narrower windows from the clocks that no better plan can have (reduced costs): at a gap of
//     0.5 %, between none and a seventh of all clocks of instructions can be left out, and the
//     windows hardly change.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/units.h"
#include "perseus/planning/few_switches/segment_program.h"

namespace perseus::few_switches {

// When a position may run.
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
    // No sequence costs less. At least kForbidden: no sequence has only measured options and keeps
    // the windows.
    double cost = 0;
    // The least cost without windows and without the condition that closes the ring.
    double open_cost = 0;
    std::vector<int> clocks;  // [position] A sequence that costs about as much.
    std::int64_t work = 0;    // Labels.
    bool complete = true;     // False: too many labels. Then the other values mean nothing.
  };
  // `program` has the weights; its results are overwritten. `excess` is a guess of cost -
  // open_cost. Requires changes >= 0. Later calls merge more labels if this one had many.
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
  // A label before it runs the next position.
  struct Entry {
    Nanoseconds start = 0;
    double cost = 0;  // The change included.
    std::int32_t parent = 0;
    std::int32_t first = 0;
  };
  struct Found {
    double cost = 0;
    std::int32_t label = 0;
  };

  // Fills labels_ with the sequences that cost at most `cap`. Returns false if there are too many.
  // Requires the backward costs of `program` for `changes` and `held`.
  bool Run(const SegmentProgram& program, int changes, int held, double cap);
  void Begin(const SegmentProgram& program, int changes, int held, double cap);
  // Fills entering_ with the labels of one change less, for a change at the position.
  void CollectEntries(int position, int changes, double change_cost);
  // Adds the labels of the position for the list's number of changes and clock.
  void Extend(const SegmentProgram& program, int position, int list, double room);
  void Add(const Entry& entry, int position, int clock, double weight, bool begins_list);
  Nanoseconds StartAfter(const Label& label, int position) const;
  // Returns the least cost within the cap. Infinite if no sequence costs at most the cap.
  double SearchWithin(SegmentProgram& program, int changes, double cap, Answer& answer);
  // Returns the least cost for each clock of the last position. `closed` gets the best of the
  // sequences that close the ring with a change.
  std::vector<Found> CollectEnds(int changes, double closing_cost, Found& closed) const;
  std::vector<int> Trace(std::int32_t label) const;

  std::size_t Cell(int position, int clock) const { return At(position) * At(clocks_) + At(clock); }

  int positions_;
  int clocks_;
  Nanoseconds stall_;
  std::vector<PositionWindow> windows_;
  std::vector<Nanoseconds> times_;    // [Cell]
  std::vector<Nanoseconds> before_;   // [Cell] the sum of times and delays up to the position.
  std::vector<Nanoseconds> fastest_;  // [position]
  int cell_shift_ = 0;                // A cell is 2^cell_shift_ ns wide.
  int coarsest_shift_ = 0;
  std::int64_t most_labels_ = 0;  // For all searches that remain.

  std::vector<Label> labels_;  // The labels of all positions.
  // [changes * clocks + clock] where the labels of the latest position begin; and the end.
  std::vector<std::int32_t> lists_;
  std::vector<std::int32_t> next_lists_;
  std::vector<Entry> cells_;
  std::vector<Entry> entering_;  // By rising start and falling cost.
};

}  // namespace perseus::few_switches
