#include "perseus/planning/schedule/instruction_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "perseus/base/excerpt.h"
#include "perseus/planning/schedule/topological_order.h"

namespace perseus::schedule {

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
      "{}: instructions wait for each other: {} (remove one of these dependencies; instructions "
      "on one resource also wait for those before them)",
      graph.name, cycle);
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
      "{}: the durations of all instructions add up to more than 36 years, which does not fit the "
      "planner's nanoseconds (check that the times are in seconds)",
      graph.name);
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

}  // namespace perseus::schedule
