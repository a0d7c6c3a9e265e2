// Text in columns: the first to the left, numbers to the right.
#pragma once

#include <string>
#include <vector>

namespace perseus::cli {

class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // Requires as many cells as the header has.
  void AddRow(std::vector<std::string> cells);
  // A line for each row, two blanks between columns, a rule under the header.
  std::string Format() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // The header first.
};

// With enough digits to tell plans apart whatever the magnitude: "0.0512341", "58321.4".
std::string FormatQuantity(double value);
// A fraction as percent: "15.36 %".
std::string FormatPercent(double fraction);

}  // namespace perseus::cli
