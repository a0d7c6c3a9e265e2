// Combines the measurements of single GPUs (profiler/gpu_measurements.h) into measurements of a
// stage. GPUs of different pipelines count as repetitions, because all pipelines get the same plan.
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

// The highest of `clocks_mhz` that each group reaches on any GPU at any time. Usually this is the
// highest clock of all. If the power limit keeps all GPUs of the group below that clock, it is a
// lower clock.
std::map<profiler::InstructionGroup, int> ReachedClocks(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus, const ClocksOfRanks& clocks_mhz);

// The listed clocks that are nearest to the mean clock of each group at its power limit. The
// highest of all GPUs counts. Groups that ReachedClocks finds at the highest clock are left out.
std::map<profiler::InstructionGroup, int> UsualClocks(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus, const ClocksOfRanks& clocks_mhz);

// Returns the clocks without those that no group of the rank reaches. At a clock that no group
// reaches, a GPU runs as it does at the highest remaining clock.
ClocksOfRanks WithoutUnreached(ClocksOfRanks clocks_mhz,
                               const std::map<profiler::InstructionGroup, int>& reached_mhz);

// Returns the mean options by group and clock. If `clocks_mhz` is not empty, a measurement above
// the highest clock of its rank counts as a measurement at that highest clock. Times are weighted
// by samples, and powers by their certainty. A power is 0 if no GPU has identified it yet. If GPUs
// differ by more than their intervals allow, the mean gets an interval that covers this difference,
// because the slowest GPU of a stage sets the pace of the stage.
std::vector<profiler::MeasuredOption> PooledOptions(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus,
    const ClocksOfRanks& clocks_mhz = {});

// Returns the mean power of several GPUs, in watts, or nullopt if no estimate is identified. Each
// estimate has the weight 1 / (standard error^2 + variance between the GPUs). This is the
// random-effects mean of DerSimonian & Laird (Controlled Clinical Trials 7, 177, 1986, equations 7
// to 9). Weights from standard errors alone would have a flaw: one GPU whose error is by chance far
// too small would decide the result (seen in one run of 15: 91.8 +- 0.3 W among seven GPUs at 84
// W).
std::optional<double> ConsensusPower(std::span<const profiler::PowerEstimate> estimates);

// Returns the mean power of a waiting GPU, or nullopt if no GPU has identified this power.
std::optional<double> PooledBlockingPower(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus);

// Returns `options` with the times that `other` has for the same options. The times in `other` were
// measured while a plan ran. The powers stay those of `options`, because every step with a plan
// changes clocks, and a window of the energy counter in which a clock changes does not count. So
// only a few windows of some steps remain, and single powers from them are useless (seen: 8,700 W
// with an interval of 53,500 W). The energy of whole steps is useful (tuned_plan.h).
std::vector<profiler::MeasuredOption> WithTimesOf(std::span<const profiler::MeasuredOption> other,
                                                  std::vector<profiler::MeasuredOption> options);

// The profile of these options, with confidence intervals. Leaves out options without a power.
profile::Profile MeasuredProfile(std::span<const profiler::MeasuredOption> options);

}  // namespace perseus::tuner
