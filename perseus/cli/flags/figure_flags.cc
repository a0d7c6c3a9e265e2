#include "perseus/cli/flags/figure_flags.h"

#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/cli/flags/flag_checks.h"

namespace perseus::cli {

void AddFigureFlags(CLI::App& verb, FigureFlags& flags) {
  const FlagAdder add(verb, "Figures");
  add.Repeatable("--figure", flags.figures, "FILE",
                 "Write a figure: frontier, timeline or profile (plan without --max-switches N or "
                 "--per-instruction, or with --switch-tradeoff: also switches; of a searched "
                 "schedule: also memory, schedules and orders), as .svg; may be repeated");
  add.Repeatable("--overlay", flags.overlays, "[NAME=]FILE",
                 "Also draw another frontier (CSV with time and energy); may be repeated");
}

Result<void> CheckFigures(const FigureFlags& flags, const FigureData& data) {
  for (const std::string& path : flags.figures) {
    PERSEUS_ASSIGN_OR_RETURN(const auto kind, report::FigureOf(path));
    if (kind == report::FigureKind::kSwitches && !data.has_switches) {
      return Fail(InFile(path),
                  "this figure needs limits of clock changes that were compared (use perseus plan "
                  "without --max-switches N or --per-instruction, or add --switch-tradeoff)");
    }
    const bool is_of_schedules = kind == report::FigureKind::kMemory ||
                                 kind == report::FigureKind::kOrders ||
                                 kind == report::FigureKind::kSchedules;
    if (is_of_schedules && !data.has_schedules) {
      return Fail(
          InFile(path),
          "this figure needs schedules that were searched for (use perseus schedule search or "
          "perseus plan --schedule auto, or frontier, timeline or profile here)");
    }
    if (auto able = report::CheckDrawable(); !able) return able;
  }
  return {};
}

std::vector<OverlayFlag> OverlaysOf(const FigureFlags& flags) {
  std::vector<OverlayFlag> overlays;
  for (const std::string& flag : flags.overlays) {
    // A path may contain "=".
    std::error_code error;
    const std::size_t equals = std::filesystem::exists(flag, error) ? flag.npos : flag.find('=');
    if (equals == flag.npos) {
      overlays.push_back({.path = flag, .name = ""});
    } else {
      overlays.push_back({.path = flag.substr(equals + 1), .name = flag.substr(0, equals)});
    }
  }
  return overlays;
}

Result<std::vector<report::FrontierCurve>> LoadOverlays(const FigureFlags& flags) {
  std::vector<report::FrontierCurve> overlays;
  for (const OverlayFlag& overlay : OverlaysOf(flags)) {
    PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(overlay.path));
    PERSEUS_ASSIGN_OR_RETURN(auto curve, report::ParseFrontier(text, overlay.path));
    if (!overlay.name.empty()) curve.name = overlay.name;
    overlays.push_back(std::move(curve));
  }
  return overlays;
}

Result<void> WriteFigures(const FigureFlags& flags, const std::string& data) {
  std::vector<std::string> drawn;
  for (const std::string& path : flags.figures) {
    PERSEUS_ASSIGN_OR_RETURN(drawn.emplace_back(),
                             report::DrawFigure(report::FigureOf(path).value(), data));
  }
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    PERSEUS_RETURN_IF_ERROR(WriteFileAtomically(flags.figures[i], drawn[i]));
  }
  return {};
}

Result<void> AddFigures(const FigureFlags& flags, const std::string& data,
                        const std::string& directory) {
  std::optional<Error> first;
  for (const std::string& path : flags.figures) {
    const auto added = WriteFigures({.figures = {path}, .overlays = {}}, data);
    if (!added && !first) first = added.error();
  }
  if (!first) return {};
  if (!directory.empty()) {
    first->remedy += fmt::format("; all other results are in {}", directory);
  }
  return tl::unexpected<Error>(*std::move(first));
}

}  // namespace perseus::cli
