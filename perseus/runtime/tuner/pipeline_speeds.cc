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
// No measurement is more exact: a few equal times are no proof.
constexpr double kLeastError = 1e-4;

// The weighted mean of the logarithms of ratios.
class MeanRatio {
 public:
  // `error` is the relative standard error of the ratio.
  void Add(double ratio, double error) {
    if (!(ratio > 0) || !std::isfinite(error)) return;
    error = std::max(error, kLeastError);
    const double weight = 1 / (error * error);
    const double logarithm = std::log(ratio);
    sum_ += weight * logarithm;
    squares_ += weight * logarithm * logarithm;
    weights_ += weight;
    ++count_;
  }
  bool is_known() const { return count_ > 0; }
  double Value() const { return is_known() ? std::exp(sum_ / weights_) : 1; }
  // The relative standard error. If the values differ by more than their errors explain, it covers
  // the difference (Birge, Phys. Rev. 40, 207, 1932).
  double Error() const {
    const double scatter = squares_ - sum_ * sum_ / weights_;
    return std::sqrt(std::max(1.0, count_ > 1 ? scatter / (count_ - 1) : 1.0) / weights_);
  }
  // 1 if the difference is small, or if chance may explain it.
  double CertainValue() const {
    if (!is_known()) return 1;
    const double least = std::max(kLeastDifference, kStandardErrors * Error());
    return std::abs(std::log(Value())) > least ? Value() : 1;
  }

 private:
  double sum_ = 0;
  double squares_ = 0;
  double weights_ = 0;
  int count_ = 0;
};

// The GPUs of a pipeline, relative to those of all pipelines.
struct Ratios {
  MeanRatio time;
  MeanRatio power;
};
// [0]: at the highest clock of the group. [1]: at all other clocks.
using RatiosOfGroup = std::array<Ratios, 2>;
using RatiosOfPipeline = std::map<profiler::InstructionGroup, RatiosOfGroup>;

// A measurement of one GPU.
struct Measured {
  int dp_rank = 0;
  std::size_t option = 0;  // The index of the option of all GPUs.
  std::size_t place = 0;   // In RatiosOfGroup.
  profiler::MeasuredOption own;
};

std::map<profiler::InstructionGroup, int> HighestClocks(
    std::span<const profiler::MeasuredOption> options) {
  std::map<profiler::InstructionGroup, int> highest;
  for (const profiler::MeasuredOption& option : options) {
    int& mhz = highest[option.group];
    mhz = std::max(mhz, option.frequency_mhz);
  }
  return highest;
}

std::vector<Measured> MeasurementsOf(const std::map<protocol::RankId, profiler::KnownGpu>& gpus,
                                     std::span<const profiler::MeasuredOption> pooled) {
  const auto highest = HighestClocks(pooled);
  std::map<std::pair<profiler::InstructionGroup, int>, std::size_t> places;
  for (std::size_t i = 0; i < pooled.size(); ++i) {
    places[{pooled[i].group, pooled[i].frequency_mhz}] = i;
  }
  std::vector<Measured> measured;
  for (const auto& [name, gpu] : gpus) {
    for (const profiler::MeasuredOption& own : gpu.measurements.Options(name.pp_rank)) {
      const auto group = highest.find(own.group);
      if (own.samples < 2 || own.frequency_mhz == 0 || group == highest.end()) continue;
      const int mhz = std::min(own.frequency_mhz, group->second);
      const auto option = places.find({own.group, mhz});
      if (option == places.end()) continue;
      const std::size_t place = mhz == group->second ? 0 : 1;
      measured.push_back({name.dp_rank, option->second, place, own});
    }
  }
  return measured;
}

double RelativeError(double value, double half_width) {
  return half_width / profiler::kStandardErrorsOf95 / value;
}

// How the pipelines differ, and the options of a mean GPU.
//
// While plans are followed, a low clock is that of fast GPUs only. So a mean over the GPUs that ran
// at a clock is not that of a mean GPU. The model is time = (time of the clock) * (ratio of the
// pipeline), and the same for power. Each of the two factors is estimated in turn from the other.
class Model {
 public:
  Model(const std::map<protocol::RankId, profiler::KnownGpu>& gpus,
        std::span<const profiler::MeasuredOption> pooled)
      : measured_(MeasurementsOf(gpus, pooled)), options_(pooled.begin(), pooled.end()) {
    for (const auto& [name, gpu] : gpus) pipelines_[name.dp_rank];  // Also without a measurement.
    constexpr int kTurns = 8;
    for (int turn = 0; turn < kTurns; ++turn) {
      EstimateRatios();
      EstimateOptions();
    }
    EstimateRatios();
  }
  const std::map<int, RatiosOfPipeline>& pipelines() const { return pipelines_; }
  const std::vector<profiler::MeasuredOption>& options() const { return options_; }

