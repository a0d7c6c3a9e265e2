// A whole data-parallel job, iteration by iteration: what it takes and draws when stragglers come
// and go, a power cap arrives, a plan is pushed, and things vary.
//
// Pipelines run an iteration each and then wait for the slowest one (the barrier of the gradients'
// all-reduce), at blocking power. A pipeline's iteration is what plan/evaluation.h makes of its
// options: an emulation without noise, events and latency takes what the plan says, to the bit.
// As there, a rank finds its first clock set when an iteration begins: a plan that comes between
// two iterations costs no switch of its own, for the ranks are waiting at the barrier meanwhile.
//
// Cost. Pipelines that are alike in an iteration, by plan and by what disturbs them, are computed
// once, and so are iterations that are alike: without noise it grows with the number of *different*
// (plan, disturbance) pairs and with the number of events, not with pipelines times iterations.
// Noise makes every execution different, and each is computed. docs/benchmarks.md has how it grows.
//
// Disturbances. A straggler that is throttled runs the fastest measured option within its clock
// (the one of the lowest clock, where none is within). One that is slow (a degree, a neighbour on
// its host) takes so many times as long, at the same power; fixed instructions and what is on the
// wire do not. Several multiply. One that waits for input starts later.
// Those that begin or end by the clock may do so within an iteration: a computation has what is
// there when it begins, until it ends. Input is waited for where an iteration begins, and plans and
// power caps change between iterations. What no iteration noticed is told (Emulation::remarks).
//
// Controllers. The job runs its base plan: the one that came last, or, under a power cap that this
// does not keep to, the cap's own. `kFollow` moves the pipelines that a straggler keeps waiting to
// the plan for its time, `delay` iterations after it is there, and back when it has gone. T' is the
// time of the slowest pipeline under the base plan, which it goes on running. One that is slow,
// too, but not the slowest, gets what its own slowness leaves of T'. A pipeline keeps to the base
// plan where following would be too late, cost more, or draw more than its part of a power cap;
// all do as long as what is known of T' is of another base plan.
//
// Power caps are of the job's mean power as planned, without what disturbs it: a slow GPU that is
// busy where it would have waited is not made up for, and peaks are above the mean.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::emulator {

// When something happens: `after` later than the beginning of an iteration. {0, t} is time t of the
// job, whose first iteration begins at 0.
struct Moment {
  // NOLINTNEXTLINE(google-explicit-constructor): an iteration is a moment.
  Moment(int of_iteration = 0, Nanoseconds later = 0) : iteration(of_iteration), after(later) {}
  static Moment Never() { return {std::numeric_limits<int>::max()}; }

  int iteration = 0;
  Nanoseconds after = 0;
};

// What happens has a place where it was written, for messages ("events.toml:3"); it may be empty.

// What makes one pipeline slower for a while.
struct Disturbance {
  enum class Kind {
    kThrottle,  // The clock is at most `value` MHz.
    kSlow,      // Computations take `value` times as long.
    kInput,     // The first instruction starts `value` seconds late.
  };
  Kind kind = Kind::kSlow;
  int dp_rank = 0;
  int pp_rank = -1;                // -1: all of them. With kInput, -1 means pp_rank 0.
  Moment from = 0;                 // It is there from then on,
  Moment until = Moment::Never();  // and no longer then.
  double value = 1;
  std::string where = {};
};

// From then on all pipelines are to run another plan; of several the one that came last.
struct PlanChange {
  Moment from;
  std::vector<int> options;
  std::string where = {};
};

// Meanwhile the job is to draw at most so much on average; of several the one that came last.
// Pipelines run `options` unless the plan that they are to run keeps to it, too.
struct PowerCap {
  Moment from;
  Moment until = Moment::Never();
  double watts = 0;               // Of the whole job.
  std::vector<int> options = {};  // The fastest plan that keeps to it.
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
  int delay = 1;  // Iterations from a straggler's first to the others' reaction; 0: foreseen.
  // The options of a pipeline whose iteration lasts so long because of a straggler. Empty:
  // Planner::PlanForStraggler.
  std::function<Result<std::vector<int>>(Nanoseconds)> plan_beside = {};
  double noise = 0;           // Standard deviation of the logarithm of each computation's time.
  double latency_spread = 0;  // The same of the model's switching latency.
  std::uint64_t seed = 1;
};

struct EmulatedIteration {
  Nanoseconds time = 0;
  double energy_j = 0;      // Of the whole job.
  double peak_power_w = 0;  // The highest mean over a 256th of the baseline's iteration time.
  int slowest_dp_rank = 0;  // The first of those that end last.
  std::int64_t switches = 0;

  double average_power_w() const { return energy_j / ToSeconds(time); }
};

// Of one rank (all its GPUs) over the whole emulation.
struct RankTotals {
  double busy_s = 0;
  double instruction_energy_j = 0;
  double blocking_energy_j = 0;
  std::int64_t switches = 0;
};

// One way that a pipeline ran: for traces.
struct PipelineRun {
  std::vector<int> options;
  plan::Evaluation evaluation;
};

struct Emulation {
  std::vector<EmulatedIteration> iterations;
  std::vector<std::vector<RankTotals>> ranks;  // [pipeline][rank]
  Nanoseconds time = 0;
  double energy_j = 0;
  std::int64_t executions = 0;       // Different iterations of a pipeline.
  std::vector<std::string> remarks;  // On events that did nothing, or not what they say.

  double peak_power_w() const;
};

// Fails (kInput) for a disturbance of a pipeline or rank that is not there, where times no longer
// fit their nanoseconds, naming the events that make them so long, and as the planner does.
Result<Emulation> Emulate(const plan::Planner& planner, const EmulationSpec& spec);

// What each pipeline did in one iteration of `emulation`, alike ones once: the pipelines and what
// they ran. Without noise.
struct RunOfPipelines {
  std::vector<int> pipelines;
  PipelineRun run;
};
Result<std::vector<RunOfPipelines>> RunsInIteration(const plan::Planner& planner,
                                                    const EmulationSpec& spec,
                                                    const Emulation& emulation, int iteration);

}  // namespace perseus::emulator
