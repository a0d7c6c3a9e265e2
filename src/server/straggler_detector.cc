#include "perseus/server/straggler_detector.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace perseus {
namespace {

constexpr std::int64_t kLatestBy = 3;
constexpr double kMostOfQuiet = 0.9;
constexpr double kDeviationsOfMost = 1.645;  // That nine of ten are within.

// Of an even number the lower of the two in the middle.
double LowerMedian(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}
double LowerMedian(const std::deque<double>& values) {
  return LowerMedian(std::vector(values.begin(), values.end()));
}

void Keep(std::deque<double>& values, double value, std::size_t most) {
  values.push_back(value);
  if (values.size() > most) values.pop_front();
}

}  // namespace

std::vector<StragglerChange> StragglerDetector::Add(const PipelineStep& report) {
  std::vector<StragglerChange> changes;
  if (!(report.busy_s > 0)) return changes;
  if (report.step <= judged_) return changes;
  const auto [newest, is_first] = newest_.try_emplace(report.pipeline, report.step);
  newest->second = std::max(newest->second, report.step);
  Judged& judged = open_[report.step][report.pipeline];
  judged.busy_s = std::max(judged.busy_s, report.busy_s);
  judged.expected_s = report.expected_s;
  judged.version = report.version;

  std::int64_t latest = report.step;
  for (const auto& [number, step] : newest_) latest = std::max(latest, step);
  // Of pipelines that still report.
  std::int64_t common = latest;
  for (const auto& [number, step] : newest_) {
    if (step + kLatestBy > latest) common = std::min(common, step);
  }
  while (!open_.empty()) {
    const std::int64_t step = open_.begin()->first;
    if (step >= common && step + kLatestBy > latest) break;
    Judge(step, changes);
    judged_ = step;
    open_.erase(open_.begin());
  }
  return changes;
}

void StragglerDetector::BeginAnew() {
  open_.clear();
  newest_.clear();
  judged_ = -1;
  for (auto& [number, pipeline] : pipelines_) pipeline.cleared_at = -1;
}

void StragglerDetector::Raise(int number, double slowdown) {
  Pipeline& pipeline = pipelines_[number];
  pipeline.slowdown = slowdown;
  pipeline.below = 0;
}

void StragglerDetector::Forget(int number) {
  Pipeline& pipeline = pipelines_[number];
  pipeline.slowdown.reset();
  pipeline.above = 0;
}

std::map<int, double> StragglerDetector::Stragglers() const {
  std::map<int, double> stragglers;
  for (const auto& [number, pipeline] : pipelines_) {
    if (pipeline.slowdown) stragglers[number] = *pipeline.slowdown;
  }
  return stragglers;
}

void StragglerDetector::Judge(std::int64_t step, std::vector<StragglerChange>& changes) {
  const std::map<int, Judged>& reports = open_[step];
  std::map<int, double> ratios;
  for (const auto& [number, report] : reports) {
    Pipeline& pipeline = pipelines_[number];
    const bool is_first = pipeline.version != report.version;
    pipeline.version = report.version;
    // Expected times of some pipelines and not of others do not compare.
    const bool compares =
        std::ranges::all_of(reports, [&expected_s = report.expected_s](const auto& other) {
          return (other.second.expected_s > 0) == (expected_s > 0);
        });
    if (is_first || !compares) continue;
    ratios[number] = report.busy_s / (report.expected_s > 0 ? report.expected_s : 1);
  }
  if (ratios.empty()) return;
  if (ratios.size() == 1 && reports.size() == 1) {
    const auto [number, ratio] = *ratios.begin();
    Pipeline& pipeline = pipelines_[number];
    if (pipeline.past.size() < kLeastPast) {
      Keep(pipeline.past, ratio, kPast);
      return;
    }
    const double x = ratio / LowerMedian(pipeline.past);
    if (!pipeline.slowdown && x < Threshold(pipeline)) Keep(pipeline.past, ratio, kPast);
    if (auto change = Judge(step, number, x)) changes.push_back(*change);
    return;
  }
  if (ratios.size() == 1) return;  // The others have just changed orders.
  std::vector<double> values;
  for (const auto& [number, ratio] : ratios) values.push_back(ratio);
  const double common = LowerMedian(std::move(values));
  for (const auto& [number, ratio] : ratios) {
    Pipeline& pipeline = pipelines_[number];
    if (!pipeline.slowdown) Keep(pipeline.past, ratio, kPast);
    if (auto change = Judge(step, number, ratio / common)) changes.push_back(*change);
  }
}

double StragglerDetector::Threshold(const Pipeline& pipeline) {
  if (pipeline.quiet.size() < kLeastPast) return 1 + kUnknown;
  std::vector<double> distances;
  for (const double x : pipeline.quiet) distances.push_back(std::abs(x - 1));
  const auto most = distances.begin() + static_cast<std::ptrdiff_t>(
                                            kMostOfQuiet * static_cast<double>(distances.size()));
  std::ranges::nth_element(distances, most);
  return 1 + std::max(kLeast, kNoise * *most / kDeviationsOfMost);
}

std::optional<StragglerChange> StragglerDetector::Judge(std::int64_t step, int number, double x) {
  Pipeline& pipeline = pipelines_[number];
  const double threshold = Threshold(pipeline);
  Keep(pipeline.latest, x, 3);
  if (!pipeline.slowdown) {
    if (x < threshold) {
      Keep(pipeline.quiet, x, kPast);
      pipeline.above = 0;
      return std::nullopt;
    }
    pipeline.least_above = pipeline.above == 0 ? x : std::min(pipeline.least_above, x);
    if (++pipeline.above < kToRaise) return std::nullopt;
    const bool flaps = pipeline.cleared_at >= 0 && step - pipeline.cleared_at < kFlapping;
    pipeline.to_clear = flaps ? std::min(2 * pipeline.to_clear, kMostToClear) : kToClear;
    pipeline.slowdown = pipeline.least_above;
    pipeline.below = 0;
    return StragglerChange{number, *pipeline.slowdown};
  }
  pipeline.below = x < 1 + (threshold - 1) / 2 ? pipeline.below + 1 : 0;
  if (pipeline.below >= pipeline.to_clear) {
    pipeline.slowdown.reset();
    pipeline.above = 0;
    pipeline.cleared_at = step;
    return StragglerChange{number, 1};
  }
  const double now = LowerMedian(pipeline.latest);
  if (pipeline.below > 0 || now < threshold || std::abs(now - *pipeline.slowdown) <= kUpdate) {
    return std::nullopt;
  }
  pipeline.slowdown = now;
  return StragglerChange{number, now};
}

}  // namespace perseus
