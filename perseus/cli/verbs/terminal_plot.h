// Draws the results of `perseus plan` on a terminal: the frontier with the plans.
//
// The functions have no side effects. The same data on the same kind of terminal gives the same
// text. The text has whole lines, and no line is wider than the terminal. Without Unicode, the text
// is ASCII. Without color, it has no escape codes.
#pragma once

#include <string>
#include <vector>

#include "perseus/cli/terminal/terminal.h"

namespace perseus::cli {

struct PlanOutcome;

// The time and energy of an iteration of one pipeline.
struct PlotPoint {
  double time_s = 0;
  double energy_j = 0;
  std::string name;  // ASCII only.
};

struct FrontierPlot {
  // The corners of the lower bound in order of time, without names. May be empty.
  std::vector<PlotPoint> bound;
  std::vector<PlotPoint> plans;
  PlotPoint baseline;
};

// Draws the iteration time (s) to the right and the energy (J) upward. The axes cover only the
// range of the points, so they do not begin at 0. The bound is a line (of braille dots, 2 x 4 in a
// character), a plan is a disc, and the baseline is a cross. If several symbols fall on one
// character, the character shows one of them. Names are next to their symbols if they fit.
std::string DrawFrontier(const FrontierPlot& plot, const Terminal& terminal);

// Draws the frontier and the plans of an outcome.
std::string DrawOutcome(const PlanOutcome& outcome, const Terminal& terminal);

}  // namespace perseus::cli
