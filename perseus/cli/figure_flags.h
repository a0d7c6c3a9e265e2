// --figure and --overlay, which `plan` and `report` share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/report/figure.h"
#include "perseus/planning/report/frontier_file.h"

namespace perseus::cli {

struct FigureFlags {
  std::vector<std::string> figures;   // Paths.
  std::vector<std::string> overlays;  // Paths, or NAME=PATH.
};

void AddFigureFlags(CLI::App& verb, FigureFlags& flags);

// Whether the names say what to draw, and it can be drawn here, before anything is computed.
Result<void> CheckFigures(const FigureFlags& flags);

// The frontiers to compare with, read.
Result<std::vector<report::FrontierCurve>> LoadOverlays(const FigureFlags& flags);

// The contents of each figure's file, from the report's data. Requires CheckFigures.
Result<std::vector<std::string>> DrawFigures(const FigureFlags& flags, const std::string& data);

// Writes what was drawn.
Result<void> WriteFigures(const FigureFlags& flags, const std::vector<std::string>& drawn);

}  // namespace perseus::cli
