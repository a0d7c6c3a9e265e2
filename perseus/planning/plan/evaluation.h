// The time and energy of a plan, computed from the measured options that it names.
//
// Every pp_rank runs its instructions in order. An instruction starts when its predecessors have
// ended and their delays have passed. While a pp_rank waits, before, between or after its
// instructions, it draws the blocking power, until the last pp_rank has finished:
//
//     E = sum of the energies of instructions
//         + P * (pp_ranks * T - sum of the durations of instructions)
//
// Switch latency. A pp_rank requests the clock of an instruction when the previous instruction
// ends, as the client library does. The switch happens `switch_latency` later. If the instruction
// begins earlier, it runs at the previous clock until the switch. Suppose it takes t' at the
// previous clock, and the remaining latency is L. Then in the time L, the fraction L/t' of the
// instruction is done, and the same fraction of the energy at the previous clock is used. The rest
// runs at the instruction's own option. If L covers the whole instruction, all of it runs at the
// previous clock. The switch then happens later, unless another request replaces it.
//
// At the start of an iteration, the first clock of each pp_rank is already set (by the previous
// iteration). Fixed instructions do not change the clock. An instruction may have to run at a
// previous clock at which it was never measured. Then its measured option with the nearest
// frequency takes the place of this clock. (If an instruction was measured at only one clock, this
// is its own option.)
//
// Switches. Requested changes are counted, so a latency does not affect the count. An iteration
// repeats, so the change from the last clock of a pp_rank back to its first clock counts, too. So
// no pp_rank has exactly one switch.
//
// With a latency, an instruction may run as a mix of two options. The relaxation allows such mixes,
// so its bound is still valid.
//
// Switch cost. If two consecutive instructions of a pp_rank have different clocks, the pp_rank
// stalls before the second one. During the stall, it draws the blocking power, and the change needs
// additional energy. Both are counted as time and energy of the second instruction. A switch
// latency begins when the previous instruction ends, so the stall is a part of this latency. An
// iteration repeats, so a change from the last instruction back to the first one stalls the first
// one.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::plan {

struct Evaluation {
  Nanoseconds time = 0;  // The iteration's time.
  double energy_j = 0;   // All pp_ranks: instruction_energy_j + blocking_energy_j.
  double instruction_energy_j = 0;
  double blocking_energy_j = 0;
  int switches = 0;  // Changes of the requested clock, of all pp_ranks, with the changes back.
  std::vector<int> pp_rank_switches;  // [pp_rank]
  // [instruction]
  std::vector<Nanoseconds> starts;
  std::vector<Nanoseconds> durations;
  std::vector<double> energies_j;

  double average_power_w() const { return energy_j / ToSeconds(time); }
};

struct ExecutionModel {
  double blocking_power_w = 0;            // For one pp_rank: all of its GPUs together.
  Nanoseconds switch_latency = 0;         // The time from the request to the effect.
  schedule::SwitchCost switch_cost = {};  // For one pp_rank: all of its GPUs together.

  // Whether the time and energy of an instruction depend only on its own option.
  bool SwitchesAreFree() const { return switch_latency == 0 && switch_cost.IsNone(); }
};

// How one execution differs from the measurements. Each list is empty (no difference), or has one
// value for each instruction. As for CheckDurations, the sum of the resulting durations must fit 64
// bits of nanoseconds.
struct Variation {
  std::vector<double> time_factors;          // The time is multiplied by this, at the same power.
  std::vector<Nanoseconds> earliest_starts;  // The instruction cannot start earlier.
  // The latency of the switch that the instruction requests. Replaces the latency of the model.
  std::vector<Nanoseconds> switch_latencies;
};

// Evaluates many plans of one graph. Keeps a reference to the graph.
// Thread safety: const methods may be called from several threads.
class Evaluator {
 public:
  // Requires graph.instructions in topological order, and CheckDurations(graph).
  Evaluator(const schedule::InstructionGraph& graph, const ExecutionModel& model);

  // `options[i]` is the option of instruction i: a valid index into its option set.
  Evaluation Evaluate(std::span<const int> options) const;
  // Evaluates an execution that differs from the measurements. The emulator uses this function.
  Evaluation Evaluate(std::span<const int> options, const Variation& variation) const;

  // The data of a plan that an evaluation needs. Computed once, for many executions of one plan.
  struct Chosen {
    // [instruction]
    std::vector<Nanoseconds> times;
    std::vector<double> energies_j;
    std::vector<int> clocks;            // kNoClock for an instruction without a clock.
    std::vector<bool> changes;          // Whether the instruction begins with a clock change.
    std::vector<int> pp_rank_switches;  // [pp_rank]
  };
  Chosen Choose(std::span<const int> options) const;
  // Overwrites `evaluation` and reuses its memory.
  void Evaluate(const Chosen& chosen, const Variation& variation, Evaluation& evaluation) const;

  // Returns a longest path of the evaluation, last instruction first. Each instruction starts as
  // soon as the next one in the list has ended and the delay between them has passed.
  std::vector<int> LongestPath(const Evaluation& evaluation) const;

 private:
  friend class EvaluationUpdate;
  struct Timing;  // The time and energy of an option.
  static constexpr int kNoClock = -1;
  // The clock at which a pp_rank runs, and the pending one of a requested switch.
  struct Clock {
    int current = kNoClock;
    int pending = kNoClock;
    Nanoseconds switch_time = 0;   // When the pending clock takes effect. 0 if none is pending.
    Nanoseconds previous_end = 0;  // The end of the last instruction that has a clock.
    bool operator==(const Clock&) const = default;

    // Requests a clock at the end of the previous instruction. Keeps a pending switch to the same
    // clock.
    void Request(int wanted, Nanoseconds latency) {
      if (pending == wanted) return;
      pending = wanted;
      switch_time = previous_end + latency;
    }
    void Settle(Nanoseconds now) {
      if (pending == kNoClock || switch_time > now) return;
      current = std::exchange(pending, kNoClock);
      switch_time = 0;
    }
  };

  static Timing Slowed(const Timing& measured, double factor);
  void RunAtPreviousClock(int instruction, const Timing& wanted, int wanted_clock, Clock& clock,
                          Nanoseconds start, const Variation& variation,
                          Evaluation& evaluation) const;

  const schedule::InstructionGraph& graph_;
  ExecutionModel model_;
  // Returns the fastest option with this clock, or with the nearest frequency if no option has it.
  // If several options are equally fast, returns the first.
  int OptionNearest(int option_set, int clock) const;

  // A clock is the number of a distinct frequency. A change of another knob is no clock change: it
  // neither counts nor costs, and it takes effect at once.
  std::vector<std::vector<int>> clock_of_option_;  // [option set][option]
  std::vector<int> frequency_mhz_of_clock_;
  // [option set] the (frequency in MHz, index) of its options, sorted by frequency, time and index.
  // Empty without a latency.
  std::vector<std::vector<std::pair<int, int>>> by_frequency_;
  std::vector<int> first_dependency_;  // [instruction that waits] an index into dependencies_.
  std::vector<schedule::Dependency> dependencies_;
};

}  // namespace perseus::plan
