#include "perseus/runtime/qualifier/estimates.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "perseus/base/statistics.h"

namespace perseus::qualifier {
namespace {

// Each side of the interval excludes at most this probability.
constexpr double kTail = 0.025;

struct Ranks {
  int low = 0;  // The index among the sorted samples, from 0. -1 and n: no sample.
  int high = 0;
};

// Sample k (sorted, from 0) is above the true quantile if at most k samples are below the quantile.
// Otherwise, sample k is below the quantile.
Ranks RanksOf(int n, double part) {
  const boost::math::binomial below(n, part);
  Ranks ranks{-1, n};
  while (ranks.low + 1 < n && cdf(below, ranks.low + 1) <= kTail) ++ranks.low;
  while (ranks.high - 1 >= 0 && 1 - cdf(below, ranks.high - 1) <= kTail) --ranks.high;
  return ranks;
}

constexpr std::size_t kLeastChanges = 7;
constexpr std::size_t kBiasBlocks = 8;

struct CounterChange {
  Nanoseconds at = 0;  // The middle of the two readings around the change.
  double energy_j = 0;
  double power_j = 0;  // The integral of the power readings up to this change.
};

// Returns the changes of the counter. Between two readings, the power is taken as a straight line.
std::vector<CounterChange> ChangesOf(const std::vector<device::Telemetry>& readings) {
  std::vector<CounterChange> changes;
  double power_j = 0;
  for (std::size_t i = 1; i < readings.size(); ++i) {
    const device::Telemetry& before = readings[i - 1];
    const device::Telemetry& after = readings[i];
    const double sum_w = before.power_w.value_or(0) + after.power_w.value_or(0);
    const double step_j = sum_w / 2 * ToSeconds(after.at - before.at);
    if (before.energy_j && after.energy_j && *after.energy_j != *before.energy_j) {
      if (*after.energy_j < *before.energy_j) changes.clear();  // A new count begins.
      changes.push_back(
          {before.at + (after.at - before.at) / 2, *after.energy_j, power_j + step_j / 2});
    }
    power_j += step_j;
  }
  return changes;
}

Nanoseconds DistanceOf(const std::vector<device::Telemetry>& readings) {
  return (readings.back().at - readings.front().at) / static_cast<Nanoseconds>(readings.size() - 1);
}

// The error of the time between the first and the last change. The time of each of these changes is
// known to half the distance of two readings. All blocks may share this error, so their variance
// does not contain it.
double TimeError(const std::vector<device::Telemetry>& readings,
                 const std::vector<CounterChange>& changes) {
  return ToSeconds(DistanceOf(readings)) / ToSeconds(changes.back().at - changes.front().at);
}

constexpr std::size_t kLeastSamples = 4;
// Below this part of the rate at the lower clock, a GPU counts as stopped.
constexpr double kStoppedPart = 0.5;

struct WorkStep {
  Nanoseconds begin = 0;
  double rate = 0;
  double duration = 0;
};

std::vector<WorkStep> StepsOf(const std::vector<WorkSample>& samples) {
  std::vector<WorkStep> steps;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const auto duration = static_cast<double>(samples[i].at - samples[i - 1].at);
    if (duration <= 0) continue;
    steps.push_back(
        {samples[i - 1].at, (samples[i].work - samples[i - 1].work) / duration, duration});
  }
  return steps;
}

// The two levels of a series of steps.
struct Split {
  Nanoseconds at = 0;
  double old_rate = 0, new_rate = 0;
};

// Returns the split with the least squared error, at least kLeastSamples steps after `earliest` and
// before the end. Returns nullopt if there are too few steps.
std::optional<Split> SplitOf(const std::vector<WorkStep>& steps, Nanoseconds earliest) {
  // With sums over all steps up to each step, weighted by time, each split costs O(1).
  double time = 0, work = 0, squares = 0;
  for (const WorkStep& step : steps) {
    time += step.duration;
    work += step.rate * step.duration;
    squares += step.rate * step.rate * step.duration;
  }
  double time_before = 0, work_before = 0, best_error = 0;
  std::optional<Split> best;
  for (std::size_t i = 0; i + kLeastSamples <= steps.size(); ++i) {
    if (i >= kLeastSamples && steps[i].begin >= earliest) {
      const double time_after = time - time_before, work_after = work - work_before;
      const double error =
          squares - work_before * work_before / time_before - work_after * work_after / time_after;
      if (!best || error < best_error) {
        best_error = error;
        best = Split{steps[i].begin, work_before / time_before, work_after / time_after};
      }
    }
    time_before += steps[i].duration;
    work_before += steps[i].rate * steps[i].duration;
  }
  return best;
}

}  // namespace

