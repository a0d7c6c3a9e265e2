// The iteration time of a plan, updated after a few durations change.
//
// Every instruction starts as early as its predecessors allow. A change of durations affects only
// instructions that come later in topological order. The computation of the new time has two parts.
// First, a pass from the first to the last changed instruction computes their new ends. Second, it
// adds the longest paths after these instructions, which are known from before.
//
// Cuts connect the two parts. A cut comes after every few instructions, and is the list of the
// dependencies from earlier to later instructions. For each dependency of the next cut, add the
// time at which the iteration reaches it and the longest path after it. The greatest sum is the
// iteration time. So a change in one place costs a pass over a few instructions, and not over the
// rest of the iteration. Most changes that a search tries are rejected. Only an accepted change
// costs a pass over the whole iteration.
//
// With a switch latency, the duration and the energy of an instruction depend on the clocks before
// it and on its start. Then a pass also follows the clock of each pp_rank, with the arithmetic of
// plan/evaluation.h. Instructions after the next cut may run at other clocks than before, so the
// time over the cut is only an estimate. The estimate is close, and rejects most changes. For the
// other changes, a pass to the end finds the exact time. (A pass to the end for every change finds
// plans that are as good, in twice the time: 122 s instead of 58 s for 32 jobs, limits and
// latencies.)
//
// Thread safety: one thread at a time.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/units.h"
#include "perseus/planning/few_switches/rank_clocks.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::few_switches {

class Timeline {
 public:
  // Creates a timeline without a switch latency.
  explicit Timeline(const schedule::InstructionGraph& graph);
  // Keeps a reference to `ranks`.
  Timeline(const schedule::InstructionGraph& graph, const std::vector<RankClocks>& ranks,
           const plan::ExecutionModel& model);

  // Replaces all durations and clocks. `clocks` has the clock numbers of rank_clocks.h. They are
  // used only with a latency, and only for instructions with a choice of clocks.
  void Reset(std::vector<Nanoseconds> durations, std::vector<int> clocks = {});

  static constexpr Nanoseconds kNoLimit = std::numeric_limits<Nanoseconds>::max();

  bool has_latency() const { return latency_ > 0; }
  Nanoseconds time() const { return time_; }
  // The effective energy that the latency adds, in joules. This is an estimate if time() is one.
  double late_energy_j() const {
    if (computed_ == 0 || late_energies_j_.empty()) return 0;
    const std::size_t last = At(computed_) - 1;
    return late_energies_j_[last] + (kept_late_energies_j_.back() - kept_late_energies_j_[last]);
  }
  // The start of each instruction. The values are exact after Reset, Keep and Undo. After Try, call
  // Complete first.
  const std::vector<Nanoseconds>& starts() const { return starts_; }

  struct Change {
    int instruction = 0;
    Nanoseconds duration = 0;
    int clock = 0;
  };
  // Applies the changes. Returns the new time, or a lower bound of it that is above `limit`. With a
  // latency, both are estimates. Afterwards, call Undo if the result is above the limit, and Keep
  // or Undo otherwise.
  Nanoseconds Try(const std::vector<Change>& changes, Nanoseconds limit = kNoLimit);
  // Returns the instructions of a path that takes longer than the limit. Call it after a Try with a
  // time above its limit, and before Undo. Requires no latency.
  std::vector<int> TraceLatePath() const;
  // The time of a path of instructions, each of which awaits the previous one.
  Nanoseconds LengthOf(std::span<const int> path) const;
  // Prepares path_before and path_after, which give a bound on the time without a Try. path_before
  // is the longest path from the start of the iteration to the start of the instruction. path_after
  // is the longest path from the end of the instruction to the end of the iteration. Both use the
  // durations of the last Keep, with the effect of a latency. Call PreparePaths before the next Try
  // or Undo.
  void PreparePaths() {
    if (!paths_are_valid_) ComputePathsAfter();
  }
  Nanoseconds path_before(int instruction) const { return starts_[At(instruction)]; }
  Nanoseconds path_after(int instruction) const { return paths_after_[At(instruction)]; }
  // Computes the rest of the starts and ends. Then time() and late_energy_j() are exact.
  void Complete();
  void Keep();
  void Undo();

