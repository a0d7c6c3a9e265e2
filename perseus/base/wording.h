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

// The remedy for an unknown name: `did you mean "stages"?` if names in `known` begin with `name`,
// or if one is similar to it, or else `known: a, b, c`.
std::string DidYouMean(std::string_view name, std::span<const std::string_view> known);

// Makes the explanation of a parser library fit for a one-line message. The explanation may quote
// the input, so it may be long or contain control characters.
std::string Explained(std::string_view explanation);

// Errors name a value by its key, such as that of the job file, in backticks: `pp_ranks`, or with a
// value: `schedule = "auto"`. Only the interfaces that show the errors know their own names for it:
// a flag, an argument. Returns the message with the result of `name` in place of each key and its
// value (which is empty if there is none). If the result is empty, the key stays.
std::string RenameKeys(
    std::string_view message,
    const std::function<std::string(std::string_view key, std::string_view value)>& name);

}  // namespace perseus
