#include "perseus/cli/terminal/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace perseus::cli {
namespace {

constexpr int kSignificantDigits = 6;

}  // namespace

Table::Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void Table::AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::Format() const {
  std::vector<std::size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    text += fmt::format("{:<{}}", row[0], widths[0]);
    for (std::size_t i = 1; i < row.size(); ++i) {
      text += fmt::format("  {:>{}}", row[i], widths[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
    if (&row != &rows_.front()) continue;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      text += fmt::format("{}{:-<{}}", i == 0 ? "" : "  ", "", widths[i]);
    }
    text += '\n';
  }
  return text;
}

std::string FormatQuantity(double value) {
  // For a value below 0.1, this number is 0 or negative, because the zeros after the point do not
  // count as digits.
  const int digits_before =
      value == 0 ? 1 : 1 + static_cast<int>(std::floor(std::log10(std::abs(value))));
  return fmt::format("{:.{}f}", value, std::max(0, kSignificantDigits - digits_before));
}

}  // namespace perseus::cli
