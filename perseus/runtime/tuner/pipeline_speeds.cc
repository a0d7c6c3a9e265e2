#include "perseus/runtime/tuner/pipeline_speeds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace perseus::tuner {
namespace {

// Differences of pipelines that are smaller do not matter.
constexpr double kLeastDifference = 0.001;
constexpr double kStandardErrors = 3;

// The weighted mean of logarithms of ratios.
class MeanRatio {
 public:
  // `error` is the relative standard error of the ratio.
  void Add(double ratio, double error) {
    if (!(ratio > 0) || !std::isfinite(error) || !(error > 0)) return;
    const double weight = 1 / (error * error);
    sum_ += weight * std::log(ratio);
    weights_ += weight;
  }
  // 1 if the difference is small, or if chance may explain it.
  double Value() const {
    if (weights_ == 0) return 1;
    const double mean = sum_ / weights_;
    const double least = std::max(kLeastDifference, kStandardErrors / std::sqrt(weights_));
    return std::abs(mean) > least ? std::exp(mean) : 1;
  }

 private:
  double sum_ = 0;
  double weights_ = 0;
};

// The GPUs of a pipeline at one pp_rank, relative to those of all pipelines.
struct Ratios {
  MeanRatio time;
  MeanRatio power;
};
// [0]: at the highest clock of a group. [1]: at all other clocks.
using RatiosOfRank = std::array<Ratios, 2>;
// By pp_rank.
using RatiosOfPipeline = std::map<int, RatiosOfRank>;

std::map<profiler::InstructionGroup, int> HighestClocks(
    std::span<const profiler::MeasuredOption> options) {
  std::map<profiler::InstructionGroup, int> highest;
  for (const profiler::MeasuredOption& option : options) {
    int& mhz = highest[option.group];
    mhz = std::max(mhz, option.frequency_mhz);
  }
  return highest;
}

double RelativeError(double value, double half_width) {
  return half_width / profiler::kStandardErrorsOf95 / value;
}

// Compares each GPU with all of them. tp_ranks count together.
std::map<int, RatiosOfPipeline> CompareGpus(
    const std::map<protocol::RankId, profiler::KnownGpu>& gpus,
    std::span<const profiler::MeasuredOption> pooled) {
  const auto highest = HighestClocks(pooled);
  std::map<std::pair<profiler::InstructionGroup, int>, const profiler::MeasuredOption*> mean_of;
  for (const profiler::MeasuredOption& one : pooled) mean_of[{one.group, one.frequency_mhz}] = &one;
  std::map<int, RatiosOfPipeline> pipelines;
  for (const auto& [name, gpu] : gpus) {
    RatiosOfPipeline& pipeline = pipelines[name.dp_rank];
    for (const profiler::MeasuredOption& own : gpu.measurements.Options(name.pp_rank)) {
      const auto group = highest.find(own.group);
      if (own.samples < 2 || own.frequency_mhz == 0 || group == highest.end()) continue;
      const int mhz = std::min(own.frequency_mhz, group->second);
      const auto mean = mean_of.find({own.group, mhz});
      if (mean == mean_of.end()) continue;
      Ratios& ratios = pipeline[name.pp_rank][mhz == group->second ? 0 : 1];
      ratios.time.Add(own.time_s / mean->second->time_s, RelativeError(own.time_s, own.time_ci_s));
      ratios.power.Add(own.power_w / mean->second->power_w,
                       RelativeError(own.power_w, own.power_ci_w));
    }
  }
  return pipelines;
}

// The times of a pipeline, rounded to a multiple of `step`. Pipelines with equal keys share a plan.
std::vector<int> KeyOf(const RatiosOfPipeline& pipeline, double step) {
  std::vector<int> key;
  for (const auto& [pp_rank, ratios] : pipeline) {
    for (const Ratios& one : ratios) {
      key.push_back(static_cast<int>(std::lround(std::log(one.time.Value()) / step)));
    }
  }
  return key;
}

std::map<std::vector<int>, std::vector<int>> GroupsBy(
    const std::map<int, RatiosOfPipeline>& pipelines, double step) {
  std::map<std::vector<int>, std::vector<int>> groups;
  for (const auto& [dp_rank, pipeline] : pipelines) {
    groups[KeyOf(pipeline, step)].push_back(dp_rank);
  }
  return groups;
}

// The options of all GPUs, with the factors of these pipelines: the slowest time and the mean
// power.
std::vector<profiler::MeasuredOption> OptionsOf(const std::vector<int>& dp_ranks,
                                                const std::map<int, RatiosOfPipeline>& pipelines,
                                                std::span<const profiler::MeasuredOption> pooled) {
  const auto highest = HighestClocks(pooled);
  std::vector<profiler::MeasuredOption> options(pooled.begin(), pooled.end());
  for (profiler::MeasuredOption& option : options) {
    const std::size_t place = option.frequency_mhz == highest.at(option.group) ? 0 : 1;
    double time = 0;
    double power = 0;
    for (const int dp_rank : dp_ranks) {
      const RatiosOfPipeline& pipeline = pipelines.at(dp_rank);
      const auto ratios = pipeline.find(option.group.rank);
      const bool is_known = ratios != pipeline.end();
      time = std::max(time, is_known ? ratios->second[place].time.Value() : 1);
      power += is_known ? ratios->second[place].power.Value() : 1;
    }
    option.time_s *= time;
    option.time_ci_s *= time;
    option.power_w *= power / static_cast<double>(dp_ranks.size());
  }
  return options;
}

}  // namespace

std::vector<AlikePipelines> GroupAlike(const std::map<protocol::RankId, profiler::KnownGpu>& gpus,
                                       std::span<const profiler::MeasuredOption> pooled, int most) {
  const std::map<int, RatiosOfPipeline> pipelines = CompareGpus(gpus, pooled);
  double step = kLeastDifference;
  auto groups = GroupsBy(pipelines, step);
  while (static_cast<int>(groups.size()) > most) groups = GroupsBy(pipelines, step *= 1.5);
  std::vector<AlikePipelines> alike;
  if (groups.size() == 1) {
    alike.push_back({groups.begin()->second, {pooled.begin(), pooled.end()}});
    return alike;
  }
  for (const auto& [key, dp_ranks] : groups) {
    alike.push_back({dp_ranks, OptionsOf(dp_ranks, pipelines, pooled)});
  }
  return alike;
}

}  // namespace perseus::tuner
