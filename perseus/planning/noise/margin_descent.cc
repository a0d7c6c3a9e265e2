#include "perseus/planning/noise/margin_descent.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::noise {
namespace {

constexpr std::uint64_t kSeed = 1;
// Of a step of polishing, as parts of the time of an iteration.
constexpr double kFirstBudget = 2e-3;
constexpr double kLastBudget = 1e-6;

// Makes the first moves, until `most_s` of mean time are used up.
void Apply(const std::vector<Move>& moves, double most_s, std::vector<int>& options) {
  for (const Move& move : moves) {
    for (const auto& [instruction, option] : move.options) options[At(instruction)] = option;
    most_s -= move.time_s;
    if (most_s <= 0) break;
  }
}

}  // namespace

MarginDescent::MarginDescent(const plan::Planner& planner, const Noise& noise, const Limits& limits,
                             const MarginMoves& moves, std::span<const int> options)
    : moves_(moves),
      limits_(limits),
      execution_(planner.graph(), planner.model(), noise, limits.samples, kSeed),
      quiet_(planner.graph(), planner.model(), {}, 1, kSeed),
      runs_left_(limits.runs),
      options_(options.begin(), options.end()),
      mean_(Run(execution_, options_)) {}

bool MarginDescent::RepairWithoutNoise(double target_s) {
  NoisyMean quiet = quiet_.Run(options_);
  if (quiet.time_s <= target_s) return true;
  const bool is_in_time = RepairFrom(quiet_, options_, quiet, target_s);
  mean_ = Run(execution_, options_);
  return is_in_time;
}

void MarginDescent::Polish(double target_s) {
  double budget_s = kFirstBudget * target_s;
  for (const Move& move : moves_.Slower(options_, mean_)) {
    budget_s = std::max(budget_s, move.time_s);
  }
  while (budget_s > kLastBudget * target_s && runs_left_ > 0) {
    if (limits_.finish.stop_requested()) return;
    if (!ImproveWithin(budget_s, target_s)) budget_s /= 2;
  }
}

NoisyMean MarginDescent::Run(const NoisyExecution& execution, std::span<const int> options) {
  if (&execution == &execution_) --runs_left_;  // The other one has a single sample.
  return execution.Run(options);
}

bool MarginDescent::ImproveWithin(double budget_s, double target_s) {
  std::vector<Move> slower = moves_.Slower(options_, mean_);
  std::erase_if(slower, [&](const Move& move) { return move.time_s > 2 * budget_s; });
  std::ranges::stable_sort(slower, {}, &Move::price_w);
  std::vector<int> options = options_;
  if (slower.empty()) return false;
  Apply(slower, budget_s, options);
  NoisyMean mean = Run(execution_, options);
  if (!RepairFrom(execution_, options, mean, target_s)) return false;
  if (mean.energy_j >= mean_.energy_j) return false;
  options_ = std::move(options);
  mean_ = std::move(mean);
  return true;
}

bool MarginDescent::RepairFrom(const NoisyExecution& execution, std::vector<int>& options,
                               NoisyMean& mean, double target_s) {
  while (mean.time_s > target_s) {
    if (limits_.stop.stop_requested()) return false;
    std::vector<Move> faster = moves_.Faster(options, mean);
    if (faster.empty()) faster = moves_.BeforeCritical(options, mean);
    if (faster.empty()) return false;
    std::ranges::stable_sort(faster, {}, &Move::price_w);
    Apply(faster, mean.time_s - target_s, options);
    mean = Run(execution, options);
  }
  return true;
}

}  // namespace perseus::noise
