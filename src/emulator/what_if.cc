#include "perseus/emulator/what_if.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/frontier/check.h"
#include "perseus/frontier/deadline.h"
#include "perseus/frontier/network.h"
#include "perseus/profile/curve.h"

namespace perseus {
namespace {

std::size_t At(int i) { return static_cast<std::size_t>(i); }

constexpr int kAllPipelines = -1;

double EnergyAt(const ClockPoint& point, Nanoseconds at_highest) {
  return point.power_w * ToSeconds(TimeAt(point, at_highest));
}

std::vector<Option> OptionsOf(const std::vector<ClockPoint>& points, Nanoseconds at_highest) {
  std::vector<Option> options;
  options.reserve(points.size());
  for (const ClockPoint& point : points) {
    options.push_back({.frequency_mhz = point.frequency_mhz,
                       .other_knobs = {},
                       .time = TimeAt(point, at_highest),
                       .energy_j = EnergyAt(point, at_highest)});
  }
  return options;
}

// The relaxation of a step, or of one pipeline of it. Its operations are the computations, in the
// step's order, and some of what takes its time at any clock. Most of the latter is no operation
// but a delay between operations, which makes the network about half as large.
struct Relaxation {
  Network network;
  std::vector<int> events;              // [operation]; -1 where it is no computation.
  double least_effective_energy_j = 0;  // Sum over computations, each at its cheapest.
};

class Relaxer {
 public:
  Relaxer(const StepGraph& graph, const JobPowerModel& model,
          const std::vector<Nanoseconds>& durations, int pipeline)
      : graph_(graph), model_(model), durations_(durations), pipeline_(pipeline) {}

  Result<Relaxation> Relax() {
    ends_.resize(durations_.size());
    is_awaited_.assign(durations_.size(), false);
    for (const int event : graph_.order) {
      if (!IsTaken(event)) continue;
      for (const int waited : graph_.waits_of(event)) is_awaited_[At(waited)] = true;
    }
    for (const int event : graph_.order) {
      if (!IsTaken(event)) continue;
      if (auto added = Add(event); !added) return Fail(added);
    }
    auto network = BuildNetwork(curves_, curve_of_operation_, dependencies_);
    if (!network) return Fail(network);
    relaxation_.network = *std::move(network);
    return std::move(relaxation_);
  }

 private:
  // So much later than an operation ends.
  struct After {
    int operation = 0;
    Nanoseconds delay = 0;
  };

  bool IsTaken(int event) const {
    return pipeline_ == kAllPipelines || graph_.step->events[At(event)].pipeline == pipeline_;
  }

  Result<void> Add(int event) {
    // A delay in place of an operation takes an arc for each pair of what it waits for and what
    // waits for it. Four are no more than the operation would take.
    constexpr std::size_t kMostAfter = 4;
    const Nanoseconds host_delay = graph_.host_delays[At(event)];
    std::vector<After> start = StartOf(event, host_delay);
    const EventKind kind = graph_.step->events[At(event)].kind;
    const Nanoseconds duration = durations_[At(event)];
    std::vector<After>& end = ends_[At(event)];
    if (IsComputation(kind) && duration > 0) {
      Result<Curve> hull =
          LowerHull(OptionsOf(model_.points_of(kind), duration), model_.blocking_power_w);
      if (!hull) return Fail(hull);
      relaxation_.least_effective_energy_j += hull->least_effective_energy_j;
      if (start.empty() && host_delay > 0) start = {{AddOperation(Fixed(host_delay), -1, {}), 0}};
      end = {{AddOperation(*std::move(hull), event, start), 0}};
    } else if (start.empty()) {
      end = {{AddOperation(Fixed(host_delay + duration), -1, {}), 0}};
    } else if (start.size() > kMostAfter || !is_awaited_[At(event)]) {
      end = {{AddOperation(Fixed(duration), -1, start), 0}};
    } else {
      end = std::move(start);
      for (After& after : end) after.delay += duration;
    }
    return {};
  }

  // The event starts when all of these have come; none if it waits for nothing.
  std::vector<After> StartOf(int event, Nanoseconds host_delay) const {
    std::vector<After> start;
    for (const int waited : graph_.waits_of(event)) {
      if (!IsTaken(waited)) continue;
      for (const auto& [operation, delay] : ends_[At(waited)]) {
        start.push_back({operation, delay + host_delay});
      }
    }
    std::sort(start.begin(), start.end(), [](const After& left, const After& right) {
      return std::tie(left.operation, right.delay) < std::tie(right.operation, left.delay);
    });
    // Of the same operation the longest delay counts.
    const auto last = std::unique(
        start.begin(), start.end(),
        [](const After& left, const After& right) { return left.operation == right.operation; });
    start.erase(last, start.end());
    return start;
  }

