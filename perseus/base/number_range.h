// The range of a number that a user gives.
#pragma once

#include <string_view>

namespace perseus {

struct NumberRange {
  double least = 0;
  double most = 0;
  std::string_view unit = {};

  // Whether the number is in the range. False for NaN.
  bool Holds(double number) const { return number >= least && number <= most; }
};

}  // namespace perseus
