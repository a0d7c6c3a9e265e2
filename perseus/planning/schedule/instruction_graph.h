// One iteration of one pipeline as a directed acyclic graph: what must run, the ways it can run,
// and what must wait for what. This is all that the planner sees; a schedule with a profile gives
// one, and so does a JSON file for users whose work is not a training pipeline.
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

// The ways to run an instruction; instructions that are alike (the same stage and kind for every
// microbatch) share one.
struct OptionSet {
  std::string name;  // For messages and tables: "stage 3 forward", "stage 3 chunk 1 backward".
  InstructionKind kind = InstructionKind::kGeneric;
  int pp_rank = 0;  // Where it runs. (A profile calls this column `stage`.)
  int chunk = 0;
  std::vector<profile::Option> options;  // As measured, energies multiplied by gpus_per_stage.
  int baseline = 0;                      // The option at maximum frequency (of those, the fastest).
};

struct InstructionNode {
  int option_set = 0;
  int pp_rank = 0;
  int microbatch = -1;  // -1 if it belongs to none (all-reduce, optimizer).
};

// `to` may start `delay` after `from` has ended (p2p: the time on the wire).
struct Dependency {
  int from = 0;
  int to = 0;
  Nanoseconds delay = 0;
};

struct InstructionGraph {
  std::string name;
  std::vector<std::string> other_knob_names;
  std::vector<OptionSet> option_sets;
  std::vector<InstructionNode> instructions;  // In a topological order.
  std::vector<Dependency> dependencies;       // Those between neighbours on a rank included.
  std::vector<std::vector<int>> rank_orders;  // [pp_rank][position] -> instruction.
  std::vector<std::string> rank_names;  // "pp_rank 0", or the name of a resource in a graph file.

  const OptionSet& options_of(int instruction) const {
    return option_sets[static_cast<std::size_t>(
        instructions[static_cast<std::size_t>(instruction)].option_set)];
  }
};

// Instructions that take the same time at any clock.
struct FixedInstructions {
  struct Cost {
    Nanoseconds time = 0;
    double energy_j = -1;  // Of one GPU; negative: it draws the blocking power meanwhile.
  };
  Nanoseconds p2p = 0;  // Delay of every dependency that crosses ranks.
  Cost load;            // Before each forward of the first stage.
  Cost all_reduce;      // On every rank after its last computation.
  Cost optimizer;       // On every rank after that.
};

struct PipelineModel {
  FixedInstructions fixed;
  double blocking_power_w = 0;  // Of one GPU.
  int gpus_per_stage = 1;       // GPUs that work on a stage in step (tensor parallel).
};

// Lays `schedule` out over `profile`. Adds every data dependency (forward s-1 -> s, backward
// s+1 -> s, forward -> backward, recompute -> backward, dgrad -> wgrad). Fails (kInput) if the
// profile lacks an instruction of the schedule, an instruction is missing or stands twice, or the
// order would deadlock; the message names the instructions.
//
// The profile's (stage, chunk) is where a schedule's stage lives: (pp_rank_of_stage,
// chunk_of_stage). So the profile has as many stages as the schedule has ranks, and as many chunks
// as a rank has. A dependency within a rank that its order implies already is left out.
Result<InstructionGraph> BuildInstructionGraph(const Schedule& schedule,
                                               const profile::Profile& profile,
                                               const PipelineModel& model);

// A general graph (docs/formats.md):
//   {"instructions": [{"name": "a", "resource": "gpu0",
//                    "options": [{"frequency": 1410, "time": 0.05, "energy": 23.8}, ...]}, ...],
//    "dependencies": [{"from": "a", "to": "b", "delay": 0.001}, ...],
//    "blocking_power": 83.64}
// `resource` may be absent unless there is a blocking power (then the instruction has one of its
// own, and blocks nobody). Instructions on one resource run in the order of the file. `frequency`
// (MHz) may be absent where there is but one option. Times in s, energies in J, power in W;
// `dependencies`, `delay` and `blocking_power` may be absent. Unknown keys are errors.
//
// `blocking_power_w`, where given, takes the place of the file's, and asks for resources likewise.
struct GraphFile {
  InstructionGraph graph;
  double blocking_power_w = 0;  // That which holds: the one given, or else the file's, or else 0.
};
Result<GraphFile> ParseInstructionGraph(std::string_view json, std::string_view name,
                                        std::optional<double> blocking_power_w = {});

// Sorts `graph.instructions` topologically, renumbering everything that refers to them. Fails with
// the cycle, by name, if there is one.
Result<InstructionGraph> SortTopologically(InstructionGraph graph);

// Fails (kInput) if everything at its slowest, one after the other, takes longer than the eighth of
// 64 bits of nanoseconds that the planner computes in (36 years). Both readers above check it.
Result<void> CheckDurations(const InstructionGraph& graph);

// The option of each instruction at maximum frequency: what the hardware does without a plan.
std::vector<int> BaselineOptions(const InstructionGraph& graph);

// "forward of microbatch 3 on pp_rank 2", for messages.
std::string Describe(const InstructionGraph& graph, int instruction);

}  // namespace perseus::schedule
