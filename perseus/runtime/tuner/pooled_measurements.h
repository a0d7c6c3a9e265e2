// Combines the measurements of single GPUs (profiler/gpu_measurements.h) to those of a stage. GPUs
// of different pipelines count as repetitions, because all pipelines get one plan.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "perseus/planning/profile/profile.h"
#include "perseus/runtime/profiler/measured_option.h"
#include "perseus/runtime/profiler/power_fit.h"
#include "perseus/runtime/profiler/profiler_state.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::tuner {

// The clocks of each pp_rank, ascending.
using ClocksOfRanks = std::vector<std::vector<int>>;

// The highest of these clocks that each group reaches on any GPU at any time. It is the highest of
// all, except where the power limit keeps all GPUs of the group below it.
std::map<profiler::InstructionGroup, int> ReachedClocks(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus, const ClocksOfRanks& clocks_mhz);

// Without the clocks that no group of the rank reaches. A GPU that gets one of those runs as it
// does at the highest of the others.
ClocksOfRanks WithoutUnreached(ClocksOfRanks clocks_mhz,
                               const std::map<profiler::InstructionGroup, int>& reached_mhz);

// The mean options by group and clock. A measurement at a clock above those of `clocks_mhz` (if any
// are given) counts as one at the highest of them. Times are weighted by samples, powers by their
// certainty. A power is 0 if no GPU has identified it yet. If GPUs differ by more than their
// intervals allow, the mean gets an interval that covers this difference (the slowest GPU of a
// stage sets its pace).
std::vector<profiler::MeasuredOption> PooledOptions(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus,
    const ClocksOfRanks& clocks_mhz = {});

// The mean of what several GPUs draw, in watts. Empty if no estimate is identified. Each has the
// weight 1 / (standard error^2 + variance between the GPUs), the random-effects mean of DerSimonian
// & Laird (Controlled Clinical Trials 7, 177, 1986, equations 7 to 9). Weights from standard errors
// alone would let one GPU decide whose error is by chance far too small (seen in one run of
// 15: 91.8
// +- 0.3 W among seven GPUs at 84 W).
std::optional<double> ConsensusPower(std::span<const profiler::PowerEstimate> estimates);

// The mean power of a waiting GPU. Empty if no GPU has identified it.
std::optional<double> PooledBlockingPower(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus);

// `options` with the times of the same ones in `other`, which were measured while a plan ran. They
// keep their powers: every step with a plan changes clocks, and a window of the energy counter with
// a change in it does not count. So the few windows of some steps say nothing about single powers
// (seen: 8,700 W with an interval of 53,500 W). The energy of these steps does (tuned_plan.h).
std::vector<profiler::MeasuredOption> WithTimesOf(std::span<const profiler::MeasuredOption> other,
                                                  std::vector<profiler::MeasuredOption> options);

// The profile of these options, with confidence intervals. Options without a power are left out.
profile::Profile MeasuredProfile(std::span<const profiler::MeasuredOption> options);

}  // namespace perseus::tuner
