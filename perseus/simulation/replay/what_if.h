// How much energy a recorded job wasted, on GPUs of a chosen model, and how much each controller
// could have saved.
//
// Every recorded computation counts as running at the highest clock. The model gives its time and
// power at every other clock. Everything else (communication, optimizer, host delays) takes the
// same time at any clock and draws the blocking power, as waiting does. So a step of length T on G
// GPUs costs P*G*T + the sum of effective energies (profile/curve.h). Three quantities follow:
//   - The *bound* is the least energy of any choice of clocks that does not make the step longer.
//     It is the exact optimum of the relaxation over the graph of the whole step, all pipelines
//     together.
//   - The *intrinsic* bloat is the saving of the same optimum with one more condition: at every
//     meeting, each pipeline waits for others as long as it does at the highest clocks. So no
//     pipeline uses the slack that a slower pipeline creates. This saving is the waste inside each
//     pipeline.
//   - The *extrinsic* bloat is the rest up to the bound: the value of those waits.
// Neither is negative: the highest clocks keep every wait, and a plan that keeps them also
// satisfies the conditions of the bound. If pipelines only meet at the end of the step, the
// intrinsic bloat is what planning each pipeline alone saves, in the time that it takes alone. If
// they also meet earlier, planning each alone has no such meaning: these plans may not fit
// together, and may save more than the bound.
//
// A controller chooses a clock for every computation of every pipeline:
//   - The oracle knows every duration of this step, and never makes the step longer.
//   - A controller with a delay of k steps knows the k-th recorded step before the current one. For
//     each rank and chunk, it knows the mean of the forwards and the mean of the backwards, and it
//     knows communication and host delays of the earlier step's graph. (So the host delays are
//     medians that include later steps.) It plans the earlier step, all pipelines together, without
//     a slowdown. Then its clocks run the current step. A computation that was not in the earlier
//     step runs at the highest clock. A *reactive* controller has k = 1. If it relies on slack that
//     no longer exists, the step gets longer. The first k steps run at the highest clocks.
// Time and energy of a controller's step come from running the step's graph with its clocks.
//
// Alternatives that we rejected:
//   - Planning each microbatch from the same microbatch of the earlier step, without means. This
//     fits the noise of the earlier step. docs/replay.md has the loss.
//   - Computing the frontier of each pipeline alone and looking up T'. This needs a definition of
//     T' where stages of different pipelines meet in several collectives. One graph of the step
//     needs no T', and is exact.
//   - Splitting the bloat by fixing the time at which each pipeline arrives at a meeting, instead
//     of how long it waits at the meeting. This split counts as extrinsic what equal pipelines
//     could all save together.
//
// Thread safety: all functions may run on several threads at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/simulation/replay/job_power_model.h"
#include "perseus/simulation/replay/trace_replay.h"

namespace perseus::replay {

// How much longer the steps of a recorded job take because some of their events are slow.
//
// The *ideal* step runs the graph of the recorded step, but every event takes the typical time of
// its name: the mean over all ranks and all steps, or the median for communication (without
// waiting, see trace_replay.h). The *straggler slowdown* is S = T / T_ideal. T is the replayed time
// of the step. Both leave out the host delays. For a job, T and T_ideal are sums over its steps.
//
// This is S of "Understanding Stragglers in Large Model Training Using What-if Analysis" (Lin et
// al., OSDI 2025). The median is for communication because a slow network makes a few transfers
// many times as long. The mean is for everything else because the work of a slow rank has to be
// done: the ideal job divides the same work evenly. So a stage with more layers than the others
// counts as a straggler, too. S is below 1 if a step is faster than the typical one.
struct StragglerSlowdown {
  Nanoseconds time = 0;   // T, above 0.
  Nanoseconds ideal = 0;  // T_ideal, above 0.

  double ratio() const { return ToSeconds(time) / ToSeconds(ideal); }
};

// One for each step, in the order of the trace. Fails (kInput) if the events of an ideal step would
// last more than 36 years in total.
Result<std::vector<StragglerSlowdown>> StragglerSlowdowns(const TraceGraph& trace);

// The slowdown of the whole job. Requires a step.
StragglerSlowdown SumOf(const std::vector<StragglerSlowdown>& steps);

struct StepOutcome {
  Nanoseconds time = 0;
  double energy_j = 0;  // All recorded GPUs: computing_j + waiting_j.
  double computing_j = 0;
  double waiting_j = 0;  // At the blocking power: waiting, communication and all else.
};

// The clock of each event of a step: an index into points_of(kind). 0 for other events.
using StepClocks = std::vector<int>;

// Runs the step with these clocks.
StepOutcome RunStep(const StepGraph& graph, const JobPowerModel& model, const StepClocks& clocks);

enum class Waits {
  kFree,  // The waits of pipelines for each other may become shorter.
  kKept,  // At every meeting, each pipeline waits for others as long as at the highest clocks.
};
// The least energy of any choice of clocks, with any number of switches, for which the step takes
// at most `deadline`. The energy includes waiting until the deadline. Fails (kUnreachable) for a
// deadline that the highest clocks miss.
Result<double> LeastEnergy(const StepGraph& graph, const JobPowerModel& model, Nanoseconds deadline,
                           Waits waits = Waits::kFree);

struct StepBloat {
  std::int64_t number = 0;
  Nanoseconds recorded = 0;
  Nanoseconds replayed = 0;
  Nanoseconds without_host_delays = 0;  // The replayed time without host delays.
  int slowest_dp_rank = 0;
  std::vector<Nanoseconds> pipeline_times;  // The time of each pipeline alone.
  double energy_j = 0;                      // At the highest clocks.
  double intrinsic_j = 0;
  double extrinsic_j = 0;
  double bound_j = 0;

  // The relative error of the replayed time.
  double error() const { return ToSeconds(replayed) / ToSeconds(recorded) - 1; }
};

struct ControllerOutcome {
  int delay = 0;  // 0: the oracle.
  std::vector<StepOutcome> steps;
};

struct WhatIf {
  std::vector<StepBloat> steps;
  std::vector<ControllerOutcome> controllers;  // In the order of `delays`.
  int slowest_changes = 0;  // How often the slowest pipeline of two consecutive steps differs.
};

// `delays` has one controller's delay in steps per element. 0 is the oracle. Plans several steps at
// the same time, on all cores.
Result<WhatIf> AnalyzeWhatIf(const TraceGraph& trace, const JobPowerModel& model,
                             const std::vector<int>& delays);

}  // namespace perseus::replay
