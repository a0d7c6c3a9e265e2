#include "perseus/cli/flags/cap_flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <optional>
#include <string_view>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/excerpt.h"
#include "perseus/base/limits.h"
#include "perseus/base/number.h"
#include "perseus/base/units.h"

namespace perseus::cli {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kPowers[] = {{"MW", 1e6}, {"kW", 1e3}, {"W", 1}, {"", 1}};
constexpr Unit kDurations[] = {{"s", 1}, {"min", 60}, {"m", 60}, {"h", 3'600}, {"d", 86'400}};
constexpr double kLongestDuration = 1e8;  // Three years, as the server accepts.

// Reads a positive number with one of the units.
template <std::size_t count>
std::optional<double> ParseWithUnit(std::string_view text, const Unit (&units)[count]) {
  const std::size_t end = text.find_last_of("0123456789.") + 1;
  const auto number = ParseNumber<double>(text.substr(0, end));
  if (!number || !(*number > 0) || !std::isfinite(*number)) return std::nullopt;
  text.remove_prefix(end);
  if (text.size() > 1 && text.starts_with(' ')) text.remove_prefix(1);
  const Unit* const unit = std::ranges::find(units, text, &Unit::name);
  if (unit == std::end(units)) return std::nullopt;
  return *number * unit->factor;
}

// Returns the next "20:00".
std::optional<std::int64_t> ParseTimeOfDay(const std::string& text, std::int64_t now_s) {
  std::tm parts{};
  const char* const rest = ::strptime(text.c_str(), "%H:%M", &parts);
  if (rest == nullptr || *rest != '\0') return std::nullopt;
  const std::time_t now = now_s;
  std::tm local{};
  ::localtime_r(&now, &local);
  for (int day = local.tm_mday;; ++day) {
    std::tm time = local;
    time.tm_mday = day;
    time.tm_hour = parts.tm_hour;
    time.tm_min = parts.tm_min;
    time.tm_sec = 0;
    time.tm_isdst = -1;
    if (const std::time_t found = std::mktime(&time); found > now) return found;
  }
}

std::optional<std::int64_t> ParseDate(const std::string& text) {
  for (const char* format :
       {"%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"}) {
    std::tm parts{};
    const char* const zone = ::strptime(text.c_str(), format, &parts);
    if (zone == nullptr) continue;
    if (*zone == '\0') {
      parts.tm_isdst = -1;
      return std::mktime(&parts);
    }
    std::tm offset{};
    const char* const rest = ::strptime(zone, "%z", &offset);
    if (rest != nullptr && *rest == '\0') return ::timegm(&parts) - offset.tm_gmtoff;
  }
  return std::nullopt;
}

// Replaces the text by the number that `parse` returns.
template <typename Parse>
CLI::Validator Replacing(Parse parse) {
  auto check = [parse](std::string& text) -> std::string {
    const auto number = parse(text);
    if (!number) return number.error().Message();
    text = fmt::format("{}", *number);
    return {};
  };
  return {std::move(check), ""};
}

}  // namespace

Result<double> ParsePower(std::string text) {
  const auto power_w = ParseWithUnit(text, kPowers);
  if (power_w && *power_w <= kMostJoules) return *power_w;
  return Fail("{} is not a power (give a number above 0 with W, kW or MW, such as 250kW)",
              Excerpt(text));
}

Result<std::int64_t> ParseLaterTime(const std::string& text, std::int64_t now_s) {
  if (const auto duration_s = ParseWithUnit(text, kDurations)) {
    if (*duration_s >= 1 && *duration_s <= kLongestDuration) {
      return now_s + std::llround(*duration_s);
    }
  } else if (const auto time_of_day = ParseTimeOfDay(text, now_s)) {
    return *time_of_day;
  } else if (const auto date = ParseDate(text)) {
    if (*date > now_s && static_cast<double>(*date - now_s) <= kLongestDuration) return *date;
    if (*date <= now_s) return Fail("{} is not in the future (give a later time)", Excerpt(text));
  }
  return Fail(
      "{} is not a time within three years (give a time of day such as 20:00, a date such as "
      "2026-11-30T20:00, or a duration such as 90m, 2h or 1d)",
      Excerpt(text));
}

CLI::Validator Power() { return Replacing(ParsePower); }

CLI::Validator LaterTime() {
  return Replacing(
      [](const std::string& text) { return ParseLaterTime(text, SinceEpoch() / kSecond); });
}

}  // namespace perseus::cli
