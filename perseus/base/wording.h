// Parts of messages: a counted noun, help for an unknown name, and the text of a parser library.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace perseus {

// "1 step", "2 steps", "2 switches".
std::string Counted(std::int64_t count, std::string_view noun);

// Returns ` (did you mean "stages"?)` if names in `known` begin with `name`, or if one is similar
// to it, or else ` (known: a, b, c)`.
std::string DidYouMean(std::string_view name, std::span<const std::string_view> known);

// Makes the explanation of a parser library fit for a one-line message. The explanation may quote
// the input, so it may be long or contain control characters.
std::string Explained(std::string_view explanation);

}  // namespace perseus
