// Formats text for a terminal: tables, and sentences in lines of the same width.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perseus::cli {

// Formats text in columns. The first column is aligned to the left, the others to the right.
//
// Fits into kTableColumns, so that no terminal and no document wraps its rows. If the rows are
// wider, the cells of a row with a long label begin on the line below the label. If this is not
// enough, the table continues below with its further columns. Only a wide cell is wider.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // Adds a row. Requires as many cells as the header has. The first cell is the label of the row.
  void AddRow(std::vector<std::string> cells);
  // Returns a line for each row, with two blanks between columns and a rule below the header.
  std::string Format() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // The first row is the header.
};
inline constexpr std::size_t kTableColumns = 80;

// Breaks the lines of `text` at blanks, so that they fit into kTableColumns. A wider word, such as
// a path, has a line of its own.
std::string Wrapped(std::string_view text);

// Formats a number with at least six significant digits: "0.0512341", "58321.4".
std::string FormatQuantity(double value);
// The same with the unit: "58321.4 J".
std::string FormatQuantity(double value, std::string_view unit);
// Memory: "12.35 GiB".
std::string FormatGib(std::int64_t bytes);

}  // namespace perseus::cli
