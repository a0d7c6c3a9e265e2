// "did you mean" for names that are not known.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace perseus {

// ` (did you mean "stages"?)` for the nearest of `known` if it is within two typing errors of
// `name` (of equally near ones the first); otherwise ` (known: a, b, c)`.
std::string SuggestName(std::string_view name, std::span<const std::string_view> known);

}  // namespace perseus
