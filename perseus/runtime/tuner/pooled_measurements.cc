#include "perseus/runtime/tuner/pooled_measurements.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "perseus/base/statistics.h"

namespace perseus::tuner {
namespace {

// GPUs count as different if their distance is larger than their intervals by more than this
// factor. For two equal GPUs, this happens by chance in one case of 20. For more equal GPUs, it
// happens less often.
constexpr double kMostByChance = 2;

// The factor by which an interval has to be widened so that it covers the difference between GPUs
// (Birge, Phys. Rev. 40, 207, 1932). Without this factor, the mean would hide a GPU that is slower
// than the others, because the interval of a mean becomes narrower with the number of GPUs.
class Spread {
 public:
  // Adds a value with the half-width of its 95 % interval.
  void Add(double value, double half_width) {
    if (half_width > 0 && std::isfinite(half_width)) values_.emplace_back(value, half_width);
  }
  double FactorAround(double mean) const {
    if (values_.size() < 2) return 1;
    double squares = 0;
    for (const auto& [value, half_width] : values_) {
      squares += std::pow((value - mean) / half_width * profiler::kStandardErrorsOf95, 2);
    }
    const double factor = std::sqrt(squares / static_cast<double>(values_.size() - 1));
    return factor > kMostByChance ? factor : 1;
  }

 private:
  std::vector<std::pair<double, double>> values_;
};

// Sums over the GPUs of a stage.
struct Pooled {
  std::int64_t samples = 0;
  double time_s = 0;       // The sum of time * samples.
  double time_square = 0;  // The sum of (interval * samples)^2.
  double power_weights = 0;
  double power_w = 0;  // The sum of power * weight.
  Spread times;
  Spread powers;

  void Add(const profiler::MeasuredOption& option) {
    samples += option.samples;
    time_s += option.samples * option.time_s;
    // A single sample has no interval. For such a sample, the interval counts as wide as the time.
    const double ci_s = std::min(option.time_ci_s, option.time_s);
    times.Add(option.time_s, ci_s);
    time_square += option.samples * ci_s * option.samples * ci_s;
    if (!(option.power_w > 0) || !std::isfinite(option.power_ci_w) || option.power_ci_w <= 0)
      return;
    const double weight = 1 / (option.power_ci_w * option.power_ci_w);
    powers.Add(option.power_w, option.power_ci_w);
    power_weights += weight;
    power_w += weight * option.power_w;
  }

