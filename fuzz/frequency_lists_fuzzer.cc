// Checks that no text makes ParseFrequencyLists crash or accept a number out of range, and that
// accepted lists either fit a job or are refused in one line.
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "perseus/planning/plan_file/frequency_lists.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace {

using perseus::fuzz::Require;
using perseus::fuzz::RequireOneLine;

perseus::schedule::InstructionGraph MakeGraph() {
  perseus::synthetic::SyntheticProfileSpec spec;
  spec.stages = 2;
  const auto schedule =
      perseus::schedule::GenerateSchedule({.name = "1f1b", .pp_ranks = 2, .microbatches = 2});
  return *perseus::schedule::BuildInstructionGraph(
      *schedule, *perseus::synthetic::SynthesizeProfile(spec), {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const perseus::schedule::InstructionGraph graph = MakeGraph();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto lists = perseus::plan_file::ParseFrequencyLists(text, "fuzz");
  if (!lists) {
    RequireOneLine(lists.error());
    return 0;
  }
  Require(!lists->pp_ranks.empty());
  for (const auto& rank : lists->pp_ranks) {
    Require(!rank.empty());
    for (const auto& entry : rank) {
      Require(entry.frequency_mhz > 0 && entry.frequency_mhz <= 1e6 && entry.line >= 1);
    }
  }
  const auto options = perseus::plan_file::FindOptions(*lists, graph, "fuzz");
  if (!options) {
    RequireOneLine(options.error());
    return 0;
  }
  // Lists that fit the job are the same after another round of writing and reading.
  const auto written =
      perseus::plan_file::FormatFrequencyLists(graph, {.options = *options, .target = "fuzzed"});
  Require(written.has_value());
  const auto again = perseus::plan_file::ParseFrequencyLists(*written, "again");
  Require(again.has_value());
  const auto found = perseus::plan_file::FindOptions(*again, graph, "again");
  Require(found && *found == *options);
  return 0;
}
