// Draws static figures for papers: the charts of the report page without the page.
//
// The code of the report page draws the figures (web/src/draw_figure.tsx). An embedded JavaScript
// engine (Duktape) runs this code and returns SVG as text. So each chart has only one
// implementation, and a user need not install anything. For 8 stages x 96 microbatches, reading the
// plans and drawing a figure take 0.1 to 0.2 s (docs/benchmarks.md).
//
// Rejected: a second set of charts in C++ (twice the code, and two different pictures of the same
// numbers), and a node process (login nodes of clusters do not have node).
//
// Thread safety: the functions share no state, so several threads may call them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/result.h"

namespace perseus::report {

enum class FigureKind {
  kFrontier,   // The lower bound, the plans, the baseline, and other frontiers.
  kTimeline,   // An iteration at maximum frequency, and below it the iteration of the chosen plan.
  kProfile,    // The measured options, the hull and the fit of each stage and kind.
  kSwitches,   // What limits of clock changes save, and the most that they can save.
  kMemory,     // What schedules save against the memory that they need, and the bound.
  kOrders,     // An iteration at maximum frequency, with the usual and with the chosen schedule.
  kSchedules,  // The same two iterations with their plans.
};

// Returns the figure that a file name means: "out/frontier.svg" or "bloom-timeline.svg". Fails
// (kInput) for other names; the message has the possible names.
Result<FigureKind> FigureOf(std::string_view file_name);

// Returns the figure with this name: "frontier", "timeline" and so on.
std::optional<FigureKind> FigureNamed(std::string_view name);

// Fails (kSystem) if this build has no figures.
Result<void> CheckDrawable();

// Returns the contents of the file. `data` comes from FormatReportData. With a width, the figure is
// so wide on paper, and its letters are about 7 points high. Without a width (0), the figure is
// 1000 pixels wide. Fails (kSystem) as CheckDrawable does, or if the script fails.
Result<std::string> DrawFigure(FigureKind kind, const std::string& data, double width_mm = 0);

}  // namespace perseus::report
