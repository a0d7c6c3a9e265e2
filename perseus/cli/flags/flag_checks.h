// Declares flags, and checks their values. The checks of numbers refuse "nan" and "1e999", unlike
// the checks of CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "perseus/base/number_range.h"
#include "perseus/base/result.h"

namespace perseus::cli {

// Declares the flags and arguments of a verb that take a value, in one group of its help.
class FlagAdder {
 public:
  explicit FlagAdder(CLI::App& verb, std::string group = "Options")
      : verb_(verb), group_(std::move(group)) {}

  // Declares a flag or an argument. `type` names the value in the help.
  template <typename Value>
  CLI::Option* operator()(const char* names, Value& value, const char* type,
                          const std::string& help, CLI::Validator check = {}) const {
    CLI::Option* option = verb_.add_option(names, value, help);
    return option->type_name(type)->group(group_)->transform(std::move(check));
  }
  // Declares a flag that may be repeated, with one value each time.
  template <typename Values>
  CLI::Option* Repeatable(const char* names, Values& values, const char* type,
                          const std::string& help, CLI::Validator check = {}) const {
    CLI::Option* option = (*this)(names, values, type, help, std::move(check));
    return option->expected(1)->allow_extra_args(false)->take_all();
  }

 private:
  CLI::App& verb_;
  std::string group_;
};

// A verb of the program with its flags.
struct NoFlags {};
template <typename Flags = NoFlags>
struct NewVerb {
  CLI::App* verb;
  FlagAdder add;
  std::shared_ptr<Flags> flags;
};
template <typename Flags = NoFlags>
NewVerb<Flags> AddVerb(CLI::App& program, const char* name, const char* about,
                       const char* examples) {
  CLI::App* verb = program.add_subcommand(name, about);
  verb->footer(std::string("Examples:\n") + examples);
  return {verb, FlagAdder(*verb), std::make_shared<Flags>()};
}

// Checks that the text is a finite number in the range. Errors contain the unit of the range. The
// text of the unit has to be static.
CLI::Validator NumberIn(const NumberRange& range);
// Checks that the text is a slowdown from 0 to `most_percent`, and replaces it by percent: `25` and
// `25%` are 25 percent longer, and `1.25x` is 1.25 times as long. A number without a unit is
// refused if it is likely in another unit: a number below 0.5 is likely a fraction, and a number
// above 200 a factor in percent.
CLI::Validator SlowdownUpTo(double most_percent);
// The same for the slowdown of a straggler, where also a number below 3 is likely a factor.
CLI::Validator StragglerSlowdown();

// The same as NumberIn for a whole number.
CLI::Validator WholeNumberIn(const NumberRange& range);

// Checks that the text is one of the names, in capital or small letters. Replaces the value by the
// name as it is written in `names`. For a wrong name, the error suggests the most similar name.
CLI::Validator OneOf(std::vector<std::string> names);

// The error for a wrong name of a file or directory. The message is complete, so it has no
// reference to --help. Checks of values run before the check for missing flags, so a wrong name is
// reported first.
class WrongPath : public CLI::ParseError {
 public:
  explicit WrongPath(const std::string& message)
      : CLI::ParseError("WrongPath", message, CLI::ExitCodes::FileError) {}
};

// Checks that a file to read exists, and is no directory, socket or named pipe.
CLI::Validator InputFile();
// Checks that a file or directory to read exists.
CLI::Validator ExistingPath();
// Adds the argument JOBDIR. The directory has to exist.
CLI::Option* AddJobDirectory(const FlagAdder& add, std::string& directory);
// Checks that the directory of a job exists.
CLI::Validator JobDirectory();
void AddLogLevel(const FlagAdder& add, std::string& level);

// Fails (kInput) if `output`, the file to write, is one of `inputs`, the files to read. Ignores
// empty names.
Result<void> CheckReplacesNoInput(const std::string& output,
                                  const std::vector<std::string>& inputs);

}  // namespace perseus::cli
