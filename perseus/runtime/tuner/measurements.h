// Combines the measurements of all GPUs of a stage. The pipelines count as repetitions of each
// other, because they all get one plan.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "perseus/planning/profile/profile.h"
#include "perseus/runtime/profiler/measured_option.h"
#include "perseus/runtime/profiler/profiler_state.h"
#include "perseus/runtime/protocol/rank_log.h"

namespace perseus::tuner {

// By group and clock. Times weigh by samples, powers by how sure they are; a power that no GPU can
// tell yet is 0. Where GPUs differ by more than their intervals allow, the mean's is as wide as
// that (of a stage's GPUs the slowest sets the pace).
std::vector<profiler::MeasuredOption> PooledOptions(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus);

// What a GPU draws while it waits, mean over GPUs by how sure they are; nothing if it cannot be
// told.
std::optional<double> PooledBlockingPower(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus);

// As measured, with confidence; options without a power are left out.
profile::Profile MeasuredProfile(std::span<const profiler::MeasuredOption> options);

}  // namespace perseus::tuner
