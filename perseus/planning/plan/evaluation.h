// The real time and energy of a plan: the measured options that it names, one after the other.
//
// Every pp_rank runs its instructions in order. An instruction starts when its predecessors have
// ended and their delays have passed. While a pp_rank waits, before, between or after its
// instructions, it draws the blocking power, until the last pp_rank has finished:
//
//     E = sum of the energies of instructions
//         + P * (pp_ranks * T - sum of the durations of instructions)
//
// Switch latency. A pp_rank requests the clock of an instruction when the instruction begins. Until
// the switch happens, `switch_latency` later, the instruction runs at the previous clock of the
// pp_rank. If it takes t' at the previous clock, then after the latency L the fraction L/t' of it
// is done, and L/t' of the energy of that option is used. The rest runs at the instruction's own
// option. If L covers the whole instruction, all of it runs at the previous clock, and the switch
// happens later, unless another request replaces it. The first instruction of a pp_rank finds its
// clock already set (by the iteration before). Fixed instructions (those with one option) do not
// change the clock. If the previous clock was never measured for this instruction, the measured
// option with the nearest frequency takes its place.
//
// An instruction under a latency is a mix of two options, so the bound of the relaxation holds for
// it too.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::plan {

struct Evaluation {
  Nanoseconds time = 0;  // Of the iteration.
  double energy_j = 0;   // Of all ranks; instruction_energy_j + blocking_energy_j.
  double instruction_energy_j = 0;
  double blocking_energy_j = 0;
  int switches = 0;                   // How often an instruction finds its rank at another clock.
  std::vector<int> pp_rank_switches;  // The same by rank.
  // Per instruction.
  std::vector<Nanoseconds> starts;
  std::vector<Nanoseconds> durations;
  std::vector<double> energies_j;

  double average_power_w() const { return energy_j / ToSeconds(time); }
};

struct ExecutionModel {
  double blocking_power_w = 0;     // Of one rank: all of its GPUs together.
  Nanoseconds switch_latency = 0;  // From request to effect.
};

// How one execution differs from what was measured, per instruction. An empty list: not at all.
// As for CheckDurations, what it makes of all durations has to fit 64 bits of nanoseconds.
struct Variation {
  std::vector<double> time_factors;           // It takes so many times as long, at the same power.
  std::vector<Nanoseconds> earliest_starts;   // It cannot start before.
  std::vector<Nanoseconds> switch_latencies;  // Of a switch that it asks for, in place of the
                                              // model's.
};

// Evaluates many plans of one graph. Keeps a reference to the graph.
// Thread safety: const methods may be called from several threads.
class Evaluator {
 public:
  // Requires graph.instructions in topological order, and CheckDurations(graph).
  Evaluator(const schedule::InstructionGraph& graph, const ExecutionModel& model);

  // `options[i]` is the option of instruction i, as an index into its option set, in range.
  Evaluation Evaluate(std::span<const int> options) const;
  // The same when things vary: for the emulator.
  Evaluation Evaluate(std::span<const int> options, const Variation& variation) const;

 private:
  struct Clock;   // Of a rank, while a plan is evaluated.
  struct Timing;  // What an option takes and costs.

  static Timing Slowed(const profile::Option& option, double factor);
  void RunAtPreviousClock(int instruction, const Timing& wanted, int wanted_setting, Clock& clock,
                          Nanoseconds start, const Variation& variation,
                          Evaluation& evaluation) const;

  const schedule::InstructionGraph& graph_;
  ExecutionModel model_;
  // The option of that setting, or else the first of those whose frequency is nearest.
  int OptionNearest(int option_set, int setting) const;

  // Settings are the distinct clocks (and other knobs) of all options, numbered.
  std::vector<std::vector<int>> setting_of_option_;  // [option set][option]
  std::vector<double> frequency_mhz_of_setting_;
  // [option set]: frequency (MHz) and index of its options, in this order. Only under a latency.
  std::vector<std::vector<std::pair<double, int>>> by_frequency_;
  std::vector<int> first_dependency_;  // By the instruction that waits.
  std::vector<schedule::Dependency> dependencies_;
};

}  // namespace perseus::plan
