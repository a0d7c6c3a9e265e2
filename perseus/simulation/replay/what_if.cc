#include "perseus/simulation/replay/what_if.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/base/parallel.h"
#include "perseus/base/statistics.h"
#include "perseus/base/units.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/plan/search/choices.h"
#include "perseus/planning/profile/curve.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::replay {
namespace {

// For each element of StepGraph::waited, returns how long the meeting still waits for other
// pipelines after this pipeline is ready.
std::vector<Nanoseconds> WaitsForOthers(const StepGraph& graph,
                                        std::span<const Nanoseconds> durations) {
  const std::vector<Nanoseconds> ends = ReplayStep(graph, durations).ends;
  const auto pipeline_of = [&](int event) { return graph.step->events[At(event)].dp_rank; };
  std::vector<Nanoseconds> waits(graph.waited.size(), 0);
  for (int node = graph.events(); node < graph.nodes(); ++node) {
    const std::span<const int> waited = graph.waits_of(node);
    const std::size_t offset = At(graph.first_waited[At(node)]);
    // Events are sorted by pipeline.
    for (std::size_t first = 0; first < waited.size();) {
      std::size_t end = first;
      Nanoseconds ready = 0;  // When this pipeline is ready.
      for (; end < waited.size() && pipeline_of(waited[end]) == pipeline_of(waited[first]); ++end) {
        ready = std::max(ready, ends[At(waited[end])]);
      }
      for (; first < end; ++first) waits[offset + first] = ends[At(node)] - ready;
    }
  }
  return waits;
}

// The relaxation of a step. Its instructions are the computations, in the order of the step. They
// are also some of the events with a time that no clock changes. Most of these events become delays
// between instructions, which makes the network about half as large.
struct Relaxation {
  schedule::InstructionGraph graph;  // With an option set of its own for each instruction.
  frontier::Network network;
  std::vector<int> events;              // By instruction. -1 if it is no computation.
  double least_effective_energy_j = 0;  // The sum over computations, each at its least.
};

class Relaxer {
 public:
  Relaxer(const StepGraph& graph, const JobPowerModel& model,
          const std::vector<Nanoseconds>& durations, Waits waits)
      : graph_(graph), model_(model), durations_(durations) {
    if (waits == Waits::kKept) kept_waits_ = WaitsForOthers(graph, durations);
  }

  Result<Relaxation> Relax() {
    ends_.resize(At(graph_.nodes()));
    is_awaited_.assign(At(graph_.nodes()), false);
    for (const int waited : graph_.waited) is_awaited_[At(waited)] = true;
    for (const int node : graph_.order) {
      if (graph_.is_meeting(node)) {
        AddFixed(node, StartOf(node, 0), 0, 0);
      } else if (auto added = AddEvent(node); !added) {
        return Fail(added);
      }
    }
    PERSEUS_ASSIGN_OR_RETURN(auto network, frontier::BuildNetwork(relaxation_.graph, curves_));
    relaxation_.network = std::move(network);
    return std::move(relaxation_);
  }

 private:
  // A time: `delay` after the end of an instruction.
  struct After {
    int instruction = 0;
    Nanoseconds delay = 0;
  };

  Result<void> AddEvent(int event) {
    const Nanoseconds host_delay = graph_.host_delays[At(event)];
    const EventKind kind = graph_.step->events[At(event)].kind;
    const Nanoseconds duration = durations_[At(event)];
    std::vector<After> start = StartOf(event, host_delay);
    if (!IsComputation(kind) || duration == 0) {
      AddFixed(event, std::move(start), host_delay, duration);
      return {};
    }
    std::vector<profile::Option> options = OptionsOf(model_.points_of(kind), duration);
    PERSEUS_ASSIGN_OR_RETURN(profile::Curve hull,
                             profile::LowerHull(options, model_.blocking_power_w));
    relaxation_.least_effective_energy_j += hull.least_effective_energy_j;
    if (start.empty() && host_delay > 0) start = {{AddFixedInstruction(host_delay, {}), 0}};
    ends_[At(event)] = {{AddInstruction(std::move(options), std::move(hull), event, start), 0}};
    return {};
  }