  static Curve Fixed(Nanoseconds time) { return Curve{{time}, {}, {}, 0}; }

  int AddOperation(Curve curve, int event, const std::vector<After>& start) {
    const int operation = static_cast<int>(curves_.size());
    curve_of_operation_.push_back(operation);
    curves_.push_back(std::move(curve));
    relaxation_.events.push_back(event);
    for (const auto& [waited, delay] : start) dependencies_.push_back({waited, operation, delay});
    return operation;
  }

  const StepGraph& graph_;
  const JobPowerModel& model_;
  const std::vector<Nanoseconds>& durations_;
  const int pipeline_;
  std::vector<std::vector<After>> ends_;  // By event.
  std::vector<bool> is_awaited_;
  std::vector<Curve> curves_;
  std::vector<std::int32_t> curve_of_operation_;
  std::vector<Dependency> dependencies_;
  Relaxation relaxation_;
};

Result<Solution> Solve(const Relaxation& relaxation, Nanoseconds deadline) {
  Result<Solution> solution = SolveDeadline(relaxation.network, deadline);
  if (!solution) return solution;
  if (auto proof = CheckDeadline(relaxation.network, *solution, deadline, 0); !proof) {
    return FailAs(ErrorKind::kSystem, "a solution failed its own check: {} (please report this)",
                  proof.error().message);
  }
  return solution;
}

// The least sum of effective energies by that deadline.
double EffectiveEnergyOf(const Relaxation& relaxation, const Solution& solution) {
  return relaxation.least_effective_energy_j + ToJoules(solution.extra_energy);
}

int PipelinesOf(const StepGraph& graph) { return graph.step->events.back().pipeline + 1; }

int GpusOf(const StepGraph& graph) {
  const JobEvent& last = graph.step->events.back();
  return (last.pipeline + 1) * (last.rank + 1);
}

// Error diffusion, as in plan/rounding.h: each computation starts when its predecessors really end,
// which is no later than the relaxed schedule says, and takes the slowest clock that ends no later
// than the relaxed schedule says.
StepClocks RoundToClocks(const StepGraph& graph, const JobPowerModel& model,
                         const std::vector<Nanoseconds>& durations, const Relaxation& relaxation,
                         const Solution& solution) {
  std::vector<Nanoseconds> latest_ends(durations.size(), 0);
  for (std::size_t i = 0; i < relaxation.events.size(); ++i) {
    if (relaxation.events[i] < 0) continue;
    const Arc& arc = relaxation.network.arcs[i];
    latest_ends[At(relaxation.events[i])] = solution.event_times[At(arc.head)];
  }
  StepClocks clocks(durations.size(), 0);
  std::vector<Nanoseconds> ends(durations.size(), 0);
  for (const int event : graph.order) {
    Nanoseconds start = 0;
    for (const int waited : graph.waits_of(event)) start = std::max(start, ends[At(waited)]);
    start += graph.host_delays[At(event)];
    Nanoseconds duration = durations[At(event)];
    const EventKind kind = graph.step->events[At(event)].kind;
    if (IsComputation(kind)) {
      const std::vector<ClockPoint>& points = model.points_of(kind);
      int& clock = clocks[At(event)];
      while (At(clock + 1) < points.size() &&
             start + TimeAt(points[At(clock + 1)], duration) <= latest_ends[At(event)]) {
        ++clock;
      }
      duration = TimeAt(points[At(clock)], duration);
    }
    ends[At(event)] = start + duration;
  }
  return clocks;
}

// Which computation of its step, so that clocks can be carried to another one.
using ComputationKey = std::tuple<int, int, EventKind, int, int>;

ComputationKey KeyOf(const JobEvent& event) {
  return {event.pipeline, event.rank, event.kind, event.chunk, event.microbatch};
}

// All computations of a kind on a rank take what they take on average.
std::vector<Nanoseconds> MeanDurations(const StepGraph& graph) {
  std::map<std::tuple<int, int, EventKind, int>, std::pair<Nanoseconds, int>> sums;
  const auto sum_of = [&](const JobEvent& event) -> std::pair<Nanoseconds, int>& {
    return sums[{event.pipeline, event.rank, event.kind, event.chunk}];
  };
  std::vector<Nanoseconds> durations = graph.durations;
  for (std::size_t i = 0; i < durations.size(); ++i) {
    if (!IsComputation(graph.step->events[i].kind)) continue;
    auto& [time, count] = sum_of(graph.step->events[i]);
    time += durations[i];
    ++count;
  }
  for (std::size_t i = 0; i < durations.size(); ++i) {
    if (!IsComputation(graph.step->events[i].kind)) continue;
    const auto& [time, count] = sum_of(graph.step->events[i]);
    durations[i] = time / count;
  }
  return durations;
}

// What is known of one step once it has been planned.
struct PlannedStep {
  StepBloat bloat;
  StepClocks oracle;
  std::map<ComputationKey, int> for_later;  // Clocks that a controller takes from this step.
};

struct WholePlan {
  StepClocks clocks;
  double effective_energy_j = 0;  // Of the relaxed optimum.
};

Result<WholePlan> PlanWhole(const StepGraph& graph, const JobPowerModel& model,
                            const std::vector<Nanoseconds>& durations) {
  const auto relaxation = Relaxer(graph, model, durations, kAllPipelines).Relax();
  if (!relaxation) return Fail(relaxation);
  const auto solution = Solve(*relaxation, ReplayStep(graph, durations).time);
  if (!solution) return Fail(solution);
  return WholePlan{RoundToClocks(graph, model, durations, *relaxation, *solution),
                   EffectiveEnergyOf(*relaxation, *solution)};
}

double EffectiveEnergyAtHighest(const StepGraph& graph, const JobPowerModel& model, int pipeline) {
  double sum_j = 0;
  for (std::size_t i = 0; i < graph.durations.size(); ++i) {
    const JobEvent& event = graph.step->events[i];
    if (!IsComputation(event.kind) || event.pipeline != pipeline) continue;
    const double time_s = ToSeconds(graph.durations[i]);
    sum_j += (model.points_of(event.kind).front().power_w - model.blocking_power_w) * time_s;
  }
  return sum_j;
}

Result<PlannedStep> PlanStep(const StepGraph& graph, const JobPowerModel& model,
                             bool needs_for_later) {
  PlannedStep planned;
  StepBloat& bloat = planned.bloat;
  bloat.number = graph.step->number;
  bloat.recorded = graph.step->time;
  bloat.without_host_delays = ReplayStep(graph, graph.durations, HostDelays::kNone).time;
  const StepOutcome highest = RunStep(graph, model, StepClocks(graph.durations.size(), 0));
  bloat.replayed = highest.time;
  bloat.energy_j = highest.energy_j;

  auto oracle = PlanWhole(graph, model, graph.durations);
  if (!oracle) return Fail(oracle);
  planned.oracle = std::move(oracle->clocks);
  bloat.bound_j =
      oracle->effective_energy_j + model.blocking_power_w * GpusOf(graph) * ToSeconds(highest.time);

  for (int pipeline = 0; pipeline < PipelinesOf(graph); ++pipeline) {
    const Nanoseconds time = ReplayPipeline(graph, pipeline, graph.durations).time;
    bloat.pipeline_times.push_back(time);
    const auto relaxation = Relaxer(graph, model, graph.durations, pipeline).Relax();
    if (!relaxation) return Fail(relaxation);
    const auto solution = Solve(*relaxation, time);
    if (!solution) return Fail(solution);
    bloat.intrinsic_j += EffectiveEnergyAtHighest(graph, model, pipeline) -
                         EffectiveEnergyOf(*relaxation, *solution);
  }
  bloat.slowest_pipeline = static_cast<int>(std::ranges::max_element(bloat.pipeline_times) -
                                            bloat.pipeline_times.begin());
  bloat.extrinsic_j = bloat.energy_j - bloat.bound_j - bloat.intrinsic_j;

  if (needs_for_later) {
    const auto plan = PlanWhole(graph, model, MeanDurations(graph));
    if (!plan) return Fail(plan);
    for (std::size_t i = 0; i < plan->clocks.size(); ++i) {
      const JobEvent& event = graph.step->events[i];
      if (IsComputation(event.kind)) planned.for_later[KeyOf(event)] = plan->clocks[i];
    }
  }
  return planned;
}

// What the other step's plan does not know runs at the highest clock.
StepClocks Carry(const std::map<ComputationKey, int>& clocks, const StepGraph& graph) {
  StepClocks carried(graph.durations.size(), 0);
  for (std::size_t i = 0; i < carried.size(); ++i) {
    if (!IsComputation(graph.step->events[i].kind)) continue;
    const auto found = clocks.find(KeyOf(graph.step->events[i]));
    if (found != clocks.end()) carried[i] = found->second;
  }
  return carried;
}

Result<std::vector<PlannedStep>> PlanSteps(const TraceGraph& trace, const JobPowerModel& model,
                                           bool needs_for_later) {
  std::vector<Result<PlannedStep>> results(trace.steps.size(), Fail("not planned"));
  ForEachOnAllCores(results.size(), [&](std::size_t i) {
    results[i] = PlanStep(trace.steps[i], model, needs_for_later);
  });
  std::vector<PlannedStep> planned;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) {
      return FailAs(results[i].error().kind, "step {}: {}", trace.steps[i].step->number,
                    results[i].error().message);
    }
    planned.push_back(*std::move(results[i]));
  }
  return planned;
}

}  // namespace

