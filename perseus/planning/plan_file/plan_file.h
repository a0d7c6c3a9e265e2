// A plan as a file. It has everything that a training run needs to follow the plan, and everything
// that a user needs to check it.
//
// The file is JSON with a version (docs/formats.md shows an example). It contains the whole job. So
// `perseus evaluate plan.json` builds the same iteration from a profile and needs nothing else. The
// file has every instruction in the order of its pp_rank, with the clock at which it runs.
//
// Times are in seconds with enough digits to restore every nanosecond. Energies are exact to the
// last bit. ParsePlan(FormatPlan(plan)) is the same plan.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/schedule/instruction_graph.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::plan_file {

// The job that was planned. A general graph has no schedule: its file replaces the profile and the
// schedule, and `schedule.pp_ranks` is empty.
struct PlannedJob {
  std::string profile;  // The path of the profile, or of the general graph, as the user gave it.
  schedule::Schedule schedule;
  int pipelines = 1;
  schedule::PipelineModel model;
  Nanoseconds switch_latency = 0;
  schedule::SwitchCost switch_cost = {};  // For one GPU.

  bool IsGeneralGraph() const { return schedule.pp_ranks.empty(); }
};

struct PlannedInstruction {
  InstructionKind kind = InstructionKind::kForward;
  std::string name;           // Only for an instruction of a general graph; else empty.
  int stage = -1;             // Numbered over all pp_ranks; -1 if it belongs to no stage.
  int chunk = 0;              // Counts the stages of its pp_rank from 0.
  int microbatch = -1;        // -1 if the instruction has none.
  int frequency_mhz = 0;      // 0 for fixed instructions, which have no clock.
  std::vector<double> knobs;  // One value for each other_knob_names; empty if it has no clock.
  Nanoseconds start = 0;
  Nanoseconds duration = 0;
  double energy_j = 0;  // All GPUs of the stage.
};

struct PlannedRank {
  std::string name;
  std::vector<PlannedInstruction> instructions;  // In execution order.
  // Whether the file was reduced to other pp_ranks (see below). Then `instructions` has only the
  // first instruction of each stage of this pp_rank.
  bool is_cut = false;
};

struct PlanFile {
  PlannedJob job;
  std::vector<std::string> other_knob_names;
  profile::KnobLabels knob_labels = {};

  std::string target;  // In words.
  Nanoseconds deadline = 0;
  Nanoseconds time = 0;      // The iteration's time.
  double energy_j = 0;       // One pipeline, with waiting included.
  double lower_bound_j = 0;  // No plan for this profile within the deadline needs less energy.
  int switches = 0;
  Nanoseconds baseline_time = 0;  // All instructions at maximum frequency.
  double baseline_energy_j = 0;

  std::vector<PlannedRank> pp_ranks;
};

// kOneLine has no line ends, so it fits into an event.
enum class PlanText { kLineForEachInstruction, kOneLine };
std::string FormatPlan(const PlanFile& plan, PlanText text = PlanText::kLineForEachInstruction);

// Returns the part of the plan that a node with these pp_ranks needs. For all other pp_ranks, keeps
// only the first instruction of each stage, because ParsePlan needs to know which pp_rank has which
// stage. Fails (kInput) if the plan lacks one of the pp_ranks.
Result<PlanFile> Cut(PlanFile plan, const std::set<int>& pp_ranks);

// Parses a plan file. Errors (kInput) are one line, "name: pp_ranks[2].instructions[5].frequency is
// ... (remedy)". On success, all fields are filled: `job.schedule` is rebuilt from the
// instructions, and each stage is on one pp_rank. ParsePlan does not check that every microbatch is
// computed exactly once, because BuildInstructionGraph checks this.
Result<PlanFile> ParsePlan(std::string_view text, std::string_view name);

// Returns the options that the plan names, one for each instruction of `graph`, ready for an
// Evaluator. Instructions match by their order on a pp_rank, and knobs match by name. Fixed
// instructions may differ between plan and graph. Fails (kInput) if the order differs, if the plan
// or the graph lacks a knob of the other, or if the profile of `graph` lacks an option. The message
// for such an option has the stage, the kind, the frequency, and the nearest measured frequency.
// `name` is the name of the file of the plan.
Result<std::vector<int>> FindOptions(const PlanFile& plan, const schedule::InstructionGraph& graph,
                                     std::string_view name);

// Whether a plan chooses a clock for instructions of this kind. False for fixed instructions.
bool IsPlanned(InstructionKind kind);

// [pp_rank][position] The instructions for which a plan chooses a clock, in execution order.
std::vector<std::vector<int>> PlannedOrders(const schedule::InstructionGraph& graph);

struct NamedOption {
  int frequency_mhz = 0;
  std::span<const double> other_knobs;  // Empty if the plan names none.
};

// Returns the index in `set.options`. If the option was not measured, fails (kInput) with the
// nearest measured frequency in the message. Also fails if the plan names no other knobs, but
// several options have the frequency. `where` is the beginning of the message, such as "plan.json:
// pp_ranks[2].instructions[5]".
Result<int> FindOption(const schedule::OptionSet& set, const NamedOption& named,
                       std::string_view where);

}  // namespace perseus::plan_file
