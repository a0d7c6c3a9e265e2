// What a recorded job wasted, on GPUs of a chosen model, and what each controller could have saved.
//
// Every recorded computation is taken for one at the highest clock; the model says how much longer
// it takes, and at what power, at every other one. Everything else (communication, optimizer, host
// delays) takes its time at any clock and draws the blocking power, as waiting does. So a step of
// length T on G GPUs costs P*G*T + sum of effective energies (profile/curve.h), and
//   - *bound*: the least that any choice of clocks costs without making the step longer. It is the
//     exact optimum of the relaxation over the graph of the whole step, all pipelines together;
//   - *intrinsic* bloat: the same if every pipeline that waits for others at a meeting goes on
//     waiting as long for them as it does at the highest clocks. Nobody uses up that others are
//     slower, so what is left is what pipelines waste each by themselves;
//   - *extrinsic* bloat: the rest up to the bound: what those waits are worth.
// Both are at least 0 by construction: the highest clocks keep every wait, and a plan that keeps
// them is one of those that the bound is the best of. Where pipelines meet but once, at the end,
// intrinsic bloat is what planning each alone saves, in the time that it takes alone. Where they
// meet midway that has no such meaning: plans made alone may not fit together, and be worth more
// than the bound.
//
// A controller chooses clocks of the model for every computation of every pipeline:
//   - the oracle knows this step, every duration in it, and never makes it longer;
//   - one with a delay of k steps knows what the k-th recorded step before took: of each rank's
//     forwards and of its backwards the mean, for each chunk; communication and host delays as they
//     are in that step's graph (so the delays are medians over steps, later ones too). It plans
//     that step, all pipelines together and no longer than it then took, and its clocks run this
//     step as it is; what that step did not have runs at the highest clock. A reactive one has
//     k = 1. Where it believes in slack that is gone, the step gets longer. The first k steps run
//     at the highest clock.
// Time and energy of a controller's step come from running the step's graph with its clocks.
//
// Rivals. Planning microbatch by microbatch from the step before (no means) fits that step's noise:
// docs/replay.md has what it loses. Taking each pipeline's frontier alone and looking T' up would
// need a definition of T' where stages of different pipelines meet in several collectives; one
// graph of the step needs none, and is exact. Splitting the bloat by fixing when each pipeline
// comes to a meeting, rather than how long it waits there, takes for extrinsic what pipelines that
// are alike could all do at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/simulation/replay/trace_replay.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::replay {

// One clock of a GPU, for computations of one kind.
struct ClockPoint {
  double frequency_mhz = 0;
  double time_ratio = 1;  // To the time at the highest clock.
  double power_w = 0;
};

// What computations cost at each clock that is of use, the highest first (which has ratio 1).
struct JobPowerModel {
  std::vector<ClockPoint> forward;
  std::vector<ClockPoint> backward;
  double blocking_power_w = 0;

  static JobPowerModel Of(const synthetic::GpuModel& gpu);
  const std::vector<ClockPoint>& points_of(EventKind kind) const {
    return kind == EventKind::kForward ? forward : backward;
  }
};

// Of a computation that took `at_highest`.
Nanoseconds TimeAt(const ClockPoint& point, Nanoseconds at_highest);

struct StepOutcome {
  Nanoseconds time = 0;
  double energy_j = 0;  // Of all recorded GPUs; computing_j + waiting_j.
  double computing_j = 0;
  double waiting_j = 0;  // At the blocking power: waiting, communication, everything else.
};

// Clocks for the events of a step: an index into points_of(kind); 0 for what is no computation.
using StepClocks = std::vector<int>;

// Runs the step with these clocks.
StepOutcome RunStep(const StepGraph& graph, const JobPowerModel& model, const StepClocks& clocks);

// The least energy of any choice of clocks, switched as often as one likes, with which the step
// takes at most `deadline` (waiting up to it included). Fails with kUnreachable for a deadline that
// the highest clocks miss.
Result<double> LeastEnergy(const StepGraph& graph, const JobPowerModel& model,
                           Nanoseconds deadline);

// The same where every pipeline waits at meetings for others as long as it does at the highest
// clocks. At least LeastEnergy(graph, model, deadline).
Result<double> LeastEnergyWithoutWaits(const StepGraph& graph, const JobPowerModel& model,
                                       Nanoseconds deadline);

struct StepBloat {
  std::int64_t number = 0;
  Nanoseconds recorded = 0;
  Nanoseconds replayed = 0;
  Nanoseconds without_host_delays = 0;  // Replayed with the recorded events alone.
  int slowest_dp_rank = 0;
  std::vector<Nanoseconds> pipeline_times;  // Each alone.
  double energy_j = 0;                      // At the highest clocks.
  double intrinsic_j = 0;
  double extrinsic_j = 0;
  double bound_j = 0;

  double error() const { return ToSeconds(replayed) / ToSeconds(recorded) - 1; }
};

struct ControllerOutcome {
  int delay = 0;  // 0: the oracle.
  std::vector<StepOutcome> steps;
};

struct WhatIf {
  std::vector<StepBloat> steps;
  std::vector<ControllerOutcome> controllers;  // As asked for.
  int slowest_changes = 0;                     // From one recorded step to the next.
};

// `delays` are those of the controllers, in steps; 0 is the oracle. Steps are planned several at a
// time, one a core.
Result<WhatIf> AskWhatIf(const TraceGraph& trace, const JobPowerModel& model,
                         const std::vector<int>& delays);

}  // namespace perseus::replay
