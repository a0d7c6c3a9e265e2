#include "perseus/simulation/replay/straggler_slowdown.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/base/statistics.h"

namespace perseus::replay {
namespace {

// In nanoseconds, rounded up, so that computations take time if at least one of them does.
Nanoseconds TypicalDuration(EventKind kind, std::vector<double> durations) {
  const auto count = static_cast<double>(durations.size());
  const double typical = IsCommunication(kind)
                             ? Median(std::move(durations))
                             : std::accumulate(durations.begin(), durations.end(), 0.0) / count;
  return static_cast<Nanoseconds>(std::ceil(typical));
}

// By number of the name. 0 for names that the trace does not have.
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