  // Adds a node whose time no clock changes.
  void AddFixed(int node, std::vector<After> start, Nanoseconds host_delay, Nanoseconds duration) {
    // A delay needs an arc for each pair of a predecessor and a successor. With up to four
    // predecessors, an instruction would not need fewer arcs.
    constexpr std::size_t kMostPredecessors = 4;
    std::vector<After>& end = ends_[At(node)];
    if (start.empty()) {
      if (host_delay + duration > 0) end = {{AddFixedInstruction(host_delay + duration, {}), 0}};
    } else if (start.size() > kMostPredecessors || !is_awaited_[At(node)]) {
      end = {{AddFixedInstruction(duration, start), 0}};
    } else {
      end = std::move(start);
      for (After& after : end) after.delay += duration;
    }
  }

  // Returns the times at which the node may start. It starts at the latest of them, or at 0 if it
  // waits for nothing.
  std::vector<After> StartOf(int node, Nanoseconds host_delay) const {
    std::vector<After> start;
    const std::span<const int> waits = graph_.waits_of(node);
    const std::size_t offset = At(graph_.first_waited[At(node)]);
    for (std::size_t i = 0; i < waits.size(); ++i) {
      const Nanoseconds kept = kept_waits_.empty() ? 0 : kept_waits_[offset + i];
      for (const auto& [instruction, delay] : ends_[At(waits[i])]) {
        start.push_back({instruction, delay + host_delay + kept});
      }
    }
    std::sort(start.begin(), start.end(), [](const After& left, const After& right) {
      return std::tie(left.instruction, right.delay) < std::tie(right.instruction, left.delay);
    });
    // If several delays follow the same instruction, only the longest one matters.
    const auto last =
        std::unique(start.begin(), start.end(), [](const After& left, const After& right) {
          return left.instruction == right.instruction;
        });
    start.erase(last, start.end());
    return start;
  }

  int AddFixedInstruction(Nanoseconds time, const std::vector<After>& start) {
    std::vector<profile::Option> options(1);
    options[0].time = time;
    return AddInstruction(std::move(options), profile::Curve{{time}, {}, {}, 0}, -1, start);
  }

  int AddInstruction(std::vector<profile::Option> options, profile::Curve curve, int event,
                     const std::vector<After>& start) {
    schedule::InstructionGraph& graph = relaxation_.graph;
    const int instruction = static_cast<int>(curves_.size());
    graph.option_sets.emplace_back().options = std::move(options);
    graph.instructions.push_back({.option_set = instruction});
    curves_.push_back(std::move(curve));
    relaxation_.events.push_back(event);
    for (const auto& [waited, delay] : start) {
      graph.dependencies.push_back({waited, instruction, delay});
    }
    return instruction;
  }

  const StepGraph& graph_;
  const JobPowerModel& model_;
  const std::vector<Nanoseconds>& durations_;
  std::vector<Nanoseconds> kept_waits_;   // By element of StepGraph::waited. Empty: Waits::kFree.
  std::vector<std::vector<After>> ends_;  // By node.
  std::vector<bool> is_awaited_;
  std::vector<profile::Curve> curves_;  // By instruction.
  Relaxation relaxation_;
};

Result<frontier::Solution> Solve(const Relaxation& relaxation, Nanoseconds deadline) {
  Result<frontier::Solution> solution = frontier::SolveDeadline(relaxation.network, deadline);
  if (!solution) return solution;
  if (auto proof = frontier::CheckDeadline(relaxation.network, *solution, deadline, 0); !proof) {
    return FailAs(ErrorKind::kSystem, "a solution failed its own check: {} (please report this)",
                  proof.error().Message());
  }
  return solution;
}

int GpusOf(const StepGraph& graph) {
  const JobEvent& last = graph.step->events.back();
  return (last.dp_rank + 1) * (last.pp_rank + 1);
}

// Chooses clocks with plan/search/choices.h. The step takes no longer than the relaxed optimum.
StepClocks RoundToClocks(const StepGraph& graph, const JobPowerModel& model,
                         const Relaxation& relaxation, const frontier::Solution& solution) {
  const plan::ChoiceGraph choices(relaxation.graph, model.blocking_power_w);
  const std::vector<int> options = choices.Options(plan::DiffuseRounding(
      choices, plan::WindowsOf(relaxation.network, solution), plan::TimeDirection::kForward));
  StepClocks clocks(graph.durations.size(), 0);
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (relaxation.events[i] >= 0) clocks[At(relaxation.events[i])] = options[i];
  }
  return clocks;
}

