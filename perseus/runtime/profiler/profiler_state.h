// The measurements of a profiler as a file. With this file, a profiler that restarts continues
// without measuring again. The job's next run can also use the measurements of its GPUs.
//
//   {"perseus_profiler": 1, "job": "1f1b 8x24 gpt3", "spent": {"steps": 36, "seconds": 171.4},
//    "further_noise": 0.004,
//    "noise": {"blocks": 96, "groups": [{"own": …, "all": …, "squares": …, "own_common": …,
//                                        "all_common": …}, …]},
//    "gpus": [{"dp_rank": 0, "pp_rank": 3, "tp_rank": 0, "gpu": "GPU-…", "gpu_name": "…",
//              "switch_latency_ns": 5000000, "last_mhz": 1200, "parameters": 3, "windows": 812,
//              "counts": {…},
//              "records": [{"chunk": 0, "kind": "forward", "frequency_mhz": 1410, "parameter": 1,
//                           …}, …],
//              "fits": [{"squares": …, "log_determinant": …, "right": […],
//                        "normal": [[i, j, value], …]}, …]}, …]}
//
// "normal" has the values that are not zero, with j <= i. All digits of a number are written, so a
// restored profiler continues exactly as the saved profiler would.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/runtime/profiler/gpu_measurements.h"
#include "perseus/runtime/profiler/instruction_noise.h"
#include "perseus/runtime/profiler/sweep.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::profiler {

struct KnownGpu {
  std::string gpu;  // The UUID. Empty if it is unknown.
  std::string gpu_name;
  GpuMeasurements measurements;
};

struct ProfilerState {
  std::string job;  // The coordinator's description of the job: schedule, sizes, model.
  SweepSpent spent;
  InstructionNoise noise;  // The noise of all ranks.
  // A relative standard deviation. Whole steps had this much more noise than their instructions.
  double further_noise = 0;
  std::map<protocol::RankId, KnownGpu> gpus;
};

std::string FormatProfilerState(const ProfilerState& state);
// The error (kInput) is such as "name: gpus[3].records[2].frequency_mhz is … (remedy)".
Result<ProfilerState> ParseProfilerState(std::string_view text, std::string_view name);

// Both functions check that the state belongs to this run. CheckSameJob checks the job.
// CheckSameGpu checks the type of GPU of the header's rank. Another GPU of the same type is
// accepted: if it behaves differently, the drift test finds out (gpu_measurements.h). Both
// functions fail (kInput) with both names and a remedy.
Result<void> CheckSameJob(const ProfilerState& state, std::string_view job, std::string_view name);
Result<void> CheckSameGpu(const ProfilerState& state, const protocol::RankHeader& header,
                          std::string_view name);

}  // namespace perseus::profiler
