#include "perseus/runtime/tuner/pace_rule.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "perseus/base/statistics.h"

namespace perseus::tuner {
namespace {

// No measurement is more exact: a few equal times are no proof.
constexpr double kLeastDeviation = 1e-4;

double MedianOfLast(const std::deque<double>& values, std::size_t count) {
  return Median({values.end() - static_cast<std::ptrdiff_t>(count), values.end()});
}

void Keep(std::deque<double>& values, double value, std::size_t most) {
  values.push_back(value);
  if (values.size() > most) values.pop_front();
}

}  // namespace

void PaceRule::Begin(std::map<int, PlannedPace> plans) {
  plans_ = std::move(plans);
  std::erase_if(ranks_, [&](const auto& one) { return !plans_.contains(one.first.dp_rank); });
  for (auto& [name, rank] : ranks_) rank.logarithms.clear();
  double pace_s = 0;
  for (const auto& [dp_rank, plan] : plans_) pace_s = std::max(pace_s, plan.time_s);
  const double before_s = std::exchange(pace_s_, pace_s);
  if (before_s == 0) return;
  if (pace_s > before_s * (1 + kLate)) slowed_at_ = step_;
  if (pace_s > before_s * (1 - kLate) || !slowed_at_) return;
  if (step_ - *slowed_at_ < kFlapping) {
    flapped_at_ = step_;
    to_slow_ = std::min(2 * to_slow_, kLongestToSlow);
  }
  slowed_at_.reset();
}

void PaceRule::Add(std::int64_t step, const RankRatios& ratios) {
  step_ = step;
  for (const auto& [name, ratio] : ratios) {
    if (!(ratio > 0) || !plans_.contains(name.dp_rank)) continue;
    Rank& rank = ranks_[name];
    const double logarithm = std::log(ratio);
    if (!rank.logarithms.empty()) {
      Keep(rank.jumps, std::abs(logarithm - rank.logarithms.back()), kPast);
    }
    Keep(rank.logarithms, logarithm, kLongestToSlow);
    rank.last_step = step;
  }
  std::erase_if(ranks_, [&](const auto& one) { return step - one.second.last_step > kGone; });
  if (flapped_at_ && step - *flapped_at_ > kCalm) {
    flapped_at_.reset();
    to_slow_ = kShortestToSlow;
  }
}

std::optional<PaceRule::Level> PaceRule::LevelOf(const Rank& rank, std::size_t window) {
  if (window == 0 || rank.logarithms.size() < window) return std::nullopt;
  if (rank.jumps.size() < kLeastPast) return std::nullopt;
  const double jump = Median({rank.jumps.begin(), rank.jumps.end()});
  const double deviation = std::max(kLeastDeviation, kDeviationsOfMad * jump / std::sqrt(2.0));
  return Level{MedianOfLast(rank.logarithms, window),
               kErrorOfMedian * deviation / std::sqrt(static_cast<double>(window))};
}

PaceRule::Levels PaceRule::LevelsOf(std::size_t window) const {
  Levels levels;
  for (const auto& [name, rank] : ranks_) {
    const auto level = LevelOf(rank, window);
    if (!level) continue;
    Extremes& extremes = levels.try_emplace(name.dp_rank, Extremes{*level, *level}).first->second;
    if (level->value < extremes.least.value) extremes.least = *level;
    if (level->value > extremes.most.value) extremes.most = *level;
  }
  return levels;
}

double PaceRule::StandardErrors() const {
  constexpr double kTests = 1e5;
  return std::sqrt(2 * std::log(kTests * static_cast<double>(std::max(ranks_.size(), kQuick))));
}

bool PaceRule::HasLostPace() const {
  return !ranks_.empty() && std::ranges::none_of(ranks_, [&](const auto& one) {
    return plans_.at(one.first.dp_rank).sets_pace;
  });
}

// Whether a pipeline delays the job: because the slowest pipelines became faster or, with
// `counts_own`, also because it became slower itself.
bool PaceRule::IsLate(const Levels& levels, bool counts_own) const {
  std::optional<Level> pace;
  for (const auto& [dp_rank, extremes] : levels) {
    const PlannedPace& plan = plans_.at(dp_rank);
    if (!plan.sets_pace) continue;
    const Level now{std::log(plan.time_s / pace_s_) + extremes.least.value, extremes.least.error};
    if (!pace || now.value > pace->value) pace = now;
  }
  if (!pace) return false;
  return std::ranges::any_of(levels, [&](const auto& one) {
    const PlannedPace& plan = plans_.at(one.first);
    const Level& most = one.second.most;
    const double own = counts_own ? most.value : std::min(0.0, most.value);
    const double late = std::log(plan.time_s / plan.allowed_s) + own - pace->value;
    return !plan.sets_pace && late > kLate + StandardErrors() * std::hypot(most.error, pace->error);
  });
}

// Whether the slowest pipelines became slower, or another one became faster.
bool PaceRule::HasSlack(const Levels& levels) const {
  return std::ranges::any_of(levels, [&](const auto& one) {
    const Level& most = one.second.most;
    const double slack = plans_.at(one.first).sets_pace ? most.value : -most.value;
    return slack > kSlack + StandardErrors() * most.error;
  });
}

RankChanges PaceRule::ChangesOf(std::size_t window) const {
  constexpr double kCertain = 2;
  RankChanges changes;
  for (const auto& [name, rank] : ranks_) {
    const std::size_t steps = std::min(window, rank.logarithms.size());
    const Level level = LevelOf(rank, steps).value_or(Level());
    RankChange& change = changes[name];
    if (std::abs(level.value) <= kCertain * level.error) continue;
    change.ratio = std::exp(MedianOfLast(rank.logarithms, (steps + 1) / 2));
    change.error = std::sqrt(2.0) * level.error;
  }
  return changes;
}

std::optional<RankChanges> PaceRule::FindChanges() const {
  if (HasLostPace() || IsLate(LevelsOf(kQuick), /*counts_own=*/false)) return ChangesOf(kQuick);
  const Levels levels = LevelsOf(to_slow_);
  if (IsLate(levels, /*counts_own=*/true) || HasSlack(levels)) return ChangesOf(to_slow_);
  if (IsLate(LevelsOf(kLong), /*counts_own=*/true)) return ChangesOf(kLong);
  return std::nullopt;
}

}  // namespace perseus::tuner
