// Checks of the values of flags. Unlike those of CLI11, the checks of numbers refuse "nan" and
// "1e999".
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/terminal/standard_output.h"

namespace perseus::cli {

struct Range {
  double least = 0;
  double most = 0;
};

// Checks that the text is a finite number in the range. Errors have the unit, such as "seconds".
CLI::Validator NumberIn(Range range, const std::string& unit);
// The unit of how many times as long a straggler takes.
constexpr const char* kTimesAsLong = "times as long; 1.25 is 25 % longer";
// Warns on standard error of a straggler that takes more than 3 times as long: the number is
// probably meant in percent, as in `perseus plan --slowdown`.
void WarnIfLikelyPercent(const Streams& streams, const char* flag, double times_as_long);

// The same as NumberIn for a whole number.
CLI::Validator WholeNumberIn(Range range);

// For CLI::Option::transform: the text must be one of the names, in capital or small letters. The
// value is then the name as given here. For a wrong one, the error suggests the nearest.
CLI::Validator OneOf(std::vector<std::string> names);

// A wrong name of a file or directory. The message is complete: it needs no reference to --help. A
// check precedes the search for missing flags, so a wrong name is reported first.
class WrongPath : public CLI::ParseError {
 public:
  explicit WrongPath(const std::string& message)
      : CLI::ParseError("WrongPath", message, CLI::ExitCodes::FileError) {}
};

// Checks that a file to read exists, and is no directory, socket or named pipe.
CLI::Validator InputFile();
// Checks that a file or directory to read exists.
CLI::Validator ExistingPath();
// Checks that the directory of a job exists.
CLI::Validator JobDirectory();

// Fails (kInput) if the file to write is one of those to read. Empty names are none.
Result<void> CheckReplacesNoInput(const std::string& output,
                                  const std::vector<std::string>& inputs);

}  // namespace perseus::cli
