#include "perseus/base/wording.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "perseus/base/excerpt.h"

namespace perseus {

namespace {

// A shorter name would be the beginning of too many other names.
constexpr std::size_t kLeastBeginning = 3;

// Returns ", in seconds" if `key` ends with a unit and `given` does not end with the same unit.
// Without this text, a user who only renames the key would leave its value in the wrong unit.
std::string_view UnitOf(std::string_view key, std::string_view given) {
  constexpr std::pair<std::string_view, std::string_view> kUnits[] = {
      {"_ms", ", in milliseconds"}, {"_s", ", in seconds"},     {"_w", ", in watts"},
      {"_j", ", in joules"},        {"_mib", ", in mebibytes"}, {"_gib", ", in gibibytes"}};
  for (const auto& [ending, unit] : kUnits) {
    if (key.ends_with(ending)) return given.ends_with(ending) ? "" : unit;
  }
  return "";
}

}  // namespace

std::string Counted(std::int64_t count, std::string_view noun) {
  const std::string_view ending = count == 1 ? "" : noun.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", count, noun, ending);
}

std::string FormatPercent(double fraction) {
  const std::string text = fmt::format("{:.2f} %", 100 * fraction);
  return text == "-0.00 %" ? text.substr(1) : text;
}

std::string FormatChange(double fraction) {
  const std::string text = FormatPercent(fraction);
  return fraction < 0 || text == "0.00 %" ? text : "+" + text;
}

std::string DidYouMean(std::string_view name, std::span<const std::string_view> known) {
  std::vector<std::string> longer;  // "interleaved" may mean each of the interleaved schedules.
  for (const std::string_view one : known) {
    if (name.size() >= kLeastBeginning && one.starts_with(name))
      longer.push_back(fmt::format("\"{}\"", one));
  }
  if (!longer.empty()) return fmt::format("did you mean {}?", fmt::join(longer, " or "));
  const std::string_view nearest = NearestName(name, known);
  if (!nearest.empty()) {
    return fmt::format("did you mean \"{}\"{}?", nearest, UnitOf(nearest, name));
  }
  return fmt::format("known: {}", fmt::join(known, ", "));
}

std::string Explained(std::string_view explanation) {
  constexpr std::size_t kLongest = 200;
  return explanation.size() <= kLongest && IsPrintable(explanation) ? std::string(explanation)
                                                                    : Excerpt(explanation);
}

std::string RenameKeys(
    std::string_view message,
    const std::function<std::string(std::string_view key, std::string_view value)>& name) {
  constexpr std::string_view kIs = " = ";
  std::string text;
  std::size_t begin = 0;
  while ((begin = message.find('`')) != std::string_view::npos) {
    const std::string_view rest = message.substr(begin + 1);
    const std::string_view quoted = rest.substr(0, rest.find('`'));
    const std::string_view key = quoted.substr(0, quoted.find(kIs));
    const bool is_key = !key.empty() && quoted.size() < rest.size() &&
                        key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == key.npos;
    const std::string named =
        is_key ? name(key, key == quoted ? "" : quoted.substr(key.size() + kIs.size())) : "";
    text += message.substr(0, named.empty() ? begin + 1 : begin);
    text += named;
    message = named.empty() ? rest : rest.substr(quoted.size() + 1);
  }
  return text.append(message);
}

}  // namespace perseus
