// Checks that no JSON makes ParseInstructionGraph crash. Also checks each accepted graph: it must
// be in topological order, refer only to existing instructions, and have no number out of range.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "perseus/planning/schedule/instruction_graph.h"

using perseus::fuzz::Require;
using perseus::fuzz::RequireOneLine;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = perseus::schedule::ParseInstructionGraph(text, "fuzz");
  if (!file) {
    RequireOneLine(file.error());
    return 0;
  }
  const perseus::schedule::InstructionGraph& graph = file->graph;
  Require(std::isfinite(file->blocking_power_w) && file->blocking_power_w >= 0);
  Require(!graph.instructions.empty());
  Require(graph.pp_rank_names.size() == graph.pp_rank_orders.size());
  const int instructions = static_cast<int>(graph.instructions.size());
  for (const auto& dependency : graph.dependencies) {
    Require(0 <= dependency.from && dependency.from < dependency.to &&
            dependency.to < instructions);
    Require(dependency.delay >= 0);
  }
  std::size_t placed = 0;
  for (std::size_t rank = 0; rank < graph.pp_rank_orders.size(); ++rank) {
    int last = -1;
    for (int instruction : graph.pp_rank_orders[rank]) {
      Require(instruction > last);
      Require(graph.instructions[static_cast<std::size_t>(instruction)].pp_rank ==
              static_cast<int>(rank));
      last = instruction;
      ++placed;
    }
  }
  Require(placed == graph.instructions.size());
  for (const perseus::schedule::OptionSet& set : graph.option_sets) {
    Require(!set.options.empty());
    for (const perseus::profile::Option& option : set.options) {
      Require(option.time >= 1 && std::isfinite(option.energy_j) && option.energy_j >= 0);
      Require(option.frequency_mhz <=
              set.options[static_cast<std::size_t>(set.baseline)].frequency_mhz);
    }
  }
  return 0;
}
