#include "perseus/cli/terminal/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace perseus::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;
using Widths = std::vector<std::size_t>;

constexpr int kSignificantDigits = 6;
constexpr std::size_t kGap = 2;  // Blanks between columns.
// A label of a table that continues below. A longer label has a line of its own.
constexpr std::size_t kWidestLabel = 40;

// The number of characters. All bytes of a character but the first begin with the bits 10.
std::size_t WidthOf(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

Widths WidthsOf(const Rows& rows) {
  Widths widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], WidthOf(row[i]));
  }
  return widths;
}

// The width of the widest label that is at most `most` wide.
std::size_t LabelWidth(const Rows& rows, std::size_t most) {
  std::size_t width = 0;
  for (const auto& row : rows) {
    if (WidthOf(row[0]) <= most) width = std::max(width, WidthOf(row[0]));
  }
  return width;
}

// The widths of the labels and of the other columns, and where the table continues below.
struct Layout {
  Widths widths;
  std::vector<std::size_t>
      begins;  // The first column of each part, and then the number of columns.
};

Layout LayOut(const Rows& rows) {
  Layout layout{WidthsOf(rows), {1}};
  Widths& widths = layout.widths;
  std::size_t others = 0;
  for (std::size_t i = 1; i < widths.size(); ++i) others += kGap + widths[i];
  const std::size_t least = std::max(WidthOf(rows.front()[0]), LabelWidth(rows, kTableColumns / 5));
  const bool fits = others + least <= kTableColumns;
  widths[0] = LabelWidth(rows, fits ? kTableColumns - others : kWidestLabel);
  std::size_t used = widths[0];
  for (std::size_t i = 1; i < widths.size(); ++i) {
    used += kGap + widths[i];
    if (used <= kTableColumns || i == layout.begins.back()) continue;
    layout.begins.push_back(i);
    used = widths[0] + kGap + widths[i];
  }
  layout.begins.push_back(widths.size());
  return layout;
}

std::string Padded(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, WidthOf(text)), ' ') + text;
}

std::string FormatRow(const std::vector<std::string>& row, const Widths& widths, std::size_t from,
                      std::size_t to) {
  const std::size_t label = WidthOf(row[0]);
  std::string text = row[0];
  if (label > widths[0]) text += '\n';
  text += std::string(label > widths[0] ? widths[0] : widths[0] - label, ' ');
  for (std::size_t i = from; i < to; ++i) text += "  " + Padded(row[i], widths[i]);
  text.erase(text.find_last_not_of(" \n") + 1);
  return text + '\n';
}

std::string FormatRule(const Widths& widths, std::size_t from, std::size_t to) {
  std::string text(widths[0], '-');
  for (std::size_t i = from; i < to; ++i) text += "  " + std::string(widths[i], '-');
  return text + '\n';
}

}  // namespace

Table::Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void Table::AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::Format() const {
  const Layout layout = LayOut(rows_);
  std::string text;
  for (std::size_t part = 0; part + 1 < layout.begins.size(); ++part) {
    const std::size_t from = layout.begins[part];
    const std::size_t to = layout.begins[part + 1];
    if (part > 0) text += '\n';
    for (const auto& row : rows_) {
      text += FormatRow(row, layout.widths, from, to);
      if (&row == &rows_.front()) text += FormatRule(layout.widths, from, to);
    }
  }
  return text;
}

std::string Wrapped(std::string_view text) {
  std::string wrapped;
  std::size_t width = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    // The blank before this word is already there.
    if (width > 0 && width + WidthOf(word) > kTableColumns) {
      wrapped.back() = '\n';
      width = 0;
    }
    wrapped += word;
    width += WidthOf(word);
    if (end == text.size()) break;
    wrapped += text[end];
    width = text[end] == '\n' ? 0 : width + 1;
    text.remove_prefix(end + 1);
  }
  return wrapped;
}

std::string FormatQuantity(double value) {
  // For a value below 0.1, this number is 0 or negative, because the zeros after the point do not
  // count as digits.
  const int digits_before =
      value == 0 ? 1 : 1 + static_cast<int>(std::floor(std::log10(std::abs(value))));
  return fmt::format("{:.{}f}", value, std::max(0, kSignificantDigits - digits_before));
}

std::string FormatQuantity(double value, std::string_view unit) {
  return fmt::format("{} {}", FormatQuantity(value), unit);
}

std::string FormatGib(std::int64_t bytes) {
  constexpr double kBytesPerGib = 1 << 30;
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / kBytesPerGib);
}

}  // namespace perseus::cli
