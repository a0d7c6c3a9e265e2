// A job as a user asks for it (by flags of the program, or arguments in Python) and a job file:
// from these and the files that they name to the instruction graph, ready to be planned.
#pragma once

#include <optional>
#include <string>

#include "perseus/base/number_range.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::job {

// What the numbers of a job may be.
inline constexpr NumberRange kCountRange{1, 1'000'000, "whole numbers"};
inline constexpr NumberRange kBlockingPowerRange{0, 100'000, "watts"};
inline constexpr NumberRange kSwitchLatencyRange{0, 60'000, "milliseconds"};
inline constexpr NumberRange kSecondsRange{0, kLongestSeconds, "seconds"};

// As given; a flag that is absent leaves what the job file says.
struct JobFlags {
  std::string profile;
  std::optional<std::string> profile_text;  // Where it is no file; `profile` is its name then.
  std::string job_file;
  std::string schedule;
  std::string schedule_file;
  std::string graph;
  std::optional<int> pp_ranks;
  std::optional<int> microbatches;
  std::optional<int> chunks;
  std::optional<int> pipelines;
  std::optional<int> gpus_per_stage;
  std::optional<double> blocking_power_w;
  std::optional<double> switch_latency_ms;
  std::optional<double> p2p_s;
  std::optional<double> load_s;
  std::optional<double> all_reduce_s;
  std::optional<double> optimizer_s;
};

struct LoadedJob {
  plan_file::PlannedJob planned;
  schedule::InstructionGraph graph;
  plan::ExecutionModel model;  // Of a rank: all GPUs of a stage together.

  int gpus() const;  // Of one pipeline.
};

// Flags override the job file. Reads every file that they name.
Result<LoadedJob> LoadJob(const JobFlags& flags);

// The job without its profile, which is still to be measured: `profile` is what the flags or the
// file say, and nobody reads it. Wants the number of stages. A blocking power that nobody says is
// 0.
Result<plan_file::PlannedJob> LoadUnprofiledJob(const JobFlags& flags);

// The job that a plan was made for, laid out over the profile (or graph) that `flags` name, else
// over the one that the plan names. Other flags override what the plan says, except for those that
// say what runs, which are an error: the plan holds its schedule.
Result<LoadedJob> LoadPlannedJob(const plan_file::PlanFile& plan, const JobFlags& flags);

}  // namespace perseus::job
