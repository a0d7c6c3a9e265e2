// The memory that the ranks of a job have measured. The profile uses it.
//
// An adapter of the Python package measures its GPU's memory in a few steps, and writes
// JOBDIR/ranks/dp0-pp3-tp0.memory.json (python/perseus/adapters/_memory.py):
//
//   {"perseus_rank_memory":1,"activation_bytes":[734003200],"model_bytes":12884901888,
//    "peak_bytes":17179869184}
//
// `activation_bytes` has the activations of one microbatch, by chunk. `peak_bytes` is the most
// memory that was allocated at any time so far. Any program may write such a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/profile/stage_memory.h"

namespace perseus::tuner {

struct RankMemory {
  profile::StageMemory stages;  // The greatest values of all pipelines and tp_ranks.
  std::int64_t peak_bytes = 0;  // The greatest peak of a GPU.
};

// Reads the files of all ranks. Chunk 0 of a pp_rank has the bytes of the rank's whole model.
// Returns nullopt if no rank has written a file. Fails (kInput) for a file with other content. Also
// fails in the same cases as FindRankFiles.
Result<std::optional<RankMemory>> ReadRankMemory(const std::filesystem::path& job_directory);

}  // namespace perseus::tuner
