// The memory that the ranks of a job have measured, for the profile.
//
// An adapter of the Python package measures its GPU's memory in a few steps, and writes
// JOBDIR/ranks/dp0-pp3-tp0.memory.json (python/perseus/adapters/_memory.py):
//
//   {"perseus_rank_memory":1,"activation_bytes":[734003200],"model_bytes":12884901888,
//    "peak_bytes":17179869184}
//
// `activation_bytes` are those of one microbatch, by chunk. `peak_bytes` is the most that was
// allocated so far. Any program may write such a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/profile/stage_memory.h"

namespace perseus::tuner {

struct RankMemory {
  profile::StageMemory stages;  // The greatest of all pipelines and tp_ranks.
  std::int64_t peak_bytes = 0;  // The greatest peak of a GPU.
};

// The files of all ranks. A pp_rank's chunk 0 has the bytes of its whole model. Returns nullopt if
// no rank has written a file. Fails (kInput) for a file with other content, and as FindRankFiles.
Result<std::optional<RankMemory>> ReadRankMemory(const std::filesystem::path& job_directory);

}  // namespace perseus::tuner