// Identifies a computation within its step, so that its clock can be used in another step.
using ComputationKey = std::tuple<int, int, EventKind, int, int>;

ComputationKey KeyOf(const JobEvent& event) {
  return {event.dp_rank, event.pp_rank, event.kind, event.chunk, event.microbatch};
}

// Returns the durations, but each computation has the mean duration of its kind and chunk on its
// rank.
std::vector<Nanoseconds> MeanDurations(const StepGraph& graph) {
  std::map<std::tuple<int, int, EventKind, int>, std::pair<Nanoseconds, int>> sums;
  const auto sum_of = [&](const JobEvent& event) -> std::pair<Nanoseconds, int>& {
    return sums[{event.dp_rank, event.pp_rank, event.kind, event.chunk}];
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

// The results of planning one step.
struct PlannedStep {
  StepBloat bloat;
  StepClocks oracle;
  // The clocks that a delayed controller takes from this step.
  std::map<ComputationKey, int> clocks_for_later;
};

struct StepPlan {
  StepClocks clocks;
  double energy_j = 0;  // The energy of the relaxed optimum.
};

double EnergyOf(const StepGraph& graph, const JobPowerModel& model, const Relaxation& relaxation,
                const frontier::Solution& solution, Nanoseconds deadline) {
  return relaxation.least_effective_energy_j + ToJoules(solution.extra_energy) +
         model.blocking_power_w * GpusOf(graph) * ToSeconds(deadline);
}

Result<StepPlan> PlanWithoutSlowdown(const StepGraph& graph, const JobPowerModel& model,
                                     const std::vector<Nanoseconds>& durations) {
  const Nanoseconds deadline = ReplayStep(graph, durations).time;
  PERSEUS_ASSIGN_OR_RETURN(const auto relaxation,
                           Relaxer(graph, model, durations, Waits::kFree).Relax());
  PERSEUS_ASSIGN_OR_RETURN(const auto solution, Solve(relaxation, deadline));
  return StepPlan{RoundToClocks(graph, model, relaxation, solution),
                  EnergyOf(graph, model, relaxation, solution, deadline)};
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

  PERSEUS_ASSIGN_OR_RETURN(auto oracle, PlanWithoutSlowdown(graph, model, graph.durations));
  planned.oracle = std::move(oracle.clocks);
  bloat.bound_j = oracle.energy_j;

  PERSEUS_ASSIGN_OR_RETURN(const auto kept, LeastEnergy(graph, model, highest.time, Waits::kKept));
  // At the highest clocks, all waits are kept, so only the rounding of sums can make this negative.
  bloat.intrinsic_j = std::max(0.0, bloat.energy_j - kept);
  bloat.extrinsic_j = kept - bloat.bound_j;
  bloat.pipeline_times = ReplayPipelinesAlone(graph, graph.durations);
  bloat.slowest_dp_rank = static_cast<int>(std::ranges::max_element(bloat.pipeline_times) -
                                           bloat.pipeline_times.begin());

  if (needs_for_later) {
    PERSEUS_ASSIGN_OR_RETURN(const auto plan,
                             PlanWithoutSlowdown(graph, model, MeanDurations(graph)));
    for (std::size_t i = 0; i < plan.clocks.size(); ++i) {
      const JobEvent& event = graph.step->events[i];
      if (IsComputation(event.kind)) planned.clocks_for_later[KeyOf(event)] = plan.clocks[i];
    }
  }
  return planned;
}

// Returns the clocks for this step from the plan of another step. If the plan lacks a computation,
// it runs at the highest clock.
StepClocks CarryOver(const std::map<ComputationKey, int>& clocks, const StepGraph& graph) {
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
      return Fail(results[i], fmt::format("step {}", trace.steps[i].step->number));
    }
    planned.push_back(*std::move(results[i]));
  }
  return planned;
}

