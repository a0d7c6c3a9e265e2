// The flags --figure and --overlay of `plan`, `report` and `compare`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/report/figure.h"
#include "perseus/planning/report/frontier_file.h"

namespace perseus::cli {

struct FigureFlags {
  std::vector<std::string> figures;   // Each is PATH or KIND=PATH.
  std::vector<std::string> overlays;  // Each is PATH or NAME=PATH.
  double width_mm = 0;                // The width on paper. 0: the size is in pixels.
};

void AddFigureFlags(CLI::App& verb, FigureFlags& flags);

// Says which data exists for figures, in addition to a frontier, a timeline and a profile.
struct FigureData {
  bool has_switches = false;   // A comparison of limits of clock changes.
  bool has_schedules = false;  // A search for schedules: the energy that more memory saves.
  bool has_orders = false;     // Timelines of several schedules. A search has them, too.
};

struct FigureFlag {
  std::string path;
  std::string kind;  // Empty if the flag has no KIND=.
};

std::vector<FigureFlag> FiguresOf(const FigureFlags& flags);

// Checks that the file names are names of figures, and that this build can draw them. A verb calls
// this before it computes anything.
Result<void> CheckFigures(const FigureFlags& flags, const FigureData& data = {});

struct OverlayFlag {
  std::string path;
  std::string name;  // Empty if the flag has no NAME=.
};

std::vector<OverlayFlag> OverlaysOf(const FigureFlags& flags);

// Reads the frontiers of --overlay.
Result<std::vector<report::FrontierCurve>> LoadOverlays(const FigureFlags& flags);

// Draws all figures, and then writes their files. `data` is the data of the report. Requires that
// CheckFigures succeeded.
Result<void> WriteFigures(const FigureFlags& flags, const std::string& data);

// Draws and writes as many figures as possible. The other results of the run are already in
// `directory`. (If it is empty, they are not saved.) If a figure fails, the error says that the
// other results are complete.
Result<void> AddFigures(const FigureFlags& flags, const std::string& data,
                        const std::string& directory);

}  // namespace perseus::cli
