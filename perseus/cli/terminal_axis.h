// Parts of plots for a terminal: axes with round numbers, and legends.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/cli/terminal.h"

namespace perseus::cli {

enum class Quantity { kTime, kEnergy };  // Seconds, joules.
enum class Direction { kAcross, kUp };

struct AxisSpec {
  Quantity quantity = Quantity::kTime;
  Direction direction = Direction::kAcross;
  double low = 0;
  double high = 0;
  int cells = 0;  // The length of the axis in characters.
};

class Axis {
 public:
  // An axis from exactly low to exactly high. Requires 0 <= low < high.
  explicit Axis(const AxisSpec& spec);
  // An axis that is a little longer at both ends, or much longer if low and high are nearly equal.
  static Axis Around(AxisSpec spec);

  // A value at a round number. `label` is this number in the unit of the axis.
  struct Tick {
    double value = 0;
    std::string label;
  };
  const std::vector<Tick>& ticks() const { return ticks_; }
  // Such as "s", "ms" or "kJ".
  std::string UnitName(const Terminal& terminal) const;
  // The index of the part with the value, if the axis has `parts` equal parts. 0 is the low end.
  int PartOf(double value, int parts) const;

 private:
  void ChooseTicks(Direction direction, int cells);

  double low_;
  double high_;
  std::string_view prefix_;  // "", "m", "k"; "u" for micro.
  std::string_view unit_;
  double scale_ = 1;  // Of the prefix.
  std::vector<Tick> ticks_;
};

// Draws an axis of time on two rows of the grid: the line with its marks, and below it the labels.
// `column` is the column of its first character.
void DrawTimeAxis(const Axis& axis, CharacterGrid& grid, int row, int column, int cells,
                  const Terminal& terminal);

struct LegendItem {
  std::u32string symbol;
  std::string text;
  Color color = Color::kDefault;  // Of the symbol.
};
// Formats a legend, with as many items on a line as fit.
std::string FormatLegend(const std::vector<LegendItem>& items, const Terminal& terminal);

}  // namespace perseus::cli
