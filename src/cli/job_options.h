// The job that a verb works on: from flags, a job file and the files that they name, to the
// operation graph. Shared by `plan` and `evaluate`.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "perseus/base/result.h"
#include "perseus/pipeline/operation_graph.h"
#include "perseus/plan/evaluation.h"
#include "perseus/plan/plan_file.h"

namespace perseus::cli {

// As given; a flag that is absent leaves what the job file says.
struct JobFlags {
  std::string profile;
  std::string job_file;
  std::string schedule;
  std::string schedule_file;
  std::string graph;
  std::optional<int> stages;
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

// Adds all but the profile, which is an argument of one verb and a flag of the other.
void AddJobFlags(CLI::App& verb, JobFlags& flags);

struct LoadedJob {
  PlannedJob planned;
  OperationGraph graph;
  ExecutionModel model;  // Of a rank: all GPUs of a stage together.

  int gpus() const;  // Of one pipeline.
};

// Flags override the job file. Reads every file that they name.
Result<LoadedJob> LoadJob(const JobFlags& flags);

// The job without its profile, which is still to be measured: `profile` is what the flags or the
// file say, and nobody reads it. Wants the number of stages. A blocking power that nobody says is
// 0.
Result<PlannedJob> LoadUnprofiledJob(const JobFlags& flags);

// The job that a plan was made for, laid out over the profile (or graph) that `flags` name, else
// over the one that the plan names. Other flags override what the plan says, except for those that
// say what runs, which are an error: the plan holds its schedule.
Result<LoadedJob> LoadPlannedJob(const PlanFile& plan, const JobFlags& flags);

}  // namespace perseus::cli
