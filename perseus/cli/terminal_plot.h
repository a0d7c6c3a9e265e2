// Draws the results of `perseus plan` on a terminal: the frontier with the plans, and timelines of
// the pp_ranks at maximum frequency and with a plan.
//
// Every function is pure: the same data on the same kind of terminal gives the same text. The text
// has whole lines, and none is wider than the terminal. Without Unicode, the text is ASCII. Without
// color, it has no escapes. FitColumns (terminal.h) cleans all names from users' files.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "perseus/cli/terminal.h"
#include "perseus/planning/report/trace.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::cli {

struct PlanOutcome;

// The time and energy of an iteration of one pipeline.
struct PlotPoint {
  double time_s = 0;
  double energy_j = 0;
  std::string name;
};

struct FrontierPlot {
  std::vector<PlotPoint> bound;  // Its corners in order of time, without names; may be empty.
  std::vector<PlotPoint> plans;
  PlotPoint baseline;
};

// Draws the iteration time (s) to the right and the energy (J) upward. Units get a prefix if the
// numbers would be long. The axes only cover the points, so they do not begin at 0. The bound is a
// line (of braille dots, 2 x 4 in a character), a plan is a disc, and the baseline is a cross. If
// several symbols fall on one character, it shows one of them. Names are next to their symbols if
// they fit.
std::string DrawFrontier(const FrontierPlot& plot, const Terminal& terminal);

// Draws the timelines one below the other, on the same scale, with a line for each pp_rank. A
// character shows what the pp_rank does for most of the time of this character: the letter of an
// instruction that begins, a shade for the clock of an instruction that continues (denser for
// higher clocks, in quarters of the range of clocks), or a dot for waiting. If most instructions
// are hardly longer than a character, a letter appears only where another kind begins. With color,
// the color shows the kind, and no letters appear. Of more than 16 pp_ranks, the drawing has only
// the first and the last eight.
std::string DrawTimelines(const schedule::InstructionGraph& graph,
                          std::span<const report::Timeline> timelines, const Terminal& terminal);

// Draws both: the frontier, and the timelines of the baseline and of the plan with no slowdown.
std::string DrawOutcome(const PlanOutcome& outcome, const Terminal& terminal);

}  // namespace perseus::cli