 private:
  void EstimateRatios() {
    for (auto& [dp_rank, pipeline] : pipelines_) pipeline.clear();
    for (const Measured& one : measured_) {
      const profiler::MeasuredOption& mean = options_[one.option];
      Ratios& ratios = pipelines_[one.dp_rank][mean.group][one.place];
      const profiler::MeasuredOption& own = one.own;
      ratios.time.Add(own.time_s / mean.time_s, RelativeError(own.time_s, own.time_ci_s));
      ratios.power.Add(own.power_w / mean.power_w, RelativeError(own.power_w, own.power_ci_w));
    }
  }

  void EstimateOptions() {
    std::vector<Ratios> factors(options_.size());  // By which an option is to be corrected.
    for (const Measured& one : measured_) {
      const profiler::MeasuredOption& mean = options_[one.option];
      const Ratios& ratios = pipelines_[one.dp_rank][mean.group][one.place];
      const profiler::MeasuredOption& own = one.own;
      factors[one.option].time.Add(own.time_s / mean.time_s / ratios.time.Value(),
                                   RelativeError(own.time_s, own.time_ci_s));
      factors[one.option].power.Add(own.power_w / mean.power_w / ratios.power.Value(),
                                    RelativeError(own.power_w, own.power_ci_w));
    }
    for (std::size_t i = 0; i < options_.size(); ++i) {
      Correct(factors[i].time, options_[i].time_s, options_[i].time_ci_s);
      Correct(factors[i].power, options_[i].power_w, options_[i].power_ci_w);
    }
  }

  // The interval does not contain how much GPUs differ, because their ratios say it.
  static void Correct(const MeanRatio& factor, double& value, double& half_width) {
    if (!factor.is_known()) return;
    value *= factor.Value();
    half_width = profiler::kStandardErrorsOf95 * factor.Error() * value;
  }

  std::vector<Measured> measured_;
  std::vector<profiler::MeasuredOption> options_;
  std::map<int, RatiosOfPipeline> pipelines_;
};

// The times of a pipeline in each of `groups`, rounded to a multiple of `step`. Pipelines with
// equal keys share a plan. What is not known counts as the mean.
std::vector<int> KeyOf(const RatiosOfPipeline& pipeline,
                       const std::map<profiler::InstructionGroup, int>& groups, double step) {
  std::vector<int> key;
  for (const auto& [group, highest] : groups) {
    const auto ratios = pipeline.find(group);
    for (const std::size_t place : {0U, 1U}) {
      const double time = ratios == pipeline.end() ? 1 : ratios->second[place].time.CertainValue();
      key.push_back(static_cast<int>(std::lround(std::log(time) / step)));
    }
  }
  return key;
}

// The options of a mean GPU, with the factors of these pipelines: the slowest time and the mean
// power.
std::vector<profiler::MeasuredOption> OptionsOf(const std::vector<int>& dp_ranks,
                                                const Model& model) {
  const auto highest = HighestClocks(model.options());
  std::vector<profiler::MeasuredOption> options = model.options();
  for (profiler::MeasuredOption& option : options) {
    const std::size_t place = option.frequency_mhz == highest.at(option.group) ? 0 : 1;
    double time = 0;
    double power = 0;
    for (const int dp_rank : dp_ranks) {
      const RatiosOfPipeline& pipeline = model.pipelines().at(dp_rank);
      const auto ratios = pipeline.find(option.group);
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
  const Model model(gpus, pooled);
  const auto all_groups = HighestClocks(pooled);
  const auto group_by = [&](double step) {
    std::map<std::vector<int>, std::vector<int>> groups;
    for (const auto& [dp_rank, pipeline] : model.pipelines()) {
      groups[KeyOf(pipeline, all_groups, step)].push_back(dp_rank);
    }
    return groups;
  };
  // With a step above all differences, all keys are equal.
  double step = kLeastDifference;
  auto groups = group_by(step);
  while (std::ssize(groups) > most) groups = group_by(step *= 1.5);
  std::vector<AlikePipelines> alike;
  for (const auto& [key, dp_ranks] : groups) {
    const bool is_all = groups.size() == 1;
    alike.push_back({dp_ranks, is_all ? std::vector(pooled.begin(), pooled.end())
                                      : OptionsOf(dp_ranks, model)});
  }
  return alike;
}

}  // namespace perseus::tuner
