// What a profiler knows, as a file: so that one that is restarted goes on without measuring again,
// and so that what a job's GPUs have shown can be kept for its next run.
//
//   {"perseus_profiler": 1, "job": "1f1b 8x24 gpt3", "spent": {"steps": 36, "seconds": 171.4},
//    "gpus": [{"dp_rank": 0, "pp_rank": 3, "tp_rank": 0, "gpu": "GPU-…", "gpu_name": "…",
//              "switch_latency_ns": 5000000, "last_mhz": 1200, "parameters": 3, "windows": 812,
//              "counts": {…},
//              "records": [{"chunk": 0, "kind": "forward", "frequency_mhz": 1410, "parameter": 1,
//              …}, …], "fits": [{"squares": …, "log_determinant": …, "right": […],
//                        "normal": [[i, j, value], …]}, …]}, …]}      not zero, j <= i
//
// Numbers are written to the last bit: what is restored goes on as if nothing had happened.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/runtime/profiler/gpu_measurements.h"
#include "perseus/runtime/profiler/sweep.h"
#include "perseus/runtime/protocol/rank_log.h"

namespace perseus::profiler {

struct KnownGpu {
  std::string gpu;  // UUID; empty where it could not be told.
  std::string gpu_name;
  GpuMeasurements measurements;
};

struct ProfilerState {
  std::string job;  // In the coordinator's words: schedule, sizes, model.
  SweepSpent spent;
  std::map<protocol::RankId, KnownGpu> gpus;
};

std::string FormatProfilerState(const ProfilerState& state);
// Errors (kInput): "name: gpus[3].records[2].mhz is … (remedy)".
Result<ProfilerState> ParseProfilerState(std::string_view text, std::string_view name);

// Whether that state is of this job and, for the rank that the header is of, of this type of GPU.
// Another GPU of the same type will do: drift (gpu_measurements.h) tells if it differs. Fails
// (kInput) with both names and what to do.
Result<void> CheckSameJob(const ProfilerState& state, std::string_view job, std::string_view name);
Result<void> CheckSameGpu(const ProfilerState& state, const protocol::RankHeader& header,
                          std::string_view name);

}  // namespace perseus::profiler
