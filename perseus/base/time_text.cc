#include "perseus/base/time_text.h"

#include <fmt/chrono.h>

#include <ctime>

#include "perseus/base/number.h"

namespace perseus {

std::string TimeText(Milliseconds time) {
  return fmt::format("{:%FT%T}.{:03}Z", fmt::gmtime(time.count() / kMillisecondsPerSecond),
                     time.count() % kMillisecondsPerSecond);
}

std::optional<Milliseconds> ParseTime(std::string_view text) {
  std::tm parts{};
  const std::string copy(text);
  const char* const rest = ::strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%S.", &parts);
  if (rest == nullptr || !text.ends_with('Z')) return std::nullopt;
  std::string_view digits(rest);
  digits.remove_suffix(1);
  const auto milliseconds = ParseNumber<std::int64_t>(digits);
  if (!milliseconds) return std::nullopt;
  const Milliseconds time(std::int64_t{::timegm(&parts)} * kMillisecondsPerSecond + *milliseconds);
  // Also refuses 31 February.
  return TimeText(time) == text ? std::optional(time) : std::nullopt;
}

}  // namespace perseus
