// A mixed-integer program, row by row, solved by COIN-OR CBC on one thread.
#pragma once

#include <limits>
#include <utility>
#include <vector>

#include "perseus/base/units.h"

namespace perseus {

// Times in a program are milliseconds: CBC's tolerances are about 1e-6 of a unit.
inline constexpr double kNanosecondsPerUnit = 1e6;
inline double ToUnits(Nanoseconds time) { return static_cast<double>(time) / kNanosecondsPerUnit; }

// Minimizes the sum of cost * value over the columns. Users add the entries row by row. CBC needs
// the entries column by column.
class MixedProgram {
 public:
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();
  enum class Column { kReal, kInteger };

  int columns() const { return static_cast<int>(costs_.size()); }
  // Adds a column whose value is between 0 and `most`.
  int AddColumn(Column kind, double cost, double most);
  int AddRow(double least, double most);
  void AddEntry(int row, int column, double value);

  struct Answer {
    bool proved = false;         // Whether CBC has proved that no better values exist.
    std::vector<double> values;  // [column]. Empty if no values were found.
    double cost = 0;             // The cost of the values.
    double least_cost = 0;       // A lower bound: no values have a lower cost.
  };
  Answer Solve(double most_seconds) const;

 private:
  std::vector<bool> is_integer_;                              // [column]
  std::vector<double> costs_;                                 // [column]
  std::vector<double> most_;                                  // [column]
  std::vector<std::vector<std::pair<int, double>>> entries_;  // [column] (row, value)
  std::vector<double> row_least_;
  std::vector<double> row_most_;
};

}  // namespace perseus
