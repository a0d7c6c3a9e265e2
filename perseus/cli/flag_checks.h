// What a number given to a flag may be. CLI11 takes "nan" and "1e999" for numbers; these do not.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace perseus::cli {

struct Range {
  double least = 0;
  double most = 0;
};

// Checks that the text is a finite number in the range; errors name the unit ("seconds").
CLI::Validator NumberIn(Range range, const std::string& unit);
// The same for a whole number.
CLI::Validator WholeNumberIn(Range range);

}  // namespace perseus::cli