// Returns the typical duration in nanoseconds, rounded up. So if at least one computation takes
// time, the typical one does, too.
Nanoseconds TypicalDuration(EventKind kind, std::vector<double> durations) {
  const auto count = static_cast<double>(durations.size());
  const double typical = IsCommunication(kind)
                             ? Median(std::move(durations))
                             : std::accumulate(durations.begin(), durations.end(), 0.0) / count;
  return static_cast<Nanoseconds>(std::ceil(typical));
}

// Returns the typical durations, by number of the name. 0 for names that the trace does not have.
std::vector<Nanoseconds> TypicalDurations(const TraceGraph& trace) {
  std::vector<std::vector<double>> recorded(KnownEvents().size());
  for (const StepGraph& graph : trace.steps) {
    for (std::size_t i = 0; i < graph.durations.size(); ++i) {
      recorded[At(graph.step->events[i].name)].push_back(static_cast<double>(graph.durations[i]));
    }
  }
  std::vector<Nanoseconds> typical(recorded.size(), 0);
  for (std::size_t name = 0; name < recorded.size(); ++name) {
    if (recorded[name].empty()) continue;
    typical[name] = TypicalDuration(KnownEvents()[name].kind, std::move(recorded[name]));
  }
  return typical;
}

}  // namespace

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

Result<double> LeastEnergy(const StepGraph& graph, const JobPowerModel& model, Nanoseconds deadline,
                           Waits waits) {
  PERSEUS_ASSIGN_OR_RETURN(const auto relaxation,
                           Relaxer(graph, model, graph.durations, waits).Relax());
  PERSEUS_ASSIGN_OR_RETURN(const auto solution, Solve(relaxation, deadline));
  return EnergyOf(graph, model, relaxation, solution, deadline);
}

Result<WhatIf> AnalyzeWhatIf(const TraceGraph& trace, const JobPowerModel& model,
                             const std::vector<int>& delays) {
  const bool needs_for_later = std::ranges::any_of(delays, [](int delay) { return delay > 0; });
  PERSEUS_ASSIGN_OR_RETURN(auto planned, PlanSteps(trace, model, needs_for_later));
  WhatIf answer;
  for (const int delay : delays) {
    ControllerOutcome controller{.delay = delay, .steps = {}};
    for (std::size_t s = 0; s < trace.steps.size(); ++s) {
      const StepGraph& graph = trace.steps[s];
      const StepClocks clocks = delay == 0 ? planned[s].oracle
                                : s < At(delay)
                                    ? StepClocks(graph.durations.size(), 0)
                                    : CarryOver(planned[s - At(delay)].clocks_for_later, graph);
      controller.steps.push_back(RunStep(graph, model, clocks));
    }
    answer.controllers.push_back(std::move(controller));
  }
  for (PlannedStep& step : planned) {
    if (!answer.steps.empty() &&
        answer.steps.back().slowest_dp_rank != step.bloat.slowest_dp_rank) {
      ++answer.slowest_changes;
    }
    answer.steps.push_back(std::move(step.bloat));
  }
  return answer;
}

Result<std::vector<StragglerSlowdown>> StragglerSlowdowns(const TraceGraph& trace) {
  const std::vector<Nanoseconds> typical = TypicalDurations(trace);
  std::vector<StragglerSlowdown> slowdowns;
  for (const StepGraph& graph : trace.steps) {
    std::vector<Nanoseconds> ideal;
    Nanoseconds left = std::numeric_limits<Nanoseconds>::max() / 8;
    for (const JobEvent& event : graph.step->events) {
      ideal.push_back(typical[At(event.name)]);
      left -= ideal.back();
      if (left >= 0) continue;
      return Fail(
          "{}: up to this event, the events of the step would last more than 36 years in total if "
          "each took the typical time of its name (is ts in us?)",
          Describe(event, graph.step->number));
    }
    slowdowns.push_back({ReplayStep(graph, graph.durations, HostDelays::kNone).time,
                         ReplayStep(graph, ideal, HostDelays::kNone).time});
  }
  return slowdowns;
}

StragglerSlowdown SumOf(const std::vector<StragglerSlowdown>& steps) {
  StragglerSlowdown sum;
  for (const StragglerSlowdown& step : steps) {
    sum.time += step.time;
    sum.ideal += step.ideal;
  }
  return sum;
}

}  // namespace perseus::replay
