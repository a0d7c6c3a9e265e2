// Checks that no JSON makes ParsePlan crash or accept a file that is not a plan, and that
// FormatPlan loses nothing. If a plan parses, it either fits a profile or is refused with an error
// of one line.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "fuzz/profile_for.h"
#include "fuzz/require.h"
#include "perseus/planning/plan_file/plan_file.h"

using perseus::fuzz::Require;
using perseus::fuzz::RequireOneLine;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto plan = perseus::plan_file::ParsePlan(text, "fuzz");
  if (!plan) {
    RequireOneLine(plan.error());
    return 0;
  }
  Require(plan->time > 0 && plan->lower_bound_j > 0 && std::isfinite(plan->energy_j));
  Require(!plan->pp_ranks.empty());
  const std::string written = perseus::plan_file::FormatPlan(*plan);
  const auto again = perseus::plan_file::ParsePlan(written, "again");
  Require(again.has_value());
  Require(perseus::plan_file::FormatPlan(*again) == written);
  if (plan->job.IsGeneralGraph()) return 0;

  // The reader may accept a schedule that is not complete or that deadlocks.
  const auto graph = perseus::schedule::BuildInstructionGraph(
      plan->job.schedule, perseus::fuzz::ProfileFor(plan->job.schedule, plan->other_knob_names),
      plan->job.model);
  if (!graph) {
    RequireOneLine(graph.error());
    return 0;
  }
  const auto options = perseus::plan_file::FindOptions(*plan, *graph, "fuzz");
  if (!options) {
    RequireOneLine(options.error());
    return 0;
  }
  Require(options->size() == graph->instructions.size());
  return 0;
}
