// Checks that no bytes make ParseJobTrace or BuildTraceGraph crash. A timeline that they return
// must keep their invariants, and must be replayable.
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "perseus/simulation/replay/job_trace.h"
#include "perseus/simulation/replay/trace_replay.h"
#include "perseus/simulation/replay/what_if.h"

namespace {

using perseus::fuzz::Require;
using perseus::fuzz::RequireOneLine;
using perseus::replay::StepGraph;

void CheckGraph(const perseus::replay::StepGraph& graph) {
  const std::size_t events = graph.step->events.size();
  const std::size_t nodes = graph.order.size();
  Require(nodes >= events && graph.durations.size() == events);
  Require(graph.host_delays.size() == events && graph.first_waited.size() == nodes + 1);
  for (const auto duration : graph.durations) Require(duration >= 0);
  for (const auto delay : graph.host_delays) Require(delay >= 0);
  const auto replay = perseus::replay::ReplayStep(graph, graph.durations);
  Require(replay.time >= 0);
  for (std::size_t i = 0; i < nodes; ++i) {
    for (const int waited : graph.waits_of(static_cast<int>(i))) {
      Require(replay.ends[static_cast<std::size_t>(waited)] <= replay.ends[i]);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  perseus::replay::TraceReadOptions options;
  options.most_bytes = std::size_t{1} << 20;
  const auto trace = perseus::replay::ParseJobTrace(bytes, "fuzz", options);
  if (!trace) {
    RequireOneLine(trace.error());
    return 0;
  }
  Require(trace->pipelines > 0 && trace->pp_ranks > 0 && !trace->steps.empty());
  const auto graph = perseus::replay::BuildTraceGraph(*trace);
  if (!graph) {
    RequireOneLine(graph.error());
    return 0;
  }
  Require(graph->steps.size() == trace->steps.size());
  for (const perseus::replay::StepGraph& step : graph->steps) CheckGraph(step);
  const auto slowdowns = perseus::replay::StragglerSlowdowns(*graph);
  if (slowdowns) {
    for (const auto& slowdown : *slowdowns) Require(slowdown.time > 0 && slowdown.ideal > 0);
  } else {
    RequireOneLine(slowdowns.error());
  }
  const auto model = perseus::replay::JobPowerModel::Of(perseus::synthetic::GpuModels().front());
  const auto answer = perseus::replay::AnalyzeWhatIf(*graph, model, {0, 1});
  if (!answer) {
    RequireOneLine(answer.error());
    Require(answer.error().kind != perseus::ErrorKind::kSystem);
    return 0;
  }
  for (std::size_t s = 0; s < trace->steps.size(); ++s) {
    Require(answer->controllers[0].steps[s].time <= answer->steps[s].replayed);
    Require(answer->steps[s].intrinsic_j >= 0 && answer->steps[s].extrinsic_j >= 0);
  }
  return 0;
}
