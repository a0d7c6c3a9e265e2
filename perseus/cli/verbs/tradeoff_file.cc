#include "perseus/cli/verbs/tradeoff_file.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

#include "perseus/base/file.h"
#include "perseus/cli/verbs/results.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// These require values of the right types: json throws otherwise. So does at() of what should be an
// object.
int CountOf(const json& value) {
  constexpr std::int64_t kMost = 1'000'000'000;
  const bool is_count = value.is_number_integer() && value.get<std::int64_t>() >= 0 &&
                        value.get<std::int64_t>() <= kMost;
  return is_count ? value.get<int>() : json().get<int>();  // null is no number, so this throws.
}

std::optional<report::SwitchTradeoff> ParseTradeoff(const json& summary) {
  const double baseline_j = summary.at("baseline").at("energy_j").get<double>();
  const json& unlimited = summary.at("unlimited_plan");
  report::SwitchTradeoff tradeoff{
      unlimited.at("target").get<std::string>(), {}, unlimited.at("saving").get<double>()};
  if (summary.contains("max_switches")) {
    tradeoff.limit_of_plans = CountOf(summary.at("max_switches"));
  }
  for (const json& row : summary.at("switch_tradeoff")) {
    const json& energy = row.at("energy_j");
    const json& bound = row.at("lower_bound_j");
    std::optional<double> energy_j;
    if (!energy.is_null()) energy_j = energy.get<double>();
    // JSON has no infinity: null means that no plan can be.
    const double lower_bound_j =
        bound.is_null() ? std::numeric_limits<double>::infinity() : bound.get<double>();
    tradeoff.limits.push_back(report::MakeSwitchLimit(CountOf(row.at("max_switches")), energy_j,
                                                      lower_bound_j, baseline_j));
  }
  return tradeoff;
}

std::optional<int> ParseMostSwitches(const json& summary) {
  const json::array_t& plans = summary.at("plans").get_ref<const json::array_t&>();
  if (plans.empty()) return std::nullopt;
  int most = 0;
  for (const json& plan : plans) {
    if (!plan.get_ref<const json::object_t&>().contains("max_switches")) return std::nullopt;
    most = std::max(most, CountOf(plan["max_switches"]));
  }
  return most;
}

std::optional<bool> ParseStoppedEarly(const json& summary) {
  return summary.at("stopped_early").get<bool>();
}

// What `parse` makes of the summary. Empty if there is none, or if it lacks `key`.
template <typename Value>
Result<std::optional<Value>> ReadFromSummary(const fs::path& source, const char* key,
                                             std::optional<Value> (*parse)(const json&)) {
  std::error_code error;
  const fs::path path = source / kPlanResults.summary;
  if (!fs::is_directory(source, error) || !fs::exists(path, error)) return std::nullopt;
  PERSEUS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const json summary = json::parse(text, nullptr, false);
  if (!summary.is_object() || !summary.contains(key)) return std::nullopt;
  try {
    return parse(summary);
  } catch (const json::exception&) {
    return Fail(
        "{}: its limits of clock changes cannot be read (the file was probably edited: plan "
        "again)",
        path.string());
  }
}

}  // namespace

Result<std::optional<report::SwitchTradeoff>> ReadTradeoff(const fs::path& source) {
  return ReadFromSummary(source, "unlimited_plan", ParseTradeoff);
}

Result<std::optional<int>> ReadMostSwitches(const fs::path& source) {
  return ReadFromSummary(source, "plans", ParseMostSwitches);
}

Result<bool> ReadStoppedEarly(const fs::path& source) {
  PERSEUS_ASSIGN_OR_RETURN(const auto stopped,
                           ReadFromSummary(source, "stopped_early", ParseStoppedEarly));
  return stopped.value_or(false);
}

}  // namespace perseus::cli
