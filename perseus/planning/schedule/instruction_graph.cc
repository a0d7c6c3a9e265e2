#include "perseus/planning/schedule/instruction_graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>

#include "perseus/base/excerpt.h"
#include "perseus/base/index.h"

namespace perseus::schedule {
namespace {

// When Kahn's algorithm ends, each instruction that still waits, waits for another such
// instruction. So a walk backward from any of them visits an instruction twice: this is the cycle.
std::vector<int> FindCycle(const InstructionGraph& graph, const std::vector<int>& waiting_for) {
  std::vector<int> before(graph.instructions.size(), -1);
  int current = -1;
  for (const Dependency& dependency : graph.dependencies) {
    if (waiting_for[At(dependency.from)] == 0) continue;
    before[At(dependency.to)] = dependency.from;
    current = dependency.to;
  }
  std::vector<bool> seen(graph.instructions.size());
  while (!seen[At(current)]) {
    seen[At(current)] = true;
    current = before[At(current)];
  }
  std::vector<int> cycle;
  const int start = current;
  do {
    cycle.push_back(current);
    current = before[At(current)];
  } while (current != start);
  std::reverse(cycle.begin(), cycle.end());
  return cycle;
}

}  // namespace

Result<InstructionGraph> SortTopologically(InstructionGraph graph) {
  const TopologicalOrder found = FindTopologicalOrder(graph);
  if (found.cycle.empty()) return Renumber(std::move(graph), found.order);

  constexpr std::size_t kMostShown = 8;
  std::string cycle;
  for (std::size_t i = 0; i < std::min(found.cycle.size(), kMostShown); ++i) {
    cycle += Describe(graph, found.cycle[i]) + " -> ";
  }
  if (found.cycle.size() > kMostShown) {
    cycle += fmt::format("{} more -> ", found.cycle.size() - kMostShown);
  }
  cycle += Describe(graph, found.cycle.front());
  return Fail(
      InFile(graph.name),
      "instructions wait for each other: {} (remove one of these dependencies; instructions "
      "on one resource also wait for those before them)",
      cycle);
}

Result<void> CheckDurations(const InstructionGraph& graph) {
  std::vector<Nanoseconds> slowest;
  for (const OptionSet& set : graph.option_sets) {
    Nanoseconds& longest = slowest.emplace_back(0);
    for (const profile::Option& option : set.options) longest = std::max(longest, option.time);
  }
  Nanoseconds left = std::numeric_limits<Nanoseconds>::max() / 8;
  bool fits = true;
  auto take = [&](Nanoseconds duration) {
    fits = fits && duration <= left;
    if (fits) left -= duration;
  };
  for (const InstructionNode& instruction : graph.instructions) {
    take(slowest[static_cast<std::size_t>(instruction.option_set)]);
  }
  for (const Dependency& dependency : graph.dependencies) take(dependency.delay);
  if (fits) return {};
  return Fail(
      InFile(graph.name),
      "the durations of all instructions add up to more than 36 years, which does not fit the "
      "planner's nanoseconds (check that the times are in seconds)");
}

std::string Describe(const InstructionGraph& graph, int instruction) {
  const InstructionNode& described = graph.instructions[static_cast<std::size_t>(instruction)];
  const OptionSet& options = graph.options_of(instruction);
  if (options.kind == InstructionKind::kGeneric) return Excerpt(options.name);

  std::string text(Name(options.kind));
  if (described.microbatch >= 0) text += fmt::format(" of microbatch {}", described.microbatch);
  const bool has_chunks = std::any_of(graph.option_sets.begin(), graph.option_sets.end(),
                                      [](const OptionSet& set) { return set.chunk > 0; });
  if (has_chunks && IsComputation(options.kind)) text += fmt::format(" of chunk {}", options.chunk);
  return text + " on " + graph.pp_rank_names[static_cast<std::size_t>(described.pp_rank)];
}

std::vector<int> BaselineOptions(const InstructionGraph& graph) {
  std::vector<int> options;
  options.reserve(graph.instructions.size());
  for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
    options.push_back(graph.options_of(static_cast<int>(i)).baseline);
  }
  return options;
}

TopologicalOrder FindTopologicalOrder(const InstructionGraph& graph) {
  const std::size_t count = graph.instructions.size();
  std::vector<int> waiting_for(count);
  // Where the successors of each instruction begin in one array.
  std::vector<std::size_t> first(count + 1);
  for (const Dependency& dependency : graph.dependencies) {
    ++waiting_for[At(dependency.to)];
    ++first[At(dependency.from) + 1];
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<int> successors(graph.dependencies.size());
  std::vector<std::size_t> next(first.begin(), first.end() - 1);
  for (const Dependency& dependency : graph.dependencies) {
    successors[next[At(dependency.from)]++] = dependency.to;
  }

  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (std::size_t instruction = 0; instruction < count; ++instruction) {
    if (waiting_for[instruction] == 0) ready.push(static_cast<int>(instruction));
  }
  TopologicalOrder result;
  result.order.reserve(count);
  while (!ready.empty()) {
    const int instruction = ready.top();
    ready.pop();
    result.order.push_back(instruction);
    for (std::size_t i = first[At(instruction)]; i < first[At(instruction) + 1]; ++i) {
      if (--waiting_for[At(successors[i])] == 0) ready.push(successors[i]);
    }
  }
  if (result.order.size() < count) {
    result.order.clear();
    result.cycle = FindCycle(graph, waiting_for);
  }
  return result;
}

InstructionGraph Renumber(InstructionGraph graph, const std::vector<int>& order) {
  std::vector<int> number(order.size());
  std::vector<InstructionNode> instructions;
  instructions.reserve(order.size());
  for (int instruction : order) {
    number[At(instruction)] = static_cast<int>(instructions.size());
    instructions.push_back(graph.instructions[At(instruction)]);
  }
  graph.instructions = std::move(instructions);
  for (Dependency& dependency : graph.dependencies) {
    dependency.from = number[At(dependency.from)];
    dependency.to = number[At(dependency.to)];
  }
  std::sort(graph.dependencies.begin(), graph.dependencies.end(),
            [](const Dependency& left, const Dependency& right) {
              return std::tie(left.from, left.to) < std::tie(right.from, right.to);
            });
  for (std::vector<int>& pp_rank : graph.pp_rank_orders) {
    for (int& instruction : pp_rank) instruction = number[At(instruction)];
  }
  return graph;
}

}  // namespace perseus::schedule
