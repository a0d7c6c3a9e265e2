#include "perseus/cli/verbs/terminal_plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string_view>
#include <utility>

#include "perseus/base/round_step.h"
#include "perseus/cli/verbs/plan_report.h"

namespace perseus::cli {
namespace {

constexpr int kPlotRows = 16;
// The dots of a braille character.
constexpr int kDotsAcross = 2;
constexpr int kDotsUp = 4;
constexpr char32_t kBrailleBlank = U'\u2800';
// The bits of the dots of a braille character: [from the top][from the left].
constexpr char32_t kBrailleDots[kDotsUp][kDotsAcross] = {
    {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

// If a name is closer than this many columns to a symbol, it may seem to belong to this symbol.
constexpr int kNear = 4;

// The values are the numbers of ANSI escapes.
enum class Color : std::uint8_t {
  kDefault = 0,
  kRed = 31,
  kGreen = 32,
};

// Appends a character as UTF-8. The character is in ASCII, or takes three bytes, as all symbols of
// the plot do.
void AppendUtf8(char32_t character, std::string& text) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (character < 0x80) {
    add(character);
  } else {
    add(0xE0 | character >> 12);
    add(0x80 | (character >> 6 & 0x3F));
    add(0x80 | (character & 0x3F));
  }
}

// A grid of characters. Each character is one column wide. The lines of a grid never wrap.
class CharacterGrid {
 public:
  CharacterGrid(int rows, int columns)
      : cells_(static_cast<std::size_t>(rows),
               std::vector<Cell>(static_cast<std::size_t>(columns))) {}

  // Characters outside the grid are ignored.
  void Put(int row, int column, char32_t character, Color color = Color::kDefault) {
    if (!Has(row, column)) return;
    cells_[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] = {character, color};
  }
  // Writes a text in ASCII or UTF-32.
  template <typename Text>
  requires std::ranges::range<Text>
  void Put(int row, int column, const Text& text, Color color = Color::kDefault) {
    for (const auto character : text) Put(row, column++, static_cast<char32_t>(character), color);
  }

  // Whether all `columns` cells from this position on are in the grid and blank.
  bool IsBlank(int row, int column, int columns) const {
    if (!Has(row, column) || !Has(row, column + columns - 1)) return false;
    const auto first = cells_[static_cast<std::size_t>(row)].begin() + column;
    return std::all_of(first, first + columns,
                       [](const Cell& cell) { return cell.character == U' '; });
  }

  // Returns a line for each row, without blanks at its end.
  std::string Format(const Terminal& terminal) const {
    std::string text;
    for (const std::vector<Cell>& row : cells_) {
      const auto end = std::find_if(row.rbegin(), row.rend(), [](const Cell& cell) {
                         return cell.character != U' ';
                       }).base();
      Color color = Color::kDefault;
      const auto change_to = [&](Color next) {
        if (terminal.color && next != color) {
          text += fmt::format("\x1b[{}m", static_cast<int>(next));
        }
        color = next;
      };
      for (auto cell = row.begin(); cell != end; ++cell) {
        change_to(cell->color);
        AppendUtf8(cell->character, text);
      }
      change_to(Color::kDefault);
      text += '\n';
    }
    return text;
  }

 private:
  struct Cell {
    char32_t character = U' ';
    Color color = Color::kDefault;
  };

  bool Has(int row, int column) const {
    return row >= 0 && row < std::ssize(cells_) && column >= 0 &&
           column < std::ssize(cells_.front());
  }

  std::vector<std::vector<Cell>> cells_;  // [row][column]
};

constexpr Color kPlanColor = Color::kGreen;
constexpr Color kBaselineColor = Color::kRed;

struct PlotSymbols {
  char32_t plan;
  char32_t baseline;
  char32_t both;
  char32_t axis;
  char32_t axis_mark;
  char32_t corner;
  char32_t time_axis;
  char32_t time_mark;
  std::u32string_view bound;
};
constexpr PlotSymbols kPlotUnicodeSymbols{U'●', U'✕', U'⊗', U'│', U'┤', U'└', U'─', U'┬', U"⠤⠤"};
constexpr PlotSymbols kPlotAsciiSymbols{U'o', U'X', U'#', U'|', U'+', U'+', U'-', U'+', U".."};

// An axis from a little below the smallest value to a little above the largest one, with marks at
// round numbers.
struct Axis {
  struct Tick {
    double value = 0;
    std::string label;
  };
  double low = 0;
  double high = 0;
  std::vector<Tick> ticks;

  // The axis has at least `blanks` characters between two labels. If `is_across`, the length of the
  // labels also counts.
  Axis(double least, double most, int cells, bool is_across) {
    // A smaller difference does not matter to a reader, and would need long labels.
    const double least_span = most > 0 ? most * 1e-3 : 1;
    const double lacking = std::max(0.0, least_span - (most - least));
    const double margin = std::max(most - least, least_span) * 0.03;
    low = std::max(0.0, least - lacking / 2 - margin);
    high = most + lacking / 2 + margin;
    const auto label = [&](const RoundStep& step, double count) {
      const double value = count * step.value();
      return step.exponent < -7 || value >= 1e7 ? fmt::format("{:.4g}", value) : step.Format(value);
    };
    const auto fits = [&](const RoundStep& step) {
      const auto length = static_cast<double>(label(step, std::floor(high / step.value())).size());
      return step.value() / (high - low) * cells >= (is_across ? length + 6 : 2);
    };
    RoundStep step = RoundStepFrom((high - low) / cells);
    while (!fits(step)) step = NextRoundStep(step);
    for (double count = std::ceil(low / step.value()); count * step.value() <= high; ++count) {
      ticks.push_back({count * step.value(), label(step, count)});
    }
  }

  // Returns which part of the axis contains the value, if the axis has `parts` equal parts. 0 is
  // the low end.
  int PartOf(double value, int parts) const {
    return std::clamp(static_cast<int>(std::floor((value - low) / (high - low) * parts)), 0,
                      parts - 1);
  }
};

class FrontierDrawing {
 public:
  FrontierDrawing(const FrontierPlot& plot, const Terminal& terminal)
      : plot_(plot),
        terminal_(terminal),
        symbols_(terminal.unicode ? kPlotUnicodeSymbols : kPlotAsciiSymbols),
        points_(AllPoints(plot)),
        energy_(AxisOf(&PlotPoint::energy_j, kPlotRows, false)),
        gutter_(WidthOfLabels() + 2),
        columns_(terminal.width - gutter_),
        time_(AxisOf(&PlotPoint::time_s, columns_, true)),
        grid_(kPlotRows + 4, terminal.width),
        dots_(static_cast<std::size_t>(kPlotRows),
              std::vector<char32_t>(static_cast<std::size_t>(columns_))) {}

  std::string Draw() && {
    DrawAxes();
    DrawBound();
    DrawSymbols();
    DrawName(plot_.baseline, kBaselineColor);
    for (const PlotPoint& plan : plot_.plans) DrawName(plan, kPlanColor);
    return grid_.Format(terminal_) + Legend();
  }

 private:
  struct Place {
    int row = 0;  // The row in the grid.
    int column = 0;
    bool operator==(const Place&) const = default;
  };

  static std::vector<const PlotPoint*> AllPoints(const FrontierPlot& plot) {
    std::vector<const PlotPoint*> points{&plot.baseline};
    for (const PlotPoint& point : plot.bound) points.push_back(&point);
    for (const PlotPoint& point : plot.plans) points.push_back(&point);
    return points;
  }

  Axis AxisOf(double PlotPoint::*value, int cells, bool is_across) const {
    const auto [least, most] =
        std::ranges::minmax(points_, {}, [&](const PlotPoint* point) { return point->*value; });
    return {least->*value, most->*value, cells, is_across};
  }

  int WidthOfLabels() const {
    std::size_t width = 0;
    for (const Axis::Tick& tick : energy_.ticks) width = std::max(width, tick.label.size());
    return static_cast<int>(width);
  }

  int RowOf(double energy_j) const {
    return kPlotRows - energy_.PartOf(energy_j, kPlotRows);  // Row 0 holds the title.
  }

  Place PlaceOf(const PlotPoint& point) const {
    return {RowOf(point.energy_j), gutter_ + time_.PartOf(point.time_s, columns_)};
  }

  void DrawAxes() {
    grid_.Put(0, 0, std::string_view("energy of one pipeline's iteration (J)"));
    for (int row = 1; row <= kPlotRows; ++row) grid_.Put(row, gutter_ - 1, symbols_.axis);
    for (const Axis::Tick& tick : energy_.ticks) {
      const int row = RowOf(tick.value);
      const auto width = static_cast<int>(tick.label.size());
      grid_.Put(row, gutter_ - 2 - width, tick.label);
      grid_.Put(row, gutter_ - 1, symbols_.axis_mark);
    }
    constexpr int kAxisRow = kPlotRows + 1;
    grid_.Put(kAxisRow, gutter_ - 1, symbols_.corner);
    for (int i = 0; i < columns_; ++i) grid_.Put(kAxisRow, gutter_ + i, symbols_.time_axis);
    for (const Axis::Tick& tick : time_.ticks) {
      const int at = gutter_ + time_.PartOf(tick.value, columns_);
      const auto width = static_cast<int>(tick.label.size());
      grid_.Put(kAxisRow, at, symbols_.time_mark);
      grid_.Put(kAxisRow + 1, std::clamp(at - width / 2, 0, terminal_.width - width), tick.label);
    }
    constexpr std::string_view kTitle = "iteration time (s)";
    grid_.Put(kAxisRow + 2, terminal_.width - static_cast<int>(kTitle.size()), kTitle);
  }

  // Draws a straight line from each corner of the bound to the next corner, dot by dot.
  void DrawBound() {
    int last_across = 0;
    int last_up = 0;
    for (const PlotPoint& corner : plot_.bound) {
      const int across = time_.PartOf(corner.time_s, columns_ * kDotsAcross);
      const int up = energy_.PartOf(corner.energy_j, kPlotRows * kDotsUp);
      if (&corner == &plot_.bound.front()) {
        last_across = across;
        last_up = up;
      }
      const int steps = std::max({1, std::abs(across - last_across), std::abs(up - last_up)});
      for (int i = 0; i <= steps; ++i) {
        const double part = static_cast<double>(i) / steps;
        DrawDot(static_cast<int>(std::lround(std::lerp(last_across, across, part))),
                static_cast<int>(std::lround(std::lerp(last_up, up, part))));
      }
      last_across = across;
      last_up = up;
    }
    for (int row = 0; row < kPlotRows; ++row) {
      for (int column = 0; column < columns_; ++column) {
        const char32_t dots =
            dots_[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)];
        if (dots == 0) continue;
        grid_.Put(row + 1, gutter_ + column,
                  terminal_.unicode ? kBrailleBlank + dots : AsciiOf(dots));
      }
    }
  }

  void DrawDot(int across, int up) {
    const int from_top = kPlotRows * kDotsUp - 1 - up;
    dots_[static_cast<std::size_t>(from_top / kDotsUp)]
         [static_cast<std::size_t>(across / kDotsAcross)] |=
        kBrailleDots[from_top % kDotsUp][across % kDotsAcross];
  }

  // Returns the ASCII character for braille dots. It depends on which halves (upper, lower) have
  // dots.
  static char32_t AsciiOf(char32_t dots) {
    constexpr char32_t kUpper =
        kBrailleDots[0][0] | kBrailleDots[0][1] | kBrailleDots[1][0] | kBrailleDots[1][1];
    if ((dots & kUpper) == 0) return U'.';
    return (dots & ~kUpper) == 0 ? U'\'' : U':';
  }

  void DrawSymbols() {
    for (const PlotPoint& plan : plot_.plans) {
      const Place place = PlaceOf(plan);
      grid_.Put(place.row, place.column, symbols_.plan, kPlanColor);
    }
    const Place baseline = PlaceOf(plot_.baseline);
    grid_.Put(baseline.row, baseline.column, PlansAt(baseline) ? symbols_.both : symbols_.baseline,
              kBaselineColor);
  }

  bool PlansAt(const Place& place) const {
    return std::ranges::any_of(plot_.plans,
                               [&](const PlotPoint& plan) { return PlaceOf(plan) == place; });
  }

  // Writes the name at the first free place. Tries the places to the right and above first, where a
  // falling frontier leaves space, and then the places to the left and below.
  void DrawName(const PlotPoint& point, Color color) {
    const auto width = static_cast<int>(point.name.size());
    const Place at = PlaceOf(point);
    const Place starts[] = {{at.row, at.column + 2},         {at.row - 1, at.column + 1},
                            {at.row, at.column - 1 - width}, {at.row + 1, at.column - width},
                            {at.row - 1, at.column - width}, {at.row - 2, at.column - width}};
    for (const Place& start : starts) {
      if (!HasRoom(start, width) || IsBesideAnother(start, width, at)) continue;
      grid_.Put(start.row, start.column, point.name, color);
      return;
    }
  }

  // Whether a name of `width` characters fits at `start`, with a blank at both ends.
  bool HasRoom(const Place& start, int width) const {
    const int end = start.column + width;
    return start.row >= 1 && start.row <= kPlotRows && start.column > gutter_ &&
           end <= terminal_.width &&
           grid_.IsBlank(start.row, start.column - 1,
                         std::min(end + 1, terminal_.width) - start.column + 1);
  }

  // Whether a reader could think that the name belongs to another point than the point at `own`.
  bool IsBesideAnother(const Place& start, int width, const Place& own) const {
    const auto is_near = [&](const PlotPoint& point) {
      const Place place = PlaceOf(point);
      return !(place == own) && place.row == start.row && place.column >= start.column - kNear &&
             place.column < start.column + width + kNear;
    };
    return is_near(plot_.baseline) || std::ranges::any_of(plot_.plans, is_near);
  }

  // Returns the legend, with as many items on a line as fit.
  std::string Legend() const {
    CharacterGrid grid(3, terminal_.width);
    int row = 0;
    int column = 0;
    const auto add = [&](std::u32string_view symbol, std::string_view text, Color color) {
      const auto width = static_cast<int>(symbol.size() + 1 + text.size());
      if (column > 0 && column + width > terminal_.width) {
        ++row;
        column = 0;
      }
      grid.Put(row, column, symbol, color);
      grid.Put(row, column + static_cast<int>(symbol.size()) + 1, text);
      column += width + 3;
    };
    const Place baseline = PlaceOf(plot_.baseline);
    const bool has_both = PlansAt(baseline);
    if (!plot_.bound.empty()) add(symbols_.bound, "bound: no plan is below", Color::kDefault);
    if (std::ranges::any_of(plot_.plans,
                            [&](const PlotPoint& plan) { return !(PlaceOf(plan) == baseline); })) {
      add({&symbols_.plan, 1}, "plan", kPlanColor);
    }
    add({has_both ? &symbols_.both : &symbols_.baseline, 1},
        (has_both ? "plan and " : "") + plot_.baseline.name, kBaselineColor);
    const std::string text = grid.Format(terminal_);
    return text.substr(0, text.find_last_not_of('\n') + 1) + '\n';
  }

  const FrontierPlot& plot_;
  const Terminal& terminal_;
  const PlotSymbols& symbols_;
  std::vector<const PlotPoint*> points_;
  Axis energy_;
  int gutter_;   // The columns to the left of the plot: labels, a blank and the axis.
  int columns_;  // Columns of the plot itself.
  Axis time_;
  CharacterGrid grid_;
  std::vector<std::vector<char32_t>> dots_;  // [row][column]: bits of braille dots.
};

PlotPoint PointOf(const plan::Evaluation& evaluation, std::string name) {
  return {ToSeconds(evaluation.time), evaluation.energy_j, std::move(name)};
}

constexpr const char* kBaselineName = "maximum frequency";

}  // namespace

std::string DrawFrontier(const FrontierPlot& plot, const Terminal& terminal) {
  return FrontierDrawing(plot, terminal).Draw();
}

std::string DrawOutcome(const PlanOutcome& outcome, const Terminal& terminal) {
  const plan::Planner& planner = outcome.planner;
  FrontierPlot plot;
  plot.baseline = PointOf(planner.baseline(), kBaselineName);
  Nanoseconds slowest = planner.baseline().time;
  for (const recipe::PlannedTarget& planned : outcome.targets) {
    if (planned.is_stop()) continue;
    plot.plans.push_back(PointOf(planned.plan.evaluation, planned.plan.target));
    slowest = std::max(slowest, planned.plan.evaluation.time);
  }
  if (outcome.frontier) {
    // Beyond the time of least energy, the bound is flat, because a plan may end earlier.
    const std::vector<plan::FrontierPoint>& points = outcome.frontier->points;
    for (std::size_t i = 0; i <= outcome.frontier->least_energy; ++i) {
      plot.bound.push_back({ToSeconds(points[i].time), points[i].bound_j, {}});
    }
    const PlotPoint least = plot.bound.back();
    if (ToSeconds(slowest) > least.time_s) {
      plot.bound.push_back({ToSeconds(slowest), least.energy_j, {}});
    }
  }
  return DrawFrontier(plot, terminal);
}

}  // namespace perseus::cli