JobPowerModel JobPowerModel::Of(const GpuModel& gpu) {
  JobPowerModel model;
  model.blocking_power_w = gpu.blocking_power_w;
  const auto sweep = [&](const StageWork& work) {
    // Any duration long enough shows which clocks are of use.
    constexpr Nanoseconds kSecond = 1'000'000'000;
    std::vector<ClockPoint> points;
    double least_time_s = 0;
    for (double mhz = gpu.highest_frequency_mhz; mhz >= gpu.lowest_frequency_mhz;
         mhz -= gpu.frequency_step_mhz) {
      const double actual_mhz = gpu.ActualFrequencyMhz(mhz);
      const double time_s = work.compute_s * gpu.highest_frequency_mhz / actual_mhz + work.memory_s;
      if (points.empty()) least_time_s = time_s;
      // Beyond the power limit clocks run alike, but for the last bits of a search for it.
      constexpr double kAlike = 1 + 1e-9;
      if (!points.empty() && time_s <= points.back().time_ratio * least_time_s * kAlike) continue;
      points.push_back({mhz, time_s / least_time_s, gpu.UnlimitedPowerW(actual_mhz)});
    }
    std::vector<ClockPoint> useful;
    for (const int i : ParetoFront(OptionsOf(points, kSecond), gpu.blocking_power_w)) {
      useful.push_back(points[At(i)]);
    }
    return useful;
  };
  model.forward = sweep(gpu.forward);
  model.backward = sweep(gpu.backward);
  return model;
}

