// What the plots for a terminal share: axes with round numbers, and legends.
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
  int cells = 0;  // Characters that it spans.
};

class Axis {
 public:
  // From low to high exactly. Requires 0 <= low < high.
  explicit Axis(const AxisSpec& spec);
  // A little longer at both ends; much longer if all values are nearly the same.
  static Axis Around(AxisSpec spec);

  // A value at a round number; `label` is its number of units.
  struct Tick {
    double value = 0;
    std::string label;
  };
  const std::vector<Tick>& ticks() const { return ticks_; }
  // "s", "ms", "kJ".
  std::string UnitName(const Terminal& terminal) const;
  // Which of `parts` equal parts of the axis the value lies in, counted from 0 at the low end.
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

// Draws an axis of time on two rows of the grid: the line with its marks, and below it their
// labels. `column` is where its first character is.
void DrawTimeAxis(const Axis& axis, CharacterGrid& grid, int row, int column, int cells,
                  const Terminal& terminal);

struct LegendItem {
  std::u32string symbol;
  std::string text;
  Colour colour = Colour::kDefault;  // Of the symbol.
};
// As many items on a line as fit.
std::string FormatLegend(const std::vector<LegendItem>& items, const Terminal& terminal);

}  // namespace perseus::cli