std::optional<Estimate> QuantileOf(std::vector<double> samples, double part) {
  if (samples.empty()) return std::nullopt;
  std::sort(samples.begin(), samples.end());
  const int n = static_cast<int>(samples.size());
  const auto at = [&](int rank) {
    return samples[static_cast<std::size_t>(std::clamp(rank, 0, n - 1))];
  };
  // For an even number of samples, the median is between two samples.
  const double position = part * n;
  const int upper = static_cast<int>(std::floor(position));
  const bool is_between = position == std::floor(position) && part == 0.5;
  const Ranks ranks = RanksOf(n, part);
  const double value =
      is_between ? (at(upper - 1) + at(upper)) / 2 : at(static_cast<int>(std::ceil(position)) - 1);
  return Estimate{.value = value,
                  .low = std::min(value, at(ranks.low)),
                  .high = std::max(value, at(ranks.high)),
                  .samples = n};
}

std::optional<Estimate> MedianOf(std::vector<double> samples) {
  return QuantileOf(std::move(samples), 0.5);
}

bool IsEnclosed(int samples, double part) {
  const Ranks ranks = RanksOf(samples, part);
  return ranks.low >= 0 && ranks.high < samples;
}

std::optional<Estimate> MeanOf(const std::vector<double>& samples) {
  if (samples.empty()) return std::nullopt;
  const int n = static_cast<int>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  const double half =
      n == 1 ? 0 : StudentHalfWidth(n - 1) * StandardDeviation(samples) / std::sqrt(n);
  return Estimate{.value = mean, .low = mean - half, .high = mean + half, .samples = n};
}

std::optional<hardware_facts::EnergyCounterFacts> ExamineCounter(
    const std::vector<device::Telemetry>& readings) {
  const std::vector<CounterChange> changes = ChangesOf(readings);
  if (changes.size() < kLeastChanges) return std::nullopt;
  std::vector<double> periods_ms;
  std::int64_t divisor_uj = 0;
  for (std::size_t i = 1; i < changes.size(); ++i) {
    periods_ms.push_back(static_cast<double>(changes[i].at - changes[i - 1].at) / kMillisecond);
    const double step_j = changes[i].energy_j - changes[i - 1].energy_j;
    divisor_uj = std::gcd(divisor_uj, std::int64_t{std::llround(step_j * kMicrojoulesPerJoule)});
  }
  std::vector<double> biases;
  const std::size_t block = std::max<std::size_t>(1, (changes.size() - 1) / kBiasBlocks);
  for (std::size_t i = block; i < changes.size(); i += block) {
    const double power_j = changes[i].power_j - changes[i - block].power_j;
    if (power_j <= 0) continue;
    biases.push_back((changes[i].energy_j - changes[i - block].energy_j) / power_j - 1);
  }
  const auto bias = MeanOf(biases);
  if (!bias) return std::nullopt;
  // A change is seen at the next reading. So the error of a period is at most half of the time
  // between readings.
  hardware_facts::EnergyCounterFacts findings{
      .period_ms = *MedianOf(periods_ms),
      .resolution_j = static_cast<double>(divisor_uj) / kMicrojoulesPerJoule,
      .bias = *bias};
  const double distance_ms = static_cast<double>(DistanceOf(readings)) / kMillisecond;
  findings.period_ms.low -= distance_ms / 2;
  findings.period_ms.high += distance_ms / 2;
  const double unsure = TimeError(readings, changes);
  findings.bias.low -= unsure;
  findings.bias.high += unsure;
  return findings;
}

