// Formats text in columns. The first column is aligned to the left, the others to the right.
#pragma once

#include <string>
#include <vector>

namespace perseus::cli {

class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // Adds a row. Requires as many cells as the header has.
  void AddRow(std::vector<std::string> cells);
  // Returns a line for each row, with two blanks between columns and a rule below the header.
  std::string Format() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // The first row is the header.
};

// Formats a number with at least six significant digits: "0.0512341", "58321.4".
std::string FormatQuantity(double value);

}  // namespace perseus::cli
