#include "perseus/runtime/tuner/outlook.h"

#include <fmt/format.h>

#include <algorithm>

namespace perseus::tuner {
namespace {

constexpr double kSlowdownsPercent[] = {0, 1, 2, 5, 10};

std::optional<double> SavingAt(const OutlookInput& input, double slowdown_percent) {
  const plan::Target target{plan::Target::Kind::kSlowdown, slowdown_percent};
  if (target.kind == input.target.kind && target.value == input.target.value) return input.saving;
  const auto plans = PacedPlans::Make(input.sweep, input.job, target, input.gpus, input.clocks_mhz,
                                      input.noise, input.changes, input.meeting);
  if (!plans) return std::nullopt;
  return plans->Promise().saving() - input.optimism;
}

}  // namespace

std::vector<OutlookRow> OutlookOf(const OutlookInput& input) {
  std::vector<OutlookRow> rows;
  double most = 0;
  for (const double percent : kSlowdownsPercent) {
    const auto saving = SavingAt(input, percent);
    if (!saving) continue;
    most = std::max(most, *saving);
    rows.push_back({percent, most});
  }
  return rows;
}

std::string Describe(const std::vector<OutlookRow>& rows) {
  std::vector<std::string> texts;
  for (const OutlookRow& row : rows) {
    texts.push_back(fmt::format("{:.1f} % {}", 100 * row.saving,
                                row.slowdown_percent == 0
                                    ? "with no slowdown"
                                    : fmt::format("at {:g} %", row.slowdown_percent)));
  }
  return fmt::format("estimated savings: {}", fmt::join(texts, ", "));
}

}  // namespace perseus::tuner
