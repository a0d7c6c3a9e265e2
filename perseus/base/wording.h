// What to say of names that are not known, and of what a parser library said.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace perseus {

// ` (did you mean "stages"?)` where one of `known` is near `name`, else ` (known: a, b, c)`.
std::string DidYouMean(std::string_view name, std::span<const std::string_view> known);

// What a parser library explains, as part of a one-line message: it may quote the input.
std::string Explained(std::string_view explanation);

}  // namespace perseus
