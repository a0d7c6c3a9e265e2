// What the GPUs of a stage say together: those of all pipelines count as repetitions of each other,
// for they all get one plan.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "perseus/jobdir/rank_log.h"
#include "perseus/profile/profile.h"
#include "perseus/profiler/measured_option.h"
#include "perseus/profiler/profiler_state.h"

namespace perseus {

// By group and clock. Times weigh by samples, powers by how sure they are; a power that no GPU can
// tell yet is 0. Where GPUs differ by more than their intervals allow, the mean's is as wide as
// that (of a stage's GPUs the slowest sets the pace).
std::vector<MeasuredOption> PooledOptions(const std::map<RankName, KnownGpu>& gpus);

// What a GPU draws while it waits, mean over GPUs by how sure they are; nothing if it cannot be
// told.
std::optional<double> PooledBlockingPower(const std::map<RankName, KnownGpu>& gpus);

// As measured, with confidence; options without a power are left out.
Profile MeasuredProfile(std::span<const MeasuredOption> options);

}  // namespace perseus
