// Static figures, for papers: the charts of the report page without the page.
//
// They are drawn by the same code (web/src/draw_figure.tsx), which needs no browser: an embedded
// engine (Duktape) runs it and gets SVG back as text. So a chart is written once, and a figure
// needs nothing installed. Rivals: a second set of charts in C++ (twice the code, and two pictures
// of the same numbers that differ), node as a process (not on a cluster's login nodes). Reading
// plans and drawing one takes 0.1 to 0.2 s for 8 stages x 96 microbatches (docs/benchmarks.md).
#pragma once

#include <string>
#include <string_view>

#include "perseus/base/result.h"

namespace perseus::report {

enum class FigureKind {
  kFrontier,   // The bound, the plans, the baseline, other frontiers.
  kTimeline,   // An iteration at maximum frequency above the chosen plan's.
  kProfile,    // Measured options, hull and fit of each stage and kind.
  kEmulation,  // Time and power of an emulated job over its iterations.
};

enum class FigureFormat { kSvg, kPng, kPdf };

struct Figure {
  FigureKind kind = FigureKind::kFrontier;
  FigureFormat format = FigureFormat::kSvg;
};

// From a file's name: "out/frontier.svg", "bloom-timeline.pdf". Fails (kInput) with the names that
// there are.
Result<Figure> FigureOf(std::string_view file_name);

// Whether DrawFigure can do it here. Fails (kSystem) where this build has no figures, or where
// rsvg-convert is not installed and the format needs it.
Result<void> CheckDrawable(const Figure& figure);

// The figure's file. `data` is what FormatReportData makes; for an
// emulation {"format": "perseus-emulation", "version": 1, ...} (web/src/charts/emulation.tsx). SVG
// becomes PNG (two pixels a unit) or PDF by rsvg-convert, a program of librsvg. Fails (kSystem) as
// CheckDrawable does, or where rsvg-convert fails.
Result<std::string> DrawFigure(const Figure& figure, const std::string& data);

}  // namespace perseus::report