Nanoseconds TimeAt(const ClockPoint& point, Nanoseconds at_highest) {
  return std::llround(point.time_ratio * static_cast<double>(at_highest));
}

StepOutcome RunStep(const StepGraph& graph, const JobPowerModel& model, const StepClocks& clocks) {
  std::vector<Nanoseconds> durations = graph.durations;
  StepOutcome outcome;
  Nanoseconds computing = 0;
  for (std::size_t i = 0; i < durations.size(); ++i) {
    const EventKind kind = graph.step->events[i].kind;
    if (!IsComputation(kind)) continue;
    const ClockPoint& point = model.points_of(kind)[At(clocks[i])];
    outcome.computing_j += EnergyAt(point, durations[i]);
    durations[i] = TimeAt(point, durations[i]);
    computing += durations[i];
  }
  outcome.time = ReplayStep(graph, durations).time;
  outcome.waiting_j =
      model.blocking_power_w * (GpusOf(graph) * ToSeconds(outcome.time) - ToSeconds(computing));
  outcome.energy_j = outcome.computing_j + outcome.waiting_j;
  return outcome;
}

Result<double> LeastEnergy(const StepGraph& graph, const JobPowerModel& model,
                           Nanoseconds deadline) {
  const auto relaxation = Relaxer(graph, model, graph.durations, kAllPipelines).Relax();
  if (!relaxation) return Fail(relaxation);
  const auto solution = Solve(*relaxation, deadline);
  if (!solution) return Fail(solution);
  return EffectiveEnergyOf(*relaxation, *solution) +
         model.blocking_power_w * GpusOf(graph) * ToSeconds(deadline);
}

Result<WhatIf> AskWhatIf(const TraceGraph& trace, const JobPowerModel& model,
                         const std::vector<int>& delays) {
  const bool needs_for_later = std::ranges::any_of(delays, [](int delay) { return delay > 0; });
  auto planned = PlanSteps(trace, model, needs_for_later);
  if (!planned) return Fail(planned);
  WhatIf answer;
  for (const int delay : delays) {
    ControllerOutcome controller{.delay = delay, .steps = {}};
    for (std::size_t s = 0; s < trace.steps.size(); ++s) {
      const StepGraph& graph = trace.steps[s];
      const StepClocks clocks = delay == 0      ? (*planned)[s].oracle
                                : s < At(delay) ? StepClocks(graph.durations.size(), 0)
                                                : Carry((*planned)[s - At(delay)].for_later, graph);
      controller.steps.push_back(RunStep(graph, model, clocks));
    }
    answer.controllers.push_back(std::move(controller));
  }
  for (PlannedStep& step : *planned) {
    if (!answer.steps.empty() &&
        answer.steps.back().slowest_pipeline != step.bloat.slowest_pipeline) {
      ++answer.slowest_changes;
    }
    answer.steps.push_back(std::move(step.bloat));
  }
  return answer;
}

}  // namespace perseus
