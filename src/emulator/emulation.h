// A whole data-parallel job, iteration by iteration: what it takes and draws when stragglers come
// and go, a power cap arrives, a plan is pushed, and things vary.
//
// Pipelines run an iteration each and then wait for the slowest one (the barrier of the gradients'
// all-reduce), at blocking power. A pipeline's iteration is what plan/evaluation.h makes of its
// options: an emulation without noise, events and latency takes what the plan says, to the bit.
//
// Cost. Pipelines that are alike in an iteration, by plan and by what disturbs them, are computed
// once, and so are iterations that are alike: without noise it grows with the number of *different*
// (plan, disturbance) pairs, not with pipelines or iterations. Noise makes every execution
// different, and each is computed. docs/benchmarks.md has how it grows.
//
// Controllers. The job runs its base plan. `kFollow` moves the pipelines that a straggler keeps
// waiting to the plan for its time (Planner::PlanForStraggler), `delay` iterations after it is
// there, and back when it has gone. T' is the time of the slowest pipeline under the base plan,
// which it goes on running. One that is slow, too, but not the slowest, gets what its own slowness
// leaves of T', and keeps the base plan where that would be too late.
//
// Energy. A straggler that is throttled runs the fastest measured option within its clock. One that
// is slow (a degree, a neighbour on its host) takes so many times as long, at the same power. One
// that waits for input starts later.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/plan/planner.h"

namespace perseus {

// When something happens: `after` later than the beginning of an iteration, seen by the next
// iteration to begin. {0, t} is time t of the job, whose first iteration begins at 0.
struct Moment {
  // NOLINTNEXTLINE(google-explicit-constructor): an iteration is a moment.
  Moment(int of_iteration = 0, Nanoseconds later = 0) : iteration(of_iteration), after(later) {}
  static Moment Never() { return {std::numeric_limits<int>::max()}; }

  int iteration = 0;
  Nanoseconds after = 0;
};

// What makes one pipeline slower for a while.
struct Disturbance {
  enum class Kind {
    kThrottle,  // The clock is at most `value` MHz.
    kSlow,      // Computations take `value` times as long.
    kInput,     // The first operation starts `value` seconds late.
  };
  Kind kind = Kind::kSlow;
  int pipeline = 0;
  int rank = -1;                   // -1: all of them. kInput: rank 0 where none is named.
  Moment from = 0;                 // The first iteration that has it.
  Moment until = Moment::Never();  // The first one without it.
  double value = 1;
};

// From then on all pipelines run another base plan; of several the one that came last.
struct PlanChange {
  Moment from;
  std::string name;
  std::vector<int> options;
};

enum class Reaction { kNone, kFollow };

struct EmulationSpec {
  int pipelines = 1;
  int iterations = 100;
  std::vector<int> options;  // The base plan.
  std::vector<PlanChange> changes;
  std::vector<Disturbance> disturbances;
  Reaction reaction = Reaction::kNone;
  int delay = 1;     // Iterations from a straggler's first to the others' reaction; 0: foreseen.
  double noise = 0;  // Standard deviation of the logarithm of each operation's time.
  double latency_spread = 0;  // The same of the model's switching latency.
  std::uint64_t seed = 1;
};

struct EmulatedIteration {
  Nanoseconds time = 0;
  double energy_j = 0;       // Of the whole job.
  double peak_power_w = 0;   // The highest mean over a 256th of the baseline's iteration time.
  int slowest_pipeline = 0;  // The first of those that end last.
  int switches = 0;

  double average_power_w() const { return energy_j / ToSeconds(time); }
};

// Of one rank (all its GPUs) over the whole emulation.
struct RankTotals {
  double busy_s = 0;
  double operation_energy_j = 0;
  double blocking_energy_j = 0;
  std::int64_t switches = 0;
};

// One way that a pipeline ran: for traces.
struct PipelineRun {
  std::vector<int> options;
  Evaluation evaluation;
};

struct Emulation {
  std::vector<EmulatedIteration> iterations;
  std::vector<std::vector<RankTotals>> ranks;  // [pipeline][rank]
  Nanoseconds time = 0;
  double energy_j = 0;
  std::int64_t executions = 0;  // Iterations of a pipeline that had to be computed.

  double peak_power_w() const;
};

// Fails (kInput) for a disturbance of a pipeline or rank that is not there, and as the planner
// does.
Result<Emulation> Emulate(const Planner& planner, const EmulationSpec& spec);

// What each pipeline did in one iteration of `emulation`, alike ones once: the pipelines and what
// they ran. Without noise.
struct RunOfPipelines {
  std::vector<int> pipelines;
  PipelineRun run;
};
Result<std::vector<RunOfPipelines>> RunsInIteration(const Planner& planner,
                                                    const EmulationSpec& spec,
                                                    const Emulation& emulation, int iteration);

}  // namespace perseus
