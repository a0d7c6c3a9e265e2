// --figure and --overlay, which `plan` and `report` share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/report/figure.h"
#include "perseus/report/frontier_file.h"

namespace perseus::cli {

struct FigureFlags {
  std::vector<std::string> figures;   // Paths.
  std::vector<std::string> overlays;  // Paths, or NAME=PATH.
};

void AddFigureFlags(CLI::App& verb, FigureFlags& flags);

// Whether the names say what to draw, before anything is computed.
Result<void> CheckFigures(const FigureFlags& flags);

// The frontiers to compare with, read.
Result<std::vector<FrontierCurve>> LoadOverlays(const FigureFlags& flags);

// Draws all figures of the report's data and then writes them: all of them or, if one cannot be
// drawn, none. Requires CheckFigures.
Result<void> WriteFigures(const FigureFlags& flags, const std::string& data);

}  // namespace perseus::cli
