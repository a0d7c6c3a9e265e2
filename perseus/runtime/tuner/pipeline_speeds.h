// How much the pipelines of a job differ in speed, and which of them share a plan.
//
// GPUs of one type are not equally fast: they differ by 8 % on average, most at a power limit
// (Sinha et al., SC '22). All pipelines of a job wait for the slowest one in each step. So a
// pipeline that is faster may take as long as the slowest one, with less energy. For this, it needs
// a plan of its own, from times of its own.
//
// A single GPU runs too few steps at each clock for a profile of its own. So the times of a kind of
// instructions are those of all GPUs (PooledOptions), times a factor. There are two factors,
// because a chip that is slow at its power limit is as fast as others at a clock that it can keep:
// one at the highest clock, and one at all other clocks. The same is true of powers, but their
// factors are those of a GPU: an energy counter hardly shows how its energy is divided among kinds
// of instructions. With a factor for each kind, errors of 10 % led to plans for ranks with FSDP in
// which some instructions had the highest clock, although a lower one was fast enough.
//
// Times are without waiting for other pipelines (RanStep::waits). Limit: if a framework waits where
// its adapter does not see it, the times of all pipelines together are equal, and they get one
// plan.
//
// With one plan for each pipeline, a job of 1,000 pipelines would plan for minutes. So pipelines
// whose factors are nearly equal share a plan, which is that of the slowest of them.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "perseus/runtime/profiler/measured_option.h"
#include "perseus/runtime/profiler/profiler_state.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::tuner {

// Pipelines that share a plan, and the options of their GPUs.
struct AlikePipelines {
  std::vector<int> dp_ranks;  // Ascending.
  std::vector<profiler::MeasuredOption> options;
};

// Divides the pipelines of `gpus` into at most `most` groups. `pooled` are the options of all GPUs.
// If the pipelines differ by less than the measurements can tell, there is one group, with the
// options `pooled`.
std::vector<AlikePipelines> GroupAlike(const std::map<protocol::RankId, profiler::KnownGpu>& gpus,
                                       std::span<const profiler::MeasuredOption> pooled, int most);

}  // namespace perseus::tuner
