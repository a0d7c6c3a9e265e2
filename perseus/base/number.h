// Numbers from text.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace perseus {

// Returns the number if the whole of `text` is one number. Returns nullopt if `text` is anything
// else, such as a number with a space or a "+", or if the number does not fit. A double may be
// infinite or no number ("nan"). The default base of an integer is 10.
template <typename Number, std::same_as<int>... Base>
std::optional<Number> ParseNumber(std::string_view text, Base... base) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, base...);
  if (error != std::errc() || rest != end) return std::nullopt;
  return number;
}

}  // namespace perseus
