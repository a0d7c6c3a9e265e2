// Checks of the numbers in flags. Unlike the checks of CLI11, these refuse "nan" and "1e999".
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace perseus::cli {

struct Range {
  double least = 0;
  double most = 0;
};

// Checks that the text is a finite number in the range. Errors have the unit, such as "seconds".
CLI::Validator NumberIn(Range range, const std::string& unit);
// The same for a whole number.
CLI::Validator WholeNumberIn(Range range);

}  // namespace perseus::cli