  profiler::MeasuredOption Mean(const profiler::InstructionGroup& group, int frequency_mhz) const {
    profiler::MeasuredOption mean;
    mean.group = group;
    mean.frequency_mhz = frequency_mhz;
    mean.samples = static_cast<int>(samples);
    mean.time_s = time_s / static_cast<double>(samples);
    mean.time_ci_s =
        std::sqrt(time_square) / static_cast<double>(samples) * times.FactorAround(mean.time_s);
    if (power_weights > 0) {
      mean.power_w = power_w / power_weights;
      mean.power_ci_w = 1 / std::sqrt(power_weights) * powers.FactorAround(mean.power_w);
    }
    return mean;
  }
};

}  // namespace

std::map<profiler::InstructionGroup, int> ReachedClocks(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus, const ClocksOfRanks& clocks_mhz) {
  std::map<profiler::InstructionGroup, int> reached;  // The highest of all GPUs.
  for (const auto& [name, gpu] : gpus) {
    const std::vector<int>& clocks = clocks_mhz[static_cast<std::size_t>(name.pp_rank)];
    struct OfGpu {
      int reached_mhz = 0;
      int wanted_mhz = 0;  // The highest requested clock with readings.
    };
    std::map<profiler::InstructionGroup, OfGpu> groups;
    for (const profiler::MeasuredOption& option : gpu.measurements.Options(name.pp_rank)) {
      OfGpu& group = groups[option.group];
      if (option.reached_mhz == 0) continue;
      const auto listed = std::ranges::lower_bound(clocks, option.reached_mhz);
      const int mhz = listed == clocks.end() ? clocks.back() : *listed;
      group.reached_mhz = std::max(group.reached_mhz, mhz);
      group.wanted_mhz = std::max(group.wanted_mhz, option.frequency_mhz);
    }
    for (const auto& [group, of_gpu] : groups) {
      const bool is_limited = of_gpu.reached_mhz < of_gpu.wanted_mhz;
      int& highest = reached[group];
      highest = std::max(highest, is_limited ? of_gpu.reached_mhz : clocks.back());
    }
  }
  return reached;
}

std::map<profiler::InstructionGroup, int> UsualClocks(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus, const ClocksOfRanks& clocks_mhz) {
  const auto reached = ReachedClocks(gpus, clocks_mhz);
  std::map<profiler::InstructionGroup, int> usual;
  for (const auto& [name, gpu] : gpus) {
    const std::vector<int>& clocks = clocks_mhz[static_cast<std::size_t>(name.pp_rank)];
    std::map<profiler::InstructionGroup, std::pair<double, double>> sums;  // Clocks, samples.
    for (const profiler::MeasuredOption& option : gpu.measurements.Options(name.pp_rank)) {
      if (!option.is_held_down() || reached.at(option.group) == clocks.back()) continue;
      auto& [clock_sum, samples] = sums[option.group];
      clock_sum += option.samples * option.usual_mhz;
      samples += option.samples;
    }
    for (const auto& [group, sum] : sums) {
      int& highest = usual[group];
      highest = std::max(highest, NearestTo(clocks, sum.first / sum.second));
    }
  }
  return usual;
}

ClocksOfRanks WithoutUnreached(ClocksOfRanks clocks_mhz,
                               const std::map<profiler::InstructionGroup, int>& reached_mhz) {
  std::map<int, int> highest;  // [pp_rank]
  for (const auto& [group, mhz] : reached_mhz) {
    highest[group.rank] = std::max(highest[group.rank], mhz);
  }
  for (const auto& [rank, most_mhz] : highest) {
    std::erase_if(clocks_mhz[static_cast<std::size_t>(rank)],
                  [most = most_mhz](int mhz) { return mhz > most; });
  }
  return clocks_mhz;
}

std::vector<profiler::MeasuredOption> PooledOptions(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus, const ClocksOfRanks& clocks_mhz) {
  std::map<std::pair<profiler::InstructionGroup, int>, Pooled> pooled;
  for (const auto& [name, gpu] : gpus) {
    const int highest = clocks_mhz.empty()
                            ? std::numeric_limits<int>::max()
                            : clocks_mhz[static_cast<std::size_t>(name.pp_rank)].back();
    for (const profiler::MeasuredOption& option : gpu.measurements.Options(name.pp_rank)) {
      // 0 MHz means the default clocks, which cannot be requested.
      if (option.samples == 0 || option.frequency_mhz == 0) continue;
      pooled[{option.group, std::min(option.frequency_mhz, highest)}].Add(option);
    }
  }
  std::vector<profiler::MeasuredOption> options;
  for (const auto& [key, sums] : pooled) options.push_back(sums.Mean(key.first, key.second));
  return options;
}

std::optional<double> ConsensusPower(std::span<const profiler::PowerEstimate> estimates) {
  const auto is_known = [](const profiler::PowerEstimate& estimate) {
    return estimate.is_identified && estimate.standard_error_w > 0;
  };
  // The sums over the estimates with weights 1 / (standard error^2 + between).
  struct Sums {
    double count = 0;
    double weights = 0;
    double squared_weights = 0;
    double powers = 0;
    double Mean() const { return powers / weights; }
  };
  const auto sums = [&](double between) {
    Sums all;
    for (const profiler::PowerEstimate& estimate : estimates) {
      if (!is_known(estimate)) continue;
      const double weight = 1 / (estimate.standard_error_w * estimate.standard_error_w + between);
      all.count += 1;
      all.weights += weight;
      all.squared_weights += weight * weight;
      all.powers += weight * estimate.power_w;
    }
    return all;
  };
  const Sums alike = sums(0);
  if (alike.count == 0) return std::nullopt;
  if (alike.count == 1) return std::max(0.0, alike.Mean());
  double scatter = 0;  // If the estimates differ only by chance, the expected value is count - 1.
  for (const profiler::PowerEstimate& estimate : estimates) {
    if (!is_known(estimate)) continue;
    const double errors = (estimate.power_w - alike.Mean()) / estimate.standard_error_w;
    scatter += errors * errors;
  }
  const double between = std::max(0.0, scatter - (alike.count - 1)) /
                         (alike.weights - alike.squared_weights / alike.weights);
  return std::max(0.0, sums(between).Mean());
}

std::optional<double> PooledBlockingPower(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus) {
  std::vector<profiler::PowerEstimate> estimates;
  for (const auto& [name, gpu] : gpus) {
    // A GPU that waits for nanoseconds in a step tells nothing (seen: 2e16 W).
    double most_w = 0;
    for (const profiler::MeasuredOption& option : gpu.measurements.Options(name.pp_rank)) {
      most_w = std::max(most_w, option.power_w);
    }
    const profiler::PowerEstimate estimate = gpu.measurements.BlockingPower();
    if (estimate.standard_error_w <= most_w) estimates.push_back(estimate);
  }
  return ConsensusPower(estimates);
}

std::vector<profiler::MeasuredOption> WithTimesOf(std::span<const profiler::MeasuredOption> other,
                                                  std::vector<profiler::MeasuredOption> options) {
  for (const profiler::MeasuredOption& timed : other) {
    const auto same = std::ranges::find_if(options, [&](const profiler::MeasuredOption& option) {
      return option.group == timed.group && option.frequency_mhz == timed.frequency_mhz;
    });
    if (same == options.end()) continue;
    same->samples = timed.samples;
    same->time_s = timed.time_s;
    same->time_ci_s = timed.time_ci_s;
  }
  return options;
}

profile::Profile MeasuredProfile(std::span<const profiler::MeasuredOption> options) {
  std::map<profiler::InstructionGroup, profile::ProfileEntry> entries;
  for (const profiler::MeasuredOption& measured : options) {
    if (!(measured.power_w > 0)) continue;
    const profiler::InstructionGroup& group = measured.group;
    profile::ProfileEntry& entry = entries[group];
    entry.pp_rank = group.rank;
    entry.chunk = group.chunk;
    entry.kind = group.kind;
    profile::Option option;
    option.frequency_mhz = measured.frequency_mhz;
    option.time = ToNanoseconds(measured.time_s);
    option.energy_j = measured.energy_j();
    option.samples = measured.samples;
    option.time_ci_s = measured.time_ci_s;
    option.energy_ci_j = measured.energy_ci_j();
    entry.options.push_back(std::move(option));
  }
  std::vector<profile::ProfileEntry> list;
  for (auto& [group, entry] : entries) list.push_back(std::move(entry));
  return profile::Profile("what was measured", {}, std::move(list));
}

}  // namespace perseus::tuner
