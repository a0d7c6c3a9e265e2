#include "perseus/runtime/tuner/pipeline_speeds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

namespace perseus::tuner {
namespace {

// Differences of pipelines that are smaller do not matter.
constexpr double kLeastDifference = 0.001;
constexpr double kStandardErrors = 3;
// No measurement is more exact: a few equal times are no proof.
constexpr double kLeastError = 1e-4;

// If the kinds with a known power have a smaller part of the energy of a GPU at a clock, they may
// have the errors of the others.
constexpr double kLeastPart = 0.9;

// The weighted mean of the logarithms of ratios.
class MeanRatio {
 public:
  // `error` is the relative standard error of the ratio.
  void Add(double ratio, double error) {
    if (!(ratio > 0) || !std::isfinite(error)) return;
    error = std::max(error, kLeastError);
    AddWeighted(ratio, 1 / (error * error));
  }
  void AddWeighted(double ratio, double weight) {
    if (!(ratio > 0)) return;
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

// [0]: at the highest clock of the group. [1]: at all other clocks.
using Places = std::array<MeanRatio, 2>;

// The GPUs of a pipeline, relative to those of all pipelines.
//
// The energy of a rank is well known, but not how it is divided among kinds. An error of one kind
// has an opposite one of another kind. With energies as weights, these errors cancel in the mean.
// So the powers of a rank have one ratio for all kinds.
struct RatiosOfPipeline {
  std::map<profiler::InstructionGroup, Places> times;
  std::map<int, Places> powers;  // By pp_rank.

  double TimeOf(const profiler::InstructionGroup& group, std::size_t place) const {
    const auto found = times.find(group);
    return found == times.end() ? 1 : found->second[place].Value();
  }
  bool KnowsPower(int pp_rank, std::size_t place) const {
    const auto found = powers.find(pp_rank);
    return found != powers.end() && found->second[place].is_known();
  }
  double PowerOf(int pp_rank, std::size_t place) const {
    const auto found = powers.find(pp_rank);
    return found == powers.end() ? 1 : found->second[place].Value();
  }
};

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
    for (auto& [dp_rank, pipeline] : pipelines_) pipeline = {};
    struct Energies {
      double own_j = 0;
      double mean_j = 0;  // With the powers of the mean GPU.
      double all_j = 0;   // The same, with the kinds whose own power is unknown.
    };
    std::map<std::tuple<int, int, std::size_t, int>, Energies> energies;
    for (const Measured& one : measured_) {
      const profiler::MeasuredOption& mean = options_[one.option];
      RatiosOfPipeline& ratios = pipelines_[one.dp_rank];
      const profiler::MeasuredOption& own = one.own;
      ratios.times[mean.group][one.place].Add(own.time_s / mean.time_s,
                                              RelativeError(own.time_s, own.time_ci_s));
      const double seconds = own.samples * own.time_s;
      Energies& sums = energies[{one.dp_rank, mean.group.rank, one.place, own.frequency_mhz}];
      sums.all_j += seconds * mean.power_w;
      if (!(own.power_w > 0) || !(mean.power_w > 0)) continue;
      sums.own_j += seconds * own.power_w;
      sums.mean_j += seconds * mean.power_w;
    }
    for (const auto& [where, sums] : energies) {
      const auto& [dp_rank, pp_rank, place, mhz] = where;
      if (sums.mean_j < kLeastPart * sums.all_j) continue;
      pipelines_[dp_rank].powers[pp_rank][place].AddWeighted(sums.own_j / sums.mean_j, sums.mean_j);
    }
  }

  void EstimateOptions() {
    // By which an option is to be corrected.
    std::vector<MeanRatio> times(options_.size());
    std::vector<MeanRatio> powers(options_.size());
    for (const Measured& one : measured_) {
      const profiler::MeasuredOption& mean = options_[one.option];
      const RatiosOfPipeline& ratios = pipelines_[one.dp_rank];
      const profiler::MeasuredOption& own = one.own;
      times[one.option].Add(own.time_s / mean.time_s / ratios.TimeOf(mean.group, one.place),
                            RelativeError(own.time_s, own.time_ci_s));
      if (!ratios.KnowsPower(mean.group.rank, one.place)) continue;
      powers[one.option].Add(
          own.power_w / mean.power_w / ratios.PowerOf(mean.group.rank, one.place),
          RelativeError(own.power_w, own.power_ci_w));
    }
    for (std::size_t i = 0; i < options_.size(); ++i) {
      Correct(times[i], options_[i].time_s, options_[i].time_ci_s);
      Correct(powers[i], options_[i].power_w, options_[i].power_ci_w);
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
    const auto times = pipeline.times.find(group);
    for (const std::size_t place : {0U, 1U}) {
      const double time = times == pipeline.times.end() ? 1 : times->second[place].CertainValue();
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
      time = std::max(time, pipeline.TimeOf(option.group, place));
      power += pipeline.PowerOf(option.group.rank, place);
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
