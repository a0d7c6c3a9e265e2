// From the description of a job to an instruction graph for the planner. The description has three
// parts: a job file, settings (the flags of the program, or the arguments in Python), and the files
// that these two name. Errors name a value by its key in the job file (RenameKeys in
// base/wording.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/limits.h"
#include "perseus/base/number_range.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/job/auto_schedule.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/recipe/recipe.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::job {

// The ranges of the numbers of a job.
inline constexpr NumberRange kCountRange{1, kMostMicrobatches, "whole numbers"};
inline constexpr NumberRange kBlockingPowerRange{0, kMostWatts, "watts"};
inline constexpr NumberRange kSwitchLatencyRange{0, kLongestSwitchMs, "milliseconds"};
inline constexpr NumberRange kStallRange{0, 60, "seconds"};
inline constexpr NumberRange kSwitchEnergyRange{0, kMostJoules, "joules"};
inline constexpr NumberRange kSecondsRange{0, kLongestSeconds, "seconds"};

// The settings of the user besides the job file. If a setting is absent, the value of the job file
// is used. If both lack the blocking power, the switch latency or the switch cost, the value of the
// hardware facts is used.
struct JobSettings {
  std::string profile = {};
  std::optional<std::string> profile_text =
      {};  // Instead of a file; `profile` is then only a name.
  std::string job_file = {};
  std::string schedule = {};  // A generated schedule, or kAutoSchedule.
  std::string schedule_file = {};
  std::string graph = {};
  std::string facts = {};  // A hardware facts file. Empty: the file that the job file names.
  std::optional<int> pp_ranks = {};
  std::optional<int> microbatches = {};
  std::optional<int> chunks = {};
  // For kAutoSchedule: the microbatches that each pp_rank may hold, or bytes (LimitMemory).
  std::vector<int> max_in_flight = {};
  MemorySettings memory = {};
  bool fold = false;  // For kAutoSchedule: the stages fold into a V.
  // How often plans may change clocks, if neither the job file nor the hardware facts state it. A
  // search for a schedule compares plans with this limit.
  recipe::ChangeRules changes = {};
  std::optional<int> pipelines = {};
  std::optional<int> gpus_per_stage = {};
  std::optional<double> blocking_power_w = {};
  std::optional<double> switch_latency_ms = {};
  std::optional<schedule::SwitchCost> switch_cost = {};  // For one GPU.
  // Whether plans without a known switch cost have the assumed one. `tune` measures plans in whole
  // steps, which include what changes really cost.
  bool assumes_switch_cost = true;
  std::optional<double> p2p_s = {};
  std::optional<double> load_s = {};
  std::optional<double> all_reduce_s = {};
  std::optional<double> optimizer_s = {};
};

// The values of a hardware facts file that a job uses, and the assumed values (assumed.h).
struct UsedFacts {
  std::string path;  // Empty if the job uses no facts.
  std::string gpu_name;
  // nullopt if a setting or the job file gives the value, or if the facts lack it.
  std::optional<double> blocking_power_w;
  std::optional<Nanoseconds> switch_latency;
  std::optional<Nanoseconds> switch_stall;   // The switch cost: facts have no energy of a change.
  std::optional<double> most_changes_per_s;  // Clock changes of one GPU. Only facts give it.
  // Whether the value is assumed, because neither a setting, the job file nor facts give it.
  bool assumes_latency = false;
  bool assumes_stall = false;
};
// Describes the values in one line for the facts ("hardware facts: facts.toml gives the blocking
// power (86.25 W)"), and one line for the assumed values. Each line is absent if it has no values.
// Leaves out the rate of clock changes, because only commands that plan use this rate.
std::string Describe(const UsedFacts& facts);

struct LoadedJob {
  plan_file::PlannedJob planned;
  schedule::InstructionGraph graph;
  plan::ExecutionModel model;  // For a pp_rank: all GPUs of a stage together.
  UsedFacts facts = {};
  recipe::ChangeRules changes = {};                // The active rules.
  std::optional<AutoSchedule> auto_schedule = {};  // Only for kAutoSchedule.
  std::optional<profile::TimeNoise> noise = {};    // The noise in the profile.
  std::string profile_doubt = {};                  // The warning of the profile (Profile::doubt).
  // [stage] The bytes of activations of one microbatch. Empty if they are unknown.
  std::vector<std::int64_t> activations = {};

  int gpus() const;  // The GPUs of one pipeline.
  // Returns the wishes (recipe.h) for this target, with the rules and the noise of this job. If no
  // target is given, uses the default target.
  recipe::Wishes wishes(const std::optional<plan::Target>& target = {}) const;
};

// A job without its profile.
struct UnprofiledJob {
  plan_file::PlannedJob planned;
  UsedFacts facts = {};
  std::optional<int> most_switches = {};           // max_switches of the job file.
  std::optional<AutoSchedule> auto_schedule = {};  // Only for kAutoSchedule.
};

// A job that has no schedule yet.
struct UnscheduledJob {
  plan_file::PlannedJob planned;  // Without a schedule.
  profile::Profile profile;
  plan::ExecutionModel model;
  int microbatches = 0;
  UsedFacts facts = {};
  std::optional<int> most_switches = {};  // max_switches of the job file.
  std::vector<int> max_in_flight = {};
  GpuMemory memory = {};
  schedule_search::Placement placement = schedule_search::Placement::kLoop;
  recipe::ChangeRules changes = {};  // The rules that the user asks for.

  schedule_search::SearchJob search_job() const;
};

// Returns the job without its schedule. The only schedule that the settings may name is
// kAutoSchedule.
Result<UnscheduledJob> LoadUnscheduledJob(const JobSettings& settings);

// Returns the job with the reference schedule: the search compares other schedules with it
// (FindReference).
Result<LoadedJob> LayOutReference(const UnscheduledJob& job);

// Loads a job. Settings replace values of the job file. Reads every file that either of them names.
// If neither gives the blocking power, the switch latency or the switch cost, the hardware facts
// give it. For a graph, they do not give the blocking power, because the file of the graph
// describes the power of its resources. A pipeline for which nothing gives the latency or the cost
// has the assumed values (assumed.h), except for plans with a clock for each instruction. If the
// name of the schedule is kAutoSchedule, searches for a schedule, which takes seconds. `search` has
// the effort of this search.
Result<LoadedJob> LoadJob(const JobSettings& settings,
                          const schedule_search::SearchEffort& search = {});

// Loads a job without its profile, which will be measured later. `planned.profile` is the path from
// the settings or the file. Only the profile of the settings is read: for the number of pp_ranks if
// that is not given, and for a search with kAutoSchedule. The default of the blocking power is 0.
Result<UnprofiledJob> LoadUnprofiledJob(const JobSettings& settings);

// Loads the job that a plan was made for. If `settings` name a profile (or graph), uses it, and
// otherwise the one that the plan names. Other settings, and the hardware facts that a setting
// names, replace the values of the plan. Settings that describe the schedule are ignored, because
// the plan contains its schedule. `plan_path` is the path of the plan, for errors about its
// schedule.
Result<LoadedJob> LoadPlannedJob(const plan_file::PlanFile& plan, std::string_view plan_path,
                                 const JobSettings& settings);

}  // namespace perseus::job