std::optional<Estimate> PowerByCounter(const std::vector<device::Telemetry>& readings, int blocks) {
  const std::vector<CounterChange> changes = ChangesOf(readings);
  const std::size_t count = changes.empty() ? 0 : changes.size() - 1;
  if (count < static_cast<std::size_t>(blocks)) return std::nullopt;
  const std::size_t size = count / static_cast<std::size_t>(blocks);
  std::vector<double> powers_w;
  for (std::size_t i = size; i < changes.size(); i += size) {
    powers_w.push_back((changes[i].energy_j - changes[i - size].energy_j) /
                       ToSeconds(changes[i].at - changes[i - size].at));
  }
  auto power = MeanOf(powers_w);
  const double unsure_w = power->value * TimeError(readings, changes);
  power->low -= unsure_w;
  power->high += unsure_w;
  return power;
}

Estimate HarmlessRate(std::vector<RateSlowdown> rates) {
  std::sort(rates.begin(), rates.end(), [](const RateSlowdown& a, const RateSlowdown& b) {
    return a.changes_per_s < b.changes_per_s;
  });
  Estimate found{.value = 0, .low = 0, .high = rates.back().changes_per_s, .samples = 0};
  bool is_harmful = false;
  for (const RateSlowdown& rate : rates) {
    found.samples += rate.slowdown.samples;
    if (is_harmful) continue;
    if (rate.slowdown.low > kHarmfulSlowdown) {
      is_harmful = true;
      found.high = rate.changes_per_s;
    } else if (rate.slowdown.high < kHarmfulSlowdown) {
      found.value = rate.changes_per_s;
    }
  }
  found.low = found.value;
  return found;
}

std::optional<Landing> FindLanding(const std::vector<WorkSample>& samples,
                                   const ExpectedSwitch& expected) {
  const std::vector<WorkStep> all = StepsOf(samples);
  const auto called = std::ranges::lower_bound(all, expected.call_begin, {}, &WorkStep::begin);
  std::vector<double> rates;
  for (auto step = all.begin(); step != called; ++step) rates.push_back(step->rate);
  if (rates.size() < kLeastSamples) return std::nullopt;
  // While the GPU stops, its rate does not show its clock.
  const double stopped = kStoppedPart * std::min(1.0, expected.clock_ratio) * Median(rates);
  std::vector<WorkStep> steps;
  for (const WorkStep& step : all) {
    if (step.rate > stopped) steps.push_back(step);
  }
  const auto split = SplitOf(steps, expected.call_begin);
  if (!split) return std::nullopt;
  const double wanted = expected.clock_ratio - 1;
  const double seen = split->new_rate / split->old_rate - 1;
  if (seen * wanted <= 0 || std::abs(seen) < std::abs(wanted) / 2) return std::nullopt;
  // The landing is in the first step of the new level or in the last step of the old level.
  auto landing = std::ranges::lower_bound(all, split->at, {}, &WorkStep::begin);
  if (std::abs((landing - 1)->rate / split->old_rate - 1) >
      std::abs(landing->rate / split->new_rate - 1)) {
    --landing;
  }
  double stall = 0;
  // The call is in the step before `called`.
  for (auto step = called - 1; step + 1 != all.end() && step->begin < split->at + kStallWindow;
       ++step) {
    const double before = (step - 1)->rate, after = (step + 1)->rate;
    const bool is_low = step->rate < (1 - kLeastMissing) * std::min(before, after);
    if (!is_low && step != landing) continue;
    stall += step->duration * (1 - step->rate * 2 / (before + after));
  }
  return Landing{.at = split->at, .stall = std::llround(stall)};
}

}  // namespace perseus::qualifier
