// Emulates a whole data-parallel job, iteration by iteration. Computes its time and power while
// stragglers come and go, a power cap begins, a new plan arrives, and times vary.
//
// Each pipeline runs an iteration and then waits for the slowest pipeline at blocking power (the
// barrier of the all-reduce of gradients). plan/evaluation.h computes the iteration of a pipeline
// from its options. Without noise, events and latency, an emulation takes exactly the time of the
// plan. As in the evaluation, the first clock of each pp_rank is already set when an iteration
// begins. So a plan that arrives between two iterations causes no additional switch: the pp_ranks
// wait at the barrier anyway.
//
// Cost. If several pipelines have the same plan and the same disturbances in an iteration, they are
// computed once. So are equal iterations. Without noise, the cost therefore grows with the number
// of *different* (plan, disturbance) pairs and with the number of events, not with pipelines times
// iterations. With noise, every execution is different and is computed. docs/benchmarks.md shows
// the growth.
//
// Disturbances. A throttled straggler runs the fastest measured option up to its clock (or the
// option with the lowest clock, if all are above). A slow straggler (because of heat, or of a
// neighbor on its host) takes `value` times as long, at the same power. Fixed instructions and
// transfers do not become slower. If several slowdowns overlap, their factors multiply. A straggler
// that waits for input starts later.
//
// Disturbances that begin or end at a time may do so within an iteration. If a computation begins
// while a disturbance is present, it is disturbed until the computation ends. A straggler waits for
// input at the beginning of an iteration. Plans and power caps change only between iterations.
// Emulation::remarks names the events that had no effect on any iteration.
//
// Controllers. The base plan of the job is the plan that arrived last. If that plan exceeds a power
// cap, the base plan is the plan of the cap. T' is the time of the slowest pipeline (the straggler)
// with the base plan. This pipeline stays on the base plan. With `kFollow`, the pipelines that wait
// for it change to the plan for T', `delay` iterations after the straggler begins. They change back
// after it has ended. If another pipeline is also slow, but not the slowest, it gets a plan that
// takes T' with its own slowdown. A pipeline stays on the base plan if another plan would be too
// late, use more energy, or draw more than its part of a power cap. All pipelines stay on the base
// plan while the known T' belongs to another base plan.
//
// Power caps limit the mean power of the job as planned, without disturbances. A slow GPU computes
// while it would otherwise wait, which takes extra energy. The cap does not compensate for this
// energy, and peaks are above the mean.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/profile/time_noise.h"

namespace perseus::emulator {

// When an event happens: `after` later than the beginning of an iteration. {0, t} means time t of
// the job, because the first iteration begins at 0.
struct Moment {
  // NOLINTNEXTLINE(google-explicit-constructor): an iteration is a moment.
  Moment(int of_iteration = 0, Nanoseconds later = 0) : iteration(of_iteration), after(later) {}
  static Moment Never() { return {std::numeric_limits<int>::max()}; }

  int iteration = 0;
  Nanoseconds after = 0;
};

// In the types below, `where` is the place of an event in its file, for messages ("events.toml:3").
// It may be empty.

// An event that makes one pipeline slower for some time.
struct Disturbance {
  enum class Kind {
    kThrottle,  // The clock is at most `value` MHz.
    kSlow,      // Computations take `value` times as long.
    kInput,     // The first instruction starts `value` seconds late.
  };
  Kind kind = Kind::kSlow;
  int dp_rank = 0;
  int pp_rank = -1;                // -1: all of them. With kInput, -1 means pp_rank 0.
  Moment from = 0;                 // The disturbance is present from this moment
  Moment until = Moment::Never();  // until this one.
  double value = 1;
  std::string where = {};
};

// All pipelines run another plan from this moment on. If several plans have arrived, the latest one
// is used.
struct PlanChange {
  Moment from;
  std::vector<int> options;
  std::string where = {};
};

// While the cap is active, the job draws at most `watts` on average. If several caps are active,
// the latest one is used. If the base plan exceeds the cap, pipelines run `options` instead.
struct PowerCap {
  Moment from;
  Moment until = Moment::Never();
  double watts = 0;  // For the whole job.
  // The fastest plan that keeps to the cap. If no plan does, the plan of least power.
  std::vector<int> options = {};
  std::string where = {};
};

enum class Reaction { kNone, kFollow };

struct EmulationSpec {
  int pipelines = 1;
  int iterations = 100;
  std::vector<int> options;  // The base plan.
  std::vector<PlanChange> changes;
  std::vector<PowerCap> power_caps = {};
  std::vector<Disturbance> disturbances;
  Reaction reaction = Reaction::kNone;
  int delay = 1;  // Iterations until the others react to a straggler. 0: they know it in advance.
  // Returns the options of a pipeline whose iteration lasts this long because of a straggler. If
  // empty, Planner::PlanForStraggler is used.
  std::function<Result<std::vector<int>>(Nanoseconds)> plan_beside = {};
  profile::TimeNoise noise = {};  // In the logarithm of each computation's time.
  double latency_spread = 0;      // The same for the model's switch latency.
  std::uint64_t seed = 1;
};

struct EmulatedIteration {
  Nanoseconds time = 0;
  double energy_j = 0;      // For the whole job.
  double peak_power_w = 0;  // The highest mean over a 256th of the baseline's iteration time.
  int slowest_dp_rank = 0;  // The first of the pipelines that end last.
  std::int64_t switches = 0;

  double average_power_w() const { return energy_j / ToSeconds(time); }
};

// The sums over the whole emulation for one pp_rank (all its GPUs).
struct RankTotals {
  double busy_s = 0;
  double instruction_energy_j = 0;
  double blocking_energy_j = 0;
  std::int64_t switches = 0;
};

// How a pipeline ran in an iteration, for a timeline.
struct PipelineRun {
  std::vector<int> options;
  plan::Evaluation evaluation;
};

struct Emulation {
  std::vector<EmulatedIteration> iterations;
  std::vector<std::vector<RankTotals>> pp_ranks;  // [dp_rank][pp_rank]
  Nanoseconds time = 0;
  double energy_j = 0;
  std::int64_t executions = 0;       // Different iterations of a pipeline.
  std::vector<std::string> remarks;  // About events that had no effect, or another effect.

  double peak_power_w() const;
};

// Fails (kInput) if a disturbance names a dp_rank or pp_rank that the job does not have, or if
// times no longer fit 64-bit nanoseconds (the message names the events that make them so long).
// Also fails in the cases in which the planner fails.
Result<Emulation> Emulate(const plan::Planner& planner, const EmulationSpec& spec);

// The runs of one iteration of `emulation`, without noise. Equal runs appear once, with the list of
// their pipelines.
struct RunOfPipelines {
  std::vector<int> pipelines;
  PipelineRun run;
};
Result<std::vector<RunOfPipelines>> RunsInIteration(const plan::Planner& planner,
                                                    const EmulationSpec& spec,
                                                    const Emulation& emulation, int iteration);

}  // namespace perseus::emulator
