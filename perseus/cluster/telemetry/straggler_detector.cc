#include "perseus/cluster/telemetry/straggler_detector.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "perseus/base/statistics.h"

namespace perseus::telemetry {
namespace {

// A step is judged when it is this many steps behind the newest step.
constexpr std::int64_t kMaxStepsBehind = 3;
// Nine of ten values of a normal distribution are within 1.645 standard deviations.
constexpr double kQuantile = 0.9;
constexpr double kDeviationsOfQuantile = 1.645;

void Keep(std::deque<double>& values, double value, std::size_t most) {
  values.push_back(value);
  if (values.size() > most) values.pop_front();
}

}  // namespace

StragglerVerdicts StragglerDetector::Add(const PipelineStep& report) {
  StragglerVerdicts verdicts;
  if (!(report.busy_s > 0)) return verdicts;
  if (report.step <= judged_) return verdicts;
  NoteNewest(report.dp_rank, report.step);
  Judged& judged = open_[report.step][report.dp_rank];
  judged.busy_s = std::max(judged.busy_s, report.busy_s);
  judged.expected_s = report.expected_s;
  judged.version = report.version;

  const std::int64_t latest = pipelines_at_.rbegin()->first;
  const std::int64_t common = Common();
  while (!open_.empty()) {
    const std::int64_t step = open_.begin()->first;
    if (step >= common && step + kMaxStepsBehind > latest) break;
    Judge(step, verdicts);
    judged_ = step;
    open_.erase(open_.begin());
  }
  return verdicts;
}

void StragglerDetector::NoteNewest(int number, std::int64_t step) {
  const auto [newest, is_first] = newest_.try_emplace(number, step);
  if (!is_first) {
    if (step <= newest->second) return;
    const auto before = pipelines_at_.find(newest->second);
    if (--before->second == 0) pipelines_at_.erase(before);
    newest->second = step;
  }
  ++pipelines_at_[step];
}

std::int64_t StragglerDetector::Common() const {
  const std::int64_t latest = pipelines_at_.rbegin()->first;
  return pipelines_at_.upper_bound(latest - kMaxStepsBehind)->first;
}

void StragglerDetector::Restart() {
  open_.clear();
  newest_.clear();
  pipelines_at_.clear();
  judged_ = -1;
  for (auto& [number, pipeline] : pipelines_) pipeline.cleared_at = -1;
}

void StragglerDetector::Raise(int number, double slowdown) {
  Pipeline& pipeline = pipelines_[number];
  pipeline.slowdown = slowdown;
  pipeline.below = 0;
}

std::map<int, double> StragglerDetector::Stragglers() const {
  std::map<int, double> stragglers;
  for (const auto& [number, pipeline] : pipelines_) {
    if (pipeline.slowdown) stragglers[number] = *pipeline.slowdown;
  }
  return stragglers;
}

void StragglerDetector::Judge(std::int64_t step, StragglerVerdicts& verdicts) {
  const std::map<int, Judged>& reports = open_[step];
  // Pipelines with an unknown expected time cannot be compared with the other pipelines. If all
  // expected times are unknown, all pipelines are compared with each other.
  const bool has_expected =
      std::ranges::any_of(reports, [](const auto& report) { return report.second.expected_s > 0; });
  std::map<int, double> ratios;
  for (const auto& [number, report] : reports) {
    Pipeline& pipeline = pipelines_[number];
    const bool is_first = pipeline.version != report.version;
    pipeline.version = report.version;
    if (is_first || has_expected != (report.expected_s > 0)) continue;
    ratios[number] = report.busy_s / (has_expected ? report.expected_s : 1);
  }
  if (has_expected && !ratios.empty()) verdicts.ratios.push_back(ratios);
  if (ratios.size() < 2) return;
  std::vector<double> values;
  values.reserve(ratios.size());
  for (const auto& [number, ratio] : ratios) values.push_back(ratio);
  const double common = LowerMedian(std::move(values));
  for (const auto& [number, ratio] : ratios) {
    if (auto change = Judge(step, number, ratio / common)) {
      verdicts.unchanged.erase(number);
      verdicts.changes.push_back(*change);
    } else if (const auto& slowdown = pipelines_[number].slowdown) {
      verdicts.unchanged[number] = *slowdown;
    }
  }
}

double StragglerDetector::Threshold(const Pipeline& pipeline) {
  if (pipeline.quiet.size() < kLeastPast) return 1 + kUnknown;
  std::vector<double> distances;
  for (const double x : pipeline.quiet) distances.push_back(std::abs(x - 1));
  const auto quantile = distances.begin() + static_cast<std::ptrdiff_t>(
                                                kQuantile * static_cast<double>(distances.size()));
  std::ranges::nth_element(distances, quantile);
  return 1 + std::max(kLeast, kNoise * *quantile / kDeviationsOfQuantile);
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
    pipeline.to_clear = flaps ? std::min(2 * pipeline.to_clear, kMaxToClear) : kToClear;
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
  const double now = LowerMedian({pipeline.latest.begin(), pipeline.latest.end()});
  if (pipeline.below > 0 || now < threshold || std::abs(now - *pipeline.slowdown) <= kUpdate) {
    return std::nullopt;
  }
  pipeline.slowdown = now;
  return StragglerChange{number, now};
}

}  // namespace perseus::telemetry