 private:
  struct Before {
    int instruction = 0;
    Nanoseconds delay = 0;
  };
  // A dependency over a cut. If `to` is the number of instructions, it stands for the end of the
  // iteration.
  struct Crossing {
    int from = 0;
    int to = 0;
    Nanoseconds delay = 0;
  };
  void MakeCuts(const schedule::InstructionGraph& graph);
  // Computes the start and end of instruction number computed_.
  template <bool kHasLatency>
  void ComputeNext();
  // Computes the instructions before `end`, one after another. Stops early if the path over an
  // instruction is longer than `limit`, even if the later instructions become faster by `gain`.
  // Returns the length of that path minus `gain`, or 0 if it did not stop early.
  template <bool kHasLatency>
  Nanoseconds ComputeWithin(int end, Nanoseconds gain, Nanoseconds limit);
  // Visits the instructions that an instruction awaits, including empty places (see Awaited).
  template <typename Visit>
  void ForEachAwaited(int instruction, Visit visit) const;
  Nanoseconds StartOf(int instruction) const;
  int Critical(int instruction) const;
  // The dependency over the cut that is on the longest path, and the length of this path.
  struct Longest {
    const Crossing* crossing = nullptr;
    Nanoseconds time = 0;
  };
  Longest LongestOver(int cut) const;
  Nanoseconds TimeOverCut(int cut) const { return LongestOver(cut).time; }
  // Returns the duration of the instruction with a latency. The instruction may start at the clock
  // of an earlier instruction.
  Nanoseconds RunLate(int instruction, Nanoseconds start);
  Nanoseconds RunAfterOtherClock(int instruction, Nanoseconds start);
  void ComputePathsAfter();

  // The clock of a pp_rank after an instruction.
  struct Clock {
    int running = 0;
    int pending = kNone;
    Nanoseconds switch_time = 0;  // When the pending clock takes effect.

    void Settle(Nanoseconds now);
  };
  struct Late {
    Nanoseconds duration = 0;
    double energy_j = 0;  // Effective energy.
  };
  Late RunMixed(const RankClocks& rank, int position, const Clock& clock, Nanoseconds begin) const;
  struct Place {
    int pp_rank = kNone;  // kNone: the instruction has no choice.
    int position = 0;
    int previous = kNone;  // The instruction before it on its pp_rank.
  };
  static constexpr int kNone = -1;

  // The instructions that an instruction awaits. Nearly all await at most two: the previous one on
  // the same pp_rank, and a transfer. So two have a fixed place, which avoids a loop with an
  // unpredictable end. An empty place has the number of instructions as its index. The end of this
  // index is always 0.
  struct Awaited {
    Before first;
    Before second;
    int rest_begin = 0;  // The rest is in more_awaited_, from here up to rest_end - 1.
    int rest_end = 0;
  };
  std::vector<Awaited> awaited_;  // [instruction]
  std::vector<Before> more_awaited_;
  std::vector<int> first_crossing_;  // [cut] an index into crossings_.
  std::vector<Crossing> crossings_;
  const std::vector<RankClocks>* ranks_ = nullptr;
  Nanoseconds latency_ = 0;
  double blocking_power_w_ = 0;
  std::vector<Place> places_;  // [instruction] This and the following are empty without a latency.
  // [instruction] The last instruction of its pp_rank that may still run at the clock of this one.
  std::vector<int> last_affected_;
  std::vector<int> clocks_;
  std::vector<Nanoseconds> durations_;
  std::vector<Nanoseconds> starts_;
  std::vector<Nanoseconds> ends_;  // An additional last entry is for empty places.
  std::vector<Clock> clocks_after_;
  std::vector<double> late_energies_j_;  // [instruction] The sum up to this instruction.
  std::vector<Nanoseconds> kept_starts_;
  std::vector<Nanoseconds> kept_ends_;
  std::vector<Clock> kept_clocks_after_;
  std::vector<double> kept_late_energies_j_;
  // [instruction] The longest path to the end of the iteration: in paths_from_ from the start of
  // the instruction, and in paths_after_ from its end. Both use the durations of the last Keep.
  // paths_from_ has one additional entry, 0, for the end of the iteration. (The additional entry of
  // paths_after_ has no meaning.)
  std::vector<Nanoseconds> paths_from_;
  std::vector<Nanoseconds> paths_after_;
  // [instruction] The next instruction on the longest path after it. The number of instructions
  // stands for the end of the iteration.
  std::vector<int> next_;
  bool paths_are_valid_ = false;
  Nanoseconds time_ = 0;
  Nanoseconds kept_time_ = 0;
  int late_cut_ = kNone;  // The cut over which Try found its time. kNone if Try ended before a cut.
  int first_tried_ = 0;
  int computed_ = 0;  // The starts and ends of the instructions before this one are computed.
  std::vector<Change> undo_;
};

}  // namespace perseus::few_switches
