// Reads frontiers from our own frontier.csv and from CSV files of other tools. Writes frontier.csv.
//
//   time,energy_bound,marginal_watts,energy_error    the header of frontier.csv (docs/formats.md)
//   time,energy                                      that of the published planner's results
//
// Times are in s. Energies are in J, of one iteration of one pipeline. Rows may be in any order,
// and further columns are ignored.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::report {

// A frontier from a file or from the planner.
struct FrontierCurve {
  std::string name;                         // For the legend.
  std::vector<plan::FrontierPoint> points;  // Fastest first; price_w is 0 if the file has none.
  double error = 0;  // The greatest error of `points`, as a fraction of the energy. 0: exact.
};

// Parses a frontier. `name` is the name of the file in messages and in the legend. Errors (kInput)
// are one line, "name:line: cause (remedy)".
Result<FrontierCurve> ParseFrontier(std::string_view text, std::string_view name);

// Writes frontier.csv: every point, in seconds, joules and watts.
std::string FormatFrontier(const plan::Frontier& frontier);

}  // namespace perseus::report
