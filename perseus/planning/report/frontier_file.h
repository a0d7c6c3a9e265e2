// Frontiers as files: our own frontier.csv, the CSV of other tools, and what is inside a report.
//
//   time,energy_bound,marginal_watts        frontier.csv (docs/formats.md)
//   time,energy                             what the published planner's results are kept as
//
// Times in s, energies in J of one iteration of one pipeline; any order; further columns are
// ignored. A report (HTML) is recognised by its content: its frontier is taken out of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::report {

// A frontier as it was read or computed: points by time, fastest first.
struct FrontierCurve {
  std::string name;                         // For the legend.
  std::vector<plan::FrontierPoint> points;  // price_w is 0 where a file does not say.
};

// `name` stands for the file in messages ("name:line: cause (remedy)", kInput) and in the legend.
Result<FrontierCurve> ParseFrontier(std::string_view text, std::string_view name);

// frontier.csv: every breakpoint, in seconds, joules and watts.
std::string FormatFrontier(const plan::Frontier& frontier);

}  // namespace perseus::report
