// Parts of messages: a counted noun, help for an unknown name, and the text of a parser library.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace perseus {

// "1 step", "2 steps", "2 switches".
std::string Counted(std::int64_t count, std::string_view noun);

// A fraction in percent: "15.36 %", "2400.00 %", and never "-0.00 %".
std::string FormatPercent(double fraction);
// A difference in percent, with its sign: "+1.20 %", "-0.40 %", "0.00 %".
std::string FormatChange(double fraction);

// The remedy for an unknown name. If names in `known` begin with `name`, or if one is similar to
// `name`: `did you mean "stages"?`. Otherwise: `known: a, b, c`.
std::string DidYouMean(std::string_view name, std::span<const std::string_view> known);

// Shortens the explanation of a parser library for a one-line message, and removes its control
// characters. The explanation may quote the input, so it may have any length and any characters.
std::string Explained(std::string_view explanation);

// Replaces the keys in an error message by the names that an interface uses. Errors name a value by
// its key in backticks, such as a key of the job file: `pp_ranks`, or with a value: `schedule =
// "auto"`. Only the interface that shows the error knows its own name for this key: a flag, an
// argument. Calls `name` with each key and its value (empty without a value), and puts the result
// in place of both. If the result is empty, the key stays.
std::string RenameKeys(
    std::string_view message,
    const std::function<std::string(std::string_view key, std::string_view value)>& name);

}  // namespace perseus
