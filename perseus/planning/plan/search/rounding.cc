#include "perseus/planning/plan/search/rounding.h"

#include <algorithm>

#include "perseus/base/index.h"

namespace perseus::plan {
namespace {

// The slowest candidate that takes at most `time`, or the fastest candidate if none does.
int SlowestWithin(std::span<const Candidate> candidates, Nanoseconds time) {
  const auto beyond = std::upper_bound(
      candidates.begin(), candidates.end(), time,
      [](Nanoseconds limit, const Candidate& candidate) { return limit < candidate.time; });
  return std::max(static_cast<int>(beyond - candidates.begin()) - 1, 0);
}

}  // namespace

Windows WindowsOf(const frontier::Network& network, const frontier::Solution& solution) {
  Windows windows;
  windows.length = solution.time(network);
  for (std::int32_t i = 0; i < network.instructions; ++i) {
    const frontier::Arc& arc = network.arcs[At(i)];
    windows.starts.push_back(solution.event_times[At(arc.tail)]);
    windows.ends.push_back(solution.event_times[At(arc.head)]);
  }
  return windows;
}

Choices DiffuseRounding(const ChoiceGraph& graph, const Windows& windows, TimeDirection direction) {
  const int instructions = graph.instructions();
  Choices choices(At(instructions), 0);
  // Forward in time, this is the actual end of each instruction. Backward, it is its actual start.
  std::vector<Nanoseconds> reached(At(instructions), 0);
  if (direction == TimeDirection::kForward) {
    for (int i = 0; i < instructions; ++i) {
      Nanoseconds start = 0;
      for (const auto& before : graph.predecessors(i)) {
        start = std::max(start, reached[At(before.instruction)] + before.delay);
      }
      choices[At(i)] = SlowestWithin(graph.candidates(i), windows.ends[At(i)] - start);
      reached[At(i)] = start + graph.candidates(i)[At(choices[At(i)])].time;
    }
  } else {
    for (int i = instructions - 1; i >= 0; --i) {
      Nanoseconds end = windows.length;
      for (const auto& after : graph.successors(i)) {
        end = std::min(end, reached[At(after.instruction)] - after.delay);
      }
      choices[At(i)] = SlowestWithin(graph.candidates(i), end - windows.starts[At(i)]);
      reached[At(i)] = end - graph.candidates(i)[At(choices[At(i)])].time;
    }
  }
  return choices;
}

}  // namespace perseus::plan
