// The job file: everything that `perseus plan` needs besides the profile. The format is TOML.
// JobSettings (job_setup.h) replace the values of its keys, except for energy_j.
//
//   profile = "profile.csv"           # relative to the job file
//   [pipeline]
//   schedule = "1f1b"                 # or "auto" (auto_schedule.h), or schedule_file = "dump.csv",
//                                     # or graph = "work.json"
//   pp_ranks = 8                      # positions along the pipeline
//   microbatches = 96
//   chunks = 1
//   pipelines = 16                    # data parallel; for totals only
//   [gpu]
//   blocking_power_w = 83.64
//   gpus_per_stage = 8
//   switch_latency_ms = 0.0
//   switch_stall_s = 0.0              # each clock change stalls a GPU for this time,
//   switch_energy_j = 0.0             # and takes this much energy on top
//   max_switches = 8                  # clock changes of a GPU in an iteration; absent: no limit
//   facts = "facts.toml"              # for an absent blocking power or switch latency
//   [memory]                          # of one GPU; for schedule = "auto"
//   gpu_gib = 80.0
//   activation_mib = 700.0            # of one microbatch; or a list, one for each stage
//   model_gib = [40.0, 38.0]          # weights, gradients, optimizer states; of each pp_rank
//   max_in_flight = [5, 4, 3, 1]      # instead of bytes: microbatches on each pp_rank
//   [[fixed]]
//   kind = "p2p"                      # load, p2p, all_reduce or optimizer
//   time_s = 0.0004
//   energy_j = 0.05                   # not for p2p; absent: blocking power
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/job/gpu_memory.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::job {

// The maximum value of max_switches: more changes than any iteration has.
inline constexpr int kMostSwitches = 1'000'000;

struct Job {
  // Paths as written in the file; empty where absent.
  std::string profile_path;
  std::string schedule_path;
  std::string graph_path;
  std::string facts_path;

  schedule::ScheduleSpec schedule;  // If the file has no such keys: no name, sizes 0.
  int pipelines = 1;
  schedule::PipelineModel model;
  Nanoseconds switch_latency = 0;
  schedule::SwitchCost switch_cost;  // For one GPU.
  std::optional<int> most_switches;  // Clock changes of a GPU in an iteration.
  MemorySettings memory;
  bool is_folded = false;  // For kAutoSchedule: the stages fold into a V.
  std::vector<int> max_in_flight;

  // The keys of the file, without the names of their tables: "pp_ranks", "blocking_power_w".
  std::vector<std::string> keys;
  bool Has(std::string_view key) const {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }
};

// Parses a job file. `name` is the name of the file in messages. Unknown keys, wrong types and
// values out of range are errors (kInput) with the file and the line.
Result<Job> ParseJob(std::string_view toml, std::string_view name);

}  // namespace perseus::job
