// Checks that no text makes ParseSchedule crash or accept a schedule that is not complete, and that
// FormatSchedule loses nothing.
#include <cstdint>
#include <string_view>

#include "fuzz/profile_for.h"
#include "fuzz/require.h"
#include "perseus/planning/schedule/instruction_graph.h"
#include "perseus/planning/schedule/schedule.h"

using perseus::fuzz::Require;
using perseus::fuzz::RequireOneLine;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto schedule = perseus::schedule::ParseSchedule(text, "fuzz");
  if (!schedule) {
    RequireOneLine(schedule.error());
    return 0;
  }
  const std::string formatted = perseus::schedule::FormatSchedule(*schedule);
  const auto again = perseus::schedule::ParseSchedule(formatted, "fuzz");
  Require(again.has_value());
  Require(again->pp_ranks == schedule->pp_ranks);
  Require(again->microbatches == schedule->microbatches);
  Require(again->pp_rank_of_stage == schedule->pp_rank_of_stage);
  Require(again->chunk_of_stage == schedule->chunk_of_stage);
  Require(perseus::schedule::FormatSchedule(*again) == formatted);

  // A schedule that parses is complete, so the graph can only refuse its order.
  const auto graph = perseus::schedule::BuildInstructionGraph(
      *schedule, perseus::fuzz::ProfileFor(*schedule), perseus::schedule::PipelineModel());
  if (!graph) {
    Require(graph.error().Message().find("deadlocks: ") != std::string::npos);
    return 0;
  }
  std::size_t instructions = 0;
  for (const auto& rank : schedule->pp_ranks) instructions += rank.size();
  Require(graph->instructions.size() == instructions);
  for (const auto& dependency : graph->dependencies) Require(dependency.from < dependency.to);
  return 0;
}
