// A plan as a file: what a training run needs to follow it, and what anybody needs to check it.
//
// JSON with a version (docs/formats.md shows one). It holds the whole job, so that `perseus
// evaluate plan.json` with a profile lays the same iteration out again and asks for nothing else,
// and every instruction in the order of its rank, with the clock that it runs at.
//
// Times are written in seconds with as many digits as it takes to get every nanosecond back, and
// energies to the last bit: ParsePlan(FormatPlan(plan)) is the same plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/schedule/instruction_graph.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::plan_file {

// What was planned. A general graph has no schedule: its file takes the place of profile and
// schedule, and `schedule.ranks` is empty.
struct PlannedJob {
  std::string profile;  // The path of the profile, or of the general graph, as the user gave it.
  schedule::Schedule schedule;
  int pipelines = 1;
  schedule::PipelineModel model;
  Nanoseconds switch_latency = 0;

  bool IsGeneralGraph() const { return schedule.ranks.empty(); }
};

struct PlannedInstruction {
  InstructionKind kind = InstructionKind::kForward;
  std::string name;           // Of an instruction of a general graph; else empty.
  int stage = -1;             // Over all ranks, as in Schedule; -1 if it belongs to none.
  int chunk = 0;              // Of the stages on its rank.
  int microbatch = -1;        // -1 if it belongs to none.
  double frequency_mhz = 0;   // 0 if no clock was chosen: fixed instructions.
  std::vector<double> knobs;  // One value per PlanFile::other_knob_names, or empty likewise.
  Nanoseconds start = 0;
  Nanoseconds duration = 0;
  double energy_j = 0;  // Of all GPUs of the stage.
};

struct PlannedRank {
  std::string name;
  std::vector<PlannedInstruction> instructions;  // In execution order.
  // The file was cut down to other ranks: of this one it has the first instruction of each stage.
  bool is_cut = false;
};

struct PlanFile {
  PlannedJob job;
  std::vector<std::string> other_knob_names;

  std::string target;  // In words.
  Nanoseconds deadline = 0;
  Nanoseconds time = 0;      // Of the iteration.
  double energy_j = 0;       // Of one pipeline, waiting included.
  double lower_bound_j = 0;  // No plan for this profile within the deadline costs less.
  int switches = 0;
  Nanoseconds baseline_time = 0;  // Everything at maximum frequency.
  double baseline_energy_j = 0;

  std::vector<PlannedRank> ranks;
};

std::string FormatPlan(const PlanFile& plan);

// Errors (kInput) are one line, "name: ranks[2].instructions[5].frequency is ... (remedy)". A plan
// that parses is whole: `job.schedule` is rebuilt from the instructions, each stage on one rank.
// Whether it computes every microbatch once is for BuildInstructionGraph to say.
Result<PlanFile> ParsePlan(std::string_view text, std::string_view name);

// The options that the plan names, per instruction of `graph`, ready for an Evaluator. Instructions
// match by their order on a rank, and knobs by name; fixed instructions may differ between plan and
// graph. Fails (kInput) if the order differs, if one of the two lacks a knob of the other, or if
// the profile behind `graph` has not measured an option: the message names stage, kind, frequency
// and the nearest measured one. `name` stands for the plan's file.
Result<std::vector<int>> FindOptions(const PlanFile& plan, const schedule::InstructionGraph& graph,
                                     std::string_view name);

}  // namespace perseus::plan_file
