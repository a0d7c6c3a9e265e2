#include "perseus/cli/flags/figure_flags.h"

#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"
#include "perseus/base/number.h"
#include "perseus/cli/flags/flag_checks.h"

namespace perseus::cli {
namespace {

// Accepts a length such as 84mm, 8.4cm or 3.3in. Replaces the text by millimeters.
CLI::Validator PaperWidth() {
  const auto check = [](std::string& text) -> std::string {
    constexpr std::pair<std::string_view, double> kUnits[] = {{"mm", 1}, {"cm", 10}, {"in", 25.4}};
    for (const auto& [unit, mm] : kUnits) {
      if (!text.ends_with(unit)) continue;
      const auto number = ParseNumber<double>(text.substr(0, text.size() - unit.size()));
      if (!number || !(*number * mm >= 50 && *number * mm <= 1000)) break;
      text = fmt::format("{}", *number * mm);
      return {};
    }
    return fmt::format("{} is not a width (expected 50mm to 1000mm, such as 84mm or 3.3in)", text);
  };
  return CLI::Validator(check, "");
}

Result<report::FigureKind> KindOf(const FigureFlag& figure) {
  if (figure.kind.empty()) return report::FigureOf(figure.path);
  if (figure.path.ends_with(".svg")) return report::FigureNamed(figure.kind).value();
  return Fail("{} is not an SVG (use a name such as {}.svg)", Excerpt(figure.path), figure.kind);
}

}  // namespace

std::vector<FigureFlag> FiguresOf(const FigureFlags& flags) {
  std::vector<FigureFlag> figures;
  for (const std::string& flag : flags.figures) {
    // A path may contain "=".
    const std::size_t equals = flag.find('=');
    const std::string kind = flag.substr(0, equals);
    if (equals == flag.npos || !report::FigureNamed(kind)) {
      figures.push_back({.path = flag, .kind = ""});
    } else {
      figures.push_back({.path = flag.substr(equals + 1), .kind = kind});
    }
  }
  return figures;
}

void AddFigureFlags(CLI::App& verb, FigureFlags& flags) {
  const FlagAdder add(verb, "Figures");
  add.Repeatable("--figure", flags.figures, "[KIND=]FILE",
                 "Write a figure: frontier, timeline or profile (plan without --max-switches N or "
                 "--per-instruction, or with --switch-tradeoff: also switches; of a searched "
                 "schedule: also memory, schedules and orders), as .svg; KIND=FILE if the name of "
                 "the file does not say which; may be repeated");
  add("--figure-width", flags.width_mm, "WIDTH",
      "The width of figures on paper, such as 84mm, with letters of 7 points", PaperWidth());
  add.Repeatable("--overlay", flags.overlays, "[NAME=]FILE",
                 "Also draw another frontier (CSV with time and energy); may be repeated");
}

Result<void> CheckFigures(const FigureFlags& flags, const FigureData& data) {
  for (const FigureFlag& figure : FiguresOf(flags)) {
    const std::string& path = figure.path;
    PERSEUS_ASSIGN_OR_RETURN(const auto kind, KindOf(figure));
    if (kind == report::FigureKind::kSwitches && !data.has_switches) {
      return Fail(InFile(path),
                  "this figure needs limits of clock changes that were compared (use perseus plan "
                  "without --max-switches N or --per-instruction, or add --switch-tradeoff)");
    }
    if (kind == report::FigureKind::kMemory && !data.has_schedules) {
      return Fail(
          InFile(path),
          "this figure needs schedules that were searched for (use perseus schedule search or "
          "perseus plan --schedule auto, or frontier, timeline or profile here)");
    }
    const bool is_of_orders =
        kind == report::FigureKind::kOrders || kind == report::FigureKind::kSchedules;
    if (is_of_orders && !data.has_schedules && !data.has_orders) {
      return Fail(
          InFile(path),
          "this figure needs several schedules (use perseus compare with several --schedule, "
          "perseus schedule search, or perseus plan --schedule auto)");
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
  const std::vector<FigureFlag> figures = FiguresOf(flags);
  for (const FigureFlag& figure : figures) {
    PERSEUS_ASSIGN_OR_RETURN(const auto kind, KindOf(figure));
    PERSEUS_ASSIGN_OR_RETURN(drawn.emplace_back(), report::DrawFigure(kind, data, flags.width_mm));
  }
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    PERSEUS_RETURN_IF_ERROR(WriteFileAtomically(figures[i].path, drawn[i]));
  }
  return {};
}

Result<void> AddFigures(const FigureFlags& flags, const std::string& data,
                        const std::string& directory) {
  std::optional<Error> first;
  for (const std::string& path : flags.figures) {
    const auto added =
        WriteFigures({.figures = {path}, .overlays = {}, .width_mm = flags.width_mm}, data);
    if (!added && !first) first = added.error();
  }
  if (!first) return {};
  if (!directory.empty()) {
    first->remedy += fmt::format("; all other results are in {}", directory);
  }
  return tl::unexpected<Error>(*std::move(first));
}

}  // namespace perseus::cli
