#include "perseus/cli/terminal_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "perseus/base/round_step.h"

namespace perseus::cli {
namespace {

// The least length of an axis, as a fraction of its larger end. A smaller difference does not
// matter to a reader, and would need long labels.
constexpr double kLeastSpan = 1e-3;
constexpr double kMargin = 0.03;  // At each end, as a fraction of the range.
// In this range, the axis has plain joules and seconds, as the table does.
constexpr double kLeastPlain = 0.01;
constexpr double kMostPlain = 1e5;
// With a prefix, numbers are in this range.
constexpr double kLeastPrefixed = 1;
constexpr double kMostPrefixed = 1e3;
constexpr int kMostDecimals = 7;
constexpr double kLongNumber = 1e7;  // Longer numbers, or more decimals, get an exponent.
constexpr int kRowsBetweenTicks = 2;
constexpr int kBlanksBetweenLabels = 6;
constexpr std::string_view kBetweenItems = "   ";

struct Prefix {
  const char* name;
  double scale;
};
constexpr Prefix kSmaller[] = {{"", 1}, {"m", 1e-3}, {"u", 1e-6}, {"n", 1e-9}};
constexpr Prefix kLarger[] = {{"k", 1e3},  {"M", 1e6},  {"G", 1e9},
                              {"T", 1e12}, {"P", 1e15}, {"E", 1e18}};

Prefix ChoosePrefix(Quantity quantity, double largest) {
  if (largest < kMostPlain || quantity == Quantity::kTime) {  // Kiloseconds are not usual.
    for (const Prefix& prefix : kSmaller) {
      const double least = prefix.scale == 1 ? kLeastPlain : kLeastPrefixed;
      if (largest / prefix.scale >= least) return prefix;
    }
    return *std::rbegin(kSmaller);
  }
  for (const Prefix& prefix : kLarger) {
    if (largest / prefix.scale < kMostPrefixed) return prefix;
  }
  return *std::rbegin(kLarger);
}

std::string FormatTick(double number, int exponent) {
  const int decimals = std::max(0, -exponent);
  if (decimals > kMostDecimals || number >= kLongNumber) {
    return fmt::format("{:.4g}", number);
  }
  return fmt::format("{:.{}f}", number, decimals);
}

}  // namespace

Axis Axis::Around(AxisSpec spec) {
  const double lacking = spec.high * kLeastSpan - (spec.high - spec.low);
  if (spec.high <= 0) spec.high = 1;  // All values are 0.
  if (lacking > 0) {
    spec.low -= lacking / 2;
    spec.high += lacking / 2;
  }
  const double margin = (spec.high - spec.low) * kMargin;
  spec.low = std::max(0.0, spec.low - margin);
  spec.high += margin;
  return Axis(spec);
}

Axis::Axis(const AxisSpec& spec) : low_(spec.low), high_(spec.high) {
  const Prefix prefix = ChoosePrefix(spec.quantity, high_);
  prefix_ = prefix.name;
  scale_ = prefix.scale;
  unit_ = spec.quantity == Quantity::kTime ? "s" : "J";
  ChooseTicks(spec.direction, spec.cells);
}

std::string Axis::UnitName(const Terminal& terminal) const {
  return fmt::format("{}{}", prefix_ == "u" && terminal.unicode ? "µ" : prefix_, unit_);
}

// The smallest round step that leaves room between the labels.
void Axis::ChooseTicks(Direction direction, int cells) {
  const double low = low_ / scale_;
  const double high = high_ / scale_;
  const auto has_room = [&](const RoundStep& step) {
    const double cells_between = step.value() / (high - low) * cells;
    const auto widest = static_cast<double>(FormatTick(high, step.exponent).size());
    return cells_between >=
           (direction == Direction::kUp ? kRowsBetweenTicks : widest + kBlanksBetweenLabels);
  };
  RoundStep step = RoundStepFrom((high - low) / cells);
  while (!has_room(step)) step = NextRoundStep(step);
  for (double count = std::ceil(low / step.value()); count * step.value() <= high; ++count) {
    ticks_.push_back(
        {count * step.value() * scale_, FormatTick(count * step.value(), step.exponent)});
  }
}

int Axis::PartOf(double value, int parts) const {
  return std::clamp(static_cast<int>(std::floor((value - low_) / (high_ - low_) * parts)), 0,
                    parts - 1);
}

void DrawTimeAxis(const Axis& axis, CharacterGrid& grid, int row, int column, int cells,
                  const Terminal& terminal) {
  for (int i = 0; i < cells; ++i) grid.Put(row, column + i, terminal.unicode ? U'─' : U'-');
  for (const Axis::Tick& tick : axis.ticks()) {
    const int at = column + axis.PartOf(tick.value, cells);
    grid.Put(row, at, terminal.unicode ? U'┬' : U'+');
    const int width = static_cast<int>(tick.label.size());
    const int start = std::clamp(at - width / 2, 0, std::max(0, grid.columns() - width));
    grid.Put(row + 1, start, FitColumns(tick.label, width, terminal));
  }
}

std::string FormatLegend(const std::vector<LegendItem>& items, const Terminal& terminal) {
  if (items.empty()) return "";
  // In the worst case, each item needs its own row.
  CharacterGrid grid(static_cast<int>(items.size()), terminal.width);
  int row = 0;
  int column = 0;
  for (const LegendItem& item : items) {
    const auto symbol = static_cast<int>(item.symbol.size()) + 1;
    const std::u32string text = FitColumns(item.text, terminal.width - symbol, terminal);
    const int width = symbol + static_cast<int>(text.size());
    if (column + width > terminal.width) {
      ++row;
      column = 0;
    }
    grid.Put(row, column, item.symbol, item.color);
    grid.Put(row, column + symbol, text);
    column += width + static_cast<int>(kBetweenItems.size());
  }
  std::string text = grid.Format(terminal);
  text.erase(text.find_last_not_of('\n') + 1);
  text += '\n';
  return text;
}

}  // namespace perseus::cli
