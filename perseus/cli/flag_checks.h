// Checks of the values of flags. Unlike those of CLI11, the checks of numbers refuse "nan" and
// "1e999".
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

}  // namespace perseus::cli
