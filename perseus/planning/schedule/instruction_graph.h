// One iteration of one pipeline as a directed acyclic graph: the instructions, their options, and
// the dependencies between them. The planner uses only this graph. A schedule and a profile make
// such a graph. For work that is not a training pipeline, a JSON file makes one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule {

// The options of an instruction. All microbatches of the same stage and kind share one set.
struct OptionSet {
  std::string name;  // For messages and tables: "stage 3 forward", "stage 3 chunk 1 backward".
  InstructionKind kind = InstructionKind::kGeneric;
  int pp_rank = 0;  // Where it runs; the column `stage` of the profile.
  int chunk = 0;
  std::vector<profile::Option> options;  // As measured, times gpus_per_stage for energies.
  int baseline = 0;                      // The option at maximum frequency (the fastest such).

  // Whether its GPU has to be at a certain clock while it runs. A computation that was measured at
  // only one clock has a clock, but no choice. A fixed instruction has no clock: it runs at any
  // clock, so it never changes the clock.
  bool HasClock() const { return options.size() > 1 || options.front().frequency_mhz > 0; }
};

struct InstructionNode {
  int option_set = 0;
  int pp_rank = 0;
  int microbatch = -1;  // -1 if it belongs to no microbatch.
};

// `to` may start `delay` after `from` has ended (for p2p: the transfer time).
struct Dependency {
  int from = 0;
  int to = 0;
  Nanoseconds delay = 0;
};

struct InstructionGraph {
  std::string name;
  std::vector<std::string> other_knob_names;
  profile::KnobLabels knob_labels;
  std::vector<OptionSet> option_sets;
  std::vector<InstructionNode> instructions;     // In a topological order.
  std::vector<Dependency> dependencies;          // With the order of each pp_rank.
  std::vector<std::vector<int>> pp_rank_orders;  // [pp_rank][position] -> instruction.
  std::vector<std::string> pp_rank_names;        // "pp_rank 0", or a resource of a graph file.

  const OptionSet& options_of(int instruction) const {
    return option_sets[static_cast<std::size_t>(
        instructions[static_cast<std::size_t>(instruction)].option_set)];
  }
};

// Fixed instructions: they take the same time at any clock.
struct FixedInstructions {
  struct Cost {
    Nanoseconds time = 0;
    double energy_j = -1;  // For one GPU. Negative: the GPU draws the blocking power.
  };
  Nanoseconds p2p = 0;  // The delay of every dependency between two pp_ranks.
  Cost load;            // Before each forward of the first stage.
  Cost all_reduce;      // On every pp_rank after its last computation.
  Cost optimizer;       // On every pp_rank after the all-reduce.
};

// The cost of a clock change, besides the time until it takes effect.
struct SwitchCost {
  Nanoseconds stall = 0;  // The GPU does no work for this time.
  double energy_j = 0;    // In addition to the blocking power in the stall.

  bool IsNone() const { return stall == 0 && energy_j == 0; }
};

struct PipelineModel {
  FixedInstructions fixed;
  double blocking_power_w = 0;  // For one GPU.
  int gpus_per_stage = 1;       // GPUs that share a stage (tensor parallel).
  // Whether each pp_rank waits at its own blocking power, which the profile has. Then
  // blocking_power_w is the mean of the pp_ranks.
  bool has_power_of_stages = false;
};

// Combines `schedule` and `profile` into a graph, and adds every data dependency (forward s-1 -> s,
// backward s+1 -> s, forward -> backward, recompute -> backward, dgrad -> wgrad). Fails (kInput) if
// the profile lacks an instruction of the schedule, if an instruction is missing or appears twice,
// or if the order deadlocks. The message names the instructions.
//
// The (pp_rank, chunk) of the profile is the (pp_rank_of_stage, chunk_of_stage) of the schedule. So
// the profile has as many pp_ranks as the schedule, and as many chunks as a pp_rank has.
// A dependency within a pp_rank is left out if the order of the pp_rank already implies it.
//
// With model.has_power_of_stages, each pp_rank waits at its own power P_r. P is their mean,
// model.blocking_power_w. The energy of an option of pp_rank r is then e -
// (P_r - P) t, where e and t are its energy and time. The energy of an iteration of length T is
// exact, because sum(e - (P_r - P) t) + P (S T - sum t) = sum e + sum P_r (T - sum of t on r).
Result<InstructionGraph> BuildInstructionGraph(const Schedule& schedule,
                                               const profile::Profile& profile,
                                               const PipelineModel& model);

// A general graph (docs/formats.md):
//   {"instructions": [{"name": "a", "resource": "gpu0",
//                    "options": [{"frequency": 1410, "time": 0.05, "energy": 23.8}, ...]}, ...],
//    "dependencies": [{"from": "a", "to": "b", "delay": 0.001}, ...],
//    "blocking_power": 83.64}
// `resource` may be absent if there is no blocking power. (The instruction then has its own
// resource.) Instructions on one resource run in the order of the file. `frequency` (MHz) may be
// absent if an instruction has only one option. Times are in s, energies in J, power in W.
// `dependencies`, `delay` and `blocking_power` may be absent. Unknown keys are errors.
//
// If `blocking_power_w` is given, it replaces the blocking power of the file, and every instruction
// needs a resource.
struct GraphFile {
  InstructionGraph graph;
  double blocking_power_w = 0;  // The argument, or else the value of the file, or else 0.
};
Result<GraphFile> ParseInstructionGraph(std::string_view json, std::string_view name,
                                        std::optional<double> blocking_power_w = {});

// Sorts `graph.instructions` topologically, and updates everything that refers to them. If there is
// a cycle, fails with a message that names its instructions.
Result<InstructionGraph> SortTopologically(InstructionGraph graph);

// Fails (kInput) if all instructions at their slowest, one after the other, take longer than 36
// years: an eighth of the range of 64-bit nanoseconds, which the planner uses. Both readers above
// check this.
Result<void> CheckDurations(const InstructionGraph& graph);

// The option of each instruction at maximum frequency, which the GPU uses without a plan.
std::vector<int> BaselineOptions(const InstructionGraph& graph);

// "forward of microbatch 3 on pp_rank 2", for messages.
std::string Describe(const InstructionGraph& graph, int instruction);

// Kahn's algorithm (1962) over the dependencies of a graph.
struct TopologicalOrder {
  // All instructions, each after those that it waits for. If several instructions are ready, the
  // one with the lowest number comes first. So a graph that is already in order does not change.
  // Empty if there is a cycle.
  std::vector<int> order;
  // If there is a cycle, its instructions, each after the one that it waits for.
  std::vector<int> cycle;
};

TopologicalOrder FindTopologicalOrder(const InstructionGraph& graph);

// Returns the same graph with instruction order[i] as number i. Sorts the dependencies by
// (from, to).
InstructionGraph Renumber(InstructionGraph graph, const std::vector<int>& order);

}  // namespace perseus::schedule
