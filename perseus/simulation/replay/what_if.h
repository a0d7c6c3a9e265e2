// Estimates the energy that a recorded job wasted, on GPUs of a chosen model, and the energy that
// each controller could have saved.
//
// The analysis assumes that every recorded computation ran at the highest clock. The model gives
// its time and power at every other clock. Everything else (communication, optimizer, host delays)
// takes the same time at any clock and draws the blocking power, as waiting does. So a step of
// length T on G GPUs costs P*G*T + the sum of effective energies (profile/curve.h). Three
// quantities follow:
//   - The *bound* is the least energy of any choice of clocks that does not make the step longer.
//     It is the exact optimum of the relaxation over the graph of the whole step, all pipelines
//     together.
//   - The *intrinsic* bloat is the saving of the same optimum with one more condition: at every
//     meeting, each pipeline waits for others as long as at the highest clocks. So no pipeline uses
//     the slack that a slower pipeline creates. This saving is the waste inside each pipeline.
//   - The *extrinsic* bloat is the additional saving of the bound: the value of those waits.
// Neither is negative: the highest clocks satisfy the additional condition, and a plan that
// satisfies this condition also satisfies the conditions of the bound. Suppose that pipelines only
// meet at the end of the step. Then the intrinsic bloat is the saving of plans for each pipeline
// alone, in the time that it takes alone. If they also meet earlier, plans for each pipeline alone
// have no such meaning: they may not fit together, and may save more than the bound.
//
// A controller chooses a clock for every computation of every pipeline:
//   - The oracle knows every duration of this step, and never makes the step longer.
//   - A controller with a delay of k steps knows the k-th recorded step before the current one. For
//     each rank and chunk, it knows the mean of the forwards and the mean of the backwards. It also
//     knows communication and host delays of the graph of the earlier step. (So the host delays are
//     medians that include later steps.) It plans the earlier step, all pipelines together, without
//     a slowdown. Then the current step runs at these clocks. If a computation was not in the
//     earlier step, it runs at the highest clock. A *reactive* controller has k = 1. If the
//     controller uses slack that no longer exists, the step gets longer. The first k steps run at
//     the highest clocks.
// To get the time and energy of a step with a controller, the graph of the step runs at its clocks.
//
// Alternatives that we rejected:
//   - Planning each microbatch from the same microbatch of the earlier step, without means. This
//     fits the noise of the earlier step. docs/replay.md has the loss.
//   - Computing the frontier of each pipeline alone and looking up T'. If stages of different
//     pipelines meet in several collectives, this needs a definition of T'. One graph of the step
//     needs no T', and is exact.
//   - Splitting the bloat by the time at which each pipeline arrives at a meeting, instead of by
//     the time for which it waits there. Then savings that equal pipelines could all reach together
//     would count as extrinsic.
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

// The factor by which the steps of a recorded job take longer because some of their events are
// slow.
//
// The *ideal* step has the graph of the recorded step, but every event takes the typical time of
// its name: the mean over all ranks and all steps, or the median for communication (without
// waiting, see trace_replay.h). The *straggler slowdown* is S = T / T_ideal, where T is the
// replayed time of the step. Both times leave out the host delays. For a job, T and T_ideal are
// sums over its steps.
//
// This is S of "Understanding Stragglers in Large Model Training Using What-if Analysis" (Lin et
// al., OSDI 2025). Communication uses the median, because a slow network makes a few transfers many
// times as long. All other events use the mean, because the work of a slow rank has to be done: the
// ideal job divides the same work evenly. So a stage with more layers than the others is a
// straggler, too. If a step is faster than the typical step, S is below 1.
struct StragglerSlowdown {
  Nanoseconds time = 0;   // T, above 0.
  Nanoseconds ideal = 0;  // T_ideal, above 0.

  double ratio() const { return ToSeconds(time) / ToSeconds(ideal); }
};

// Returns one slowdown for each step, in the order of the trace. Fails (kInput) if the events of an
// ideal step would last more than 36 years in total.
Result<std::vector<StragglerSlowdown>> StragglerSlowdowns(const TraceGraph& trace);

// The slowdown of the whole job. Requires a step.
StragglerSlowdown SumOf(const std::vector<StragglerSlowdown>& steps);

struct StepOutcome {
  Nanoseconds time = 0;
  double energy_j = 0;  // All recorded GPUs: computing_j + waiting_j.
  double computing_j = 0;
  double waiting_j = 0;  // At the blocking power: waiting, communication and the rest.
};

// The clock of each event of a step: an index into points_of(kind). 0 for other events.
using StepClocks = std::vector<int>;

// Runs the step with these clocks.
StepOutcome RunStep(const StepGraph& graph, const JobPowerModel& model, const StepClocks& clocks);

enum class Waits {
  kFree,  // The waits of pipelines for each other may become shorter.
  kKept,  // At every meeting, waits are as long as with all clocks at their highest.
};
// Returns the least energy of all choices of clocks, with any number of switches, for which the
// step takes at most `deadline`. The energy includes waiting until the deadline. Fails
// (kUnreachable) if the step misses the deadline even at the highest clocks.
Result<double> LeastEnergy(const StepGraph& graph, const JobPowerModel& model, Nanoseconds deadline,
                           Waits waits = Waits::kFree);

struct StepBloat {
  std::int64_t number = 0;
  Nanoseconds recorded = 0;
  Nanoseconds replayed = 0;
  Nanoseconds without_host_delays = 0;  // The replayed time without host delays.
  int slowest_dp_rank = 0;
  std::vector<Nanoseconds> pipeline_times;  // The time of each pipeline alone.
  double energy_j = 0;                      // The energy at the highest clocks.
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
  int slowest_changes = 0;  // How often two consecutive steps have different slowest pipelines.
};

// `delays` has one element for each controller: its delay in steps. 0 is the oracle. Plans several
// steps at the same time, on all cores.
Result<WhatIf> AnalyzeWhatIf(const TraceGraph& trace, const JobPowerModel& model,
                             const std::vector<int>& delays);

}  // namespace perseus::replay
