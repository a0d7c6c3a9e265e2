// The iteration time of a plan, updated after a few durations change.
//
// Every instruction starts as early as its predecessors allow. A change of durations affects only
// instructions that come later in topological order, so an update begins at the first one that
// changed. A bound from below often rejects a change before any update: if durations only grow, a
// path through a changed instruction takes at least the time until its present start, plus the new
// durations, plus the longest path after it.
//
// With a switch latency, durations and energies depend on the clocks before an instruction and on
// when it begins. Then a pass also follows the clock of each pp_rank, with the arithmetic of
// plan/evaluation.h, and the bound does not apply.
//
// Thread safety: one thread at a time.
#pragma once

#include <vector>

#include "perseus/base/units.h"
#include "perseus/planning/few_switches/rank_clocks.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::few_switches {

class Timeline {
 public:
  // Without a switch latency.
  explicit Timeline(const schedule::InstructionGraph& graph);
  // Keeps a reference to `ranks`.
  Timeline(const schedule::InstructionGraph& graph, const std::vector<RankClocks>& ranks,
           const plan::ExecutionModel& model);

  // Replaces all durations and clocks. `clocks` has the numbers of rank_clocks.h; it is used only
  // with a latency, and only for instructions with a choice.
  void Reset(std::vector<Nanoseconds> durations, std::vector<int> clocks = {});

  bool has_latency() const { return latency_ > 0; }
  Nanoseconds time() const { return time_; }
  // What the latency adds to the effective energies, in joules.
  double late_energy_j() const { return late_energies_j_.empty() ? 0 : late_energies_j_.back(); }
  // Each instruction starts at starts()[i], and ends at ends()[i].
  const std::vector<Nanoseconds>& starts() const { return starts_; }
  const std::vector<Nanoseconds>& ends() const { return ends_; }
  // With the stall, and without what a latency does.
  Nanoseconds duration(int instruction) const {
    return durations_[static_cast<std::size_t>(instruction)];
  }

  struct Change {
    int instruction = 0;
    Nanoseconds duration = 0;
    int clock = 0;
  };
  // A lower bound of the time after the changes. Requires that no change makes a duration shorter,
  // and no latency.
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
  // The duration of the instruction if a latency may let it run at an earlier clock.
  Nanoseconds RunLate(int instruction, Nanoseconds start);
  void ComputeTails();

  // The clock of a pp_rank after an instruction.
  struct Clock {
    int running = 0;
    int pending = kNone;
    Nanoseconds switch_time = 0;   // When the pending one takes effect.
    Nanoseconds previous_end = 0;  // Of the instruction.

    void Settle(Nanoseconds now);
  };
  struct Late {
    Nanoseconds duration = 0;
    double energy_j = 0;  // Effective.
  };
  Late RunMixed(const RankClocks& rank, int position, const Clock& clock, Nanoseconds begin) const;
  struct Place {
    int pp_rank = kNone;  // kNone: the instruction has no choice.
    int position = 0;
  };
  static constexpr int kNone = -1;

  std::vector<int> first_before_;  // [instruction] an index into before_.
  std::vector<Before> before_;
  std::vector<int> last_;  // The instructions that none waits for.
  const std::vector<RankClocks>* ranks_ = nullptr;
  Nanoseconds latency_ = 0;
  double blocking_power_w_ = 0;
  std::vector<Place> places_;  // [instruction]; empty without a latency, like the clocks below.
  std::vector<int> clocks_;
  std::vector<Nanoseconds> durations_;
  std::vector<Nanoseconds> starts_;
  std::vector<Nanoseconds> ends_;
  std::vector<Clock> clocks_after_;
  std::vector<double> late_energies_j_;  // The sum up to this instruction.
  std::vector<Nanoseconds> kept_starts_;
  std::vector<Nanoseconds> kept_ends_;
  std::vector<Clock> kept_clocks_after_;
  std::vector<double> kept_late_energies_j_;
  std::vector<Nanoseconds> tails_;  // The longest path after the end of an instruction.
  bool tails_are_valid_ = false;
  Nanoseconds time_ = 0;
  Nanoseconds kept_time_ = 0;
  int first_tried_ = 0;
  std::vector<Change> undo_;
};

}  // namespace perseus::few_switches
