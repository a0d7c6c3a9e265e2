#include "perseus/planning/plan/search/choices.h"

#include <algorithm>
#include <numeric>

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

ChoiceGraph::ChoiceGraph(const schedule::InstructionGraph& graph, double blocking_power_w)
    : graph_(graph),
      predecessors_(CollectNeighbors(graph, Direction::kPredecessors)),
      successors_(CollectNeighbors(graph, Direction::kSuccessors)) {
  for (const schedule::OptionSet& set : graph.option_sets) {
    std::vector<Candidate>& candidates = candidates_.emplace_back();
    for (const int index : profile::ParetoFront(set.options, blocking_power_w)) {
      const profile::Option& option = set.options[At(index)];
      candidates.push_back(
          {option.time, perseus::profile::EffectiveEnergy(option, blocking_power_w), index});
    }
  }
}

ChoiceGraph::Neighbors ChoiceGraph::CollectNeighbors(const schedule::InstructionGraph& graph,
                                                     Direction direction) {
  const bool before = direction == Direction::kPredecessors;
  Neighbors neighbors;
  neighbors.first.assign(graph.instructions.size() + 1, 0);
  neighbors.all.resize(graph.dependencies.size());
  for (const schedule::Dependency& dependency : graph.dependencies) {
    ++neighbors.first[At(before ? dependency.to : dependency.from) + 1];
  }
  std::partial_sum(neighbors.first.begin(), neighbors.first.end(), neighbors.first.begin());
  std::vector<int> slot(neighbors.first.begin(), neighbors.first.end() - 1);
  for (std::size_t i = 0; i < graph.dependencies.size(); ++i) {
    const schedule::Dependency& dependency = graph.dependencies[i];
    const int self = before ? dependency.to : dependency.from;
    const int other = before ? dependency.from : dependency.to;
    neighbors.all[At(slot[At(self)]++)] = {other, dependency.delay, static_cast<int>(i)};
  }
  return neighbors;
}

double ChoiceGraph::EffectiveEnergy(const Choices& choices) const {
  double sum = 0;
  for (int i = 0; i < instructions(); ++i) {
    sum += candidates(i)[At(choices[At(i)])].effective_energy_j;
  }
  return sum;
}

std::vector<int> ChoiceGraph::Options(const Choices& choices) const {
  std::vector<int> options;
  options.reserve(choices.size());
  for (int i = 0; i < instructions(); ++i) {
    options.push_back(candidates(i)[At(choices[At(i)])].option);
  }
  return options;
}

std::vector<Nanoseconds> EarliestStarts(const ChoiceGraph& graph, const Choices& choices) {
  std::vector<Nanoseconds> starts(choices.size(), 0);
  for (int i = 0; i < graph.instructions(); ++i) {
    for (const auto& before : graph.predecessors(i)) {
      const int p = before.instruction;
      const Nanoseconds end = starts[At(p)] + graph.candidates(p)[At(choices[At(p)])].time;
      starts[At(i)] = std::max(starts[At(i)], end + before.delay);
    }
  }
  return starts;
}

std::vector<Nanoseconds> LatestStarts(const ChoiceGraph& graph, const Choices& choices,
                                      Nanoseconds length) {
  std::vector<Nanoseconds> starts(choices.size(), 0);
  for (int i = graph.instructions() - 1; i >= 0; --i) {
    Nanoseconds end = length;
    for (const auto& after : graph.successors(i)) {
      end = std::min(end, starts[At(after.instruction)] - after.delay);
    }
    starts[At(i)] = end - graph.candidates(i)[At(choices[At(i)])].time;
  }
  return starts;
}

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
  // Forward in time: the actual end of each instruction. Backward: its actual start.
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
