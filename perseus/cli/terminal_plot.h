// Pictures of what `perseus plan` found, for a terminal: the iteration time–energy frontier with
// the plans on it, and what every rank does during the iteration, before and after.
//
// Every function is pure: the same data on the same kind of terminal gives the same text, of whole
// lines, none wider than the terminal. Without Unicode the text is ASCII; without colour it has no
// escapes. Whatever comes from users' files is made fit to be shown (terminal.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "perseus/cli/terminal.h"
#include "perseus/planning/report/trace.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::cli {

struct PlanOutcome;

// Of an iteration of one pipeline.
struct PlotPoint {
  double time_s = 0;
  double energy_j = 0;
  std::string name;
};

struct FrontierPlot {
  std::vector<PlotPoint> bound;  // Its corners in order of time, without names; none if not known.
  std::vector<PlotPoint> plans;
  PlotPoint baseline;
};

// Iteration time across (s) against energy up (J; both with a prefix where numbers would get long),
// the axes just as long as what is drawn: neither begins at 0. The bound is a line (of braille
// dots, two by four a character), a plan a disc, the baseline a cross; what falls on the same
// character is drawn once. Names stand beside their symbols where there is room.
std::string DrawFrontier(const FrontierPlot& plot, const Terminal& terminal);

// The timelines one below the other, on the same scale, a line for each rank. A character is what
// the rank does for most of its time: the letter of an instruction that begins there, a shade for
// the clock of one that goes on (the higher, the denser, in quarters of the measured clocks), or a
// dot for a rank that waits. Where instructions are hardly longer than a character, letters stand
// only where another kind begins. With colour, the colour tells the kinds apart, and all is shade.
// Of more than 16 ranks, the first and the last eight are drawn and the others counted.
std::string DrawTimelines(const schedule::InstructionGraph& graph,
                          std::span<const report::Timeline> timelines, const Terminal& terminal);

// Both: the frontier of the outcome, and the baseline above the plan with no slowdown.
std::string DrawOutcome(const PlanOutcome& outcome, const Terminal& terminal);

}  // namespace perseus::cli
