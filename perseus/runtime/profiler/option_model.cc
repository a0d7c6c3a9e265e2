#include "perseus/runtime/profiler/option_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "perseus/base/statistics.h"

namespace perseus::profiler {
namespace {

// Limits of relative errors: what a clock can resolve, and the assumed error of a single sample,
// which has no interval of its own.
constexpr double kLeastError = 1e-5;
constexpr double kMostError = 0.1;

double RelativeError(double half_width, double value) {
  return std::clamp(half_width / kStandardErrorsOf95 / value, kLeastError, kMostError);
}

struct Points {
  std::vector<CurvePoint> times;
  std::vector<CurvePoint> powers;
};

double MedianError(std::span<const CurvePoint> points) {
  std::vector<double> errors;
  for (const CurvePoint& point : points) errors.push_back(point.relative_standard_error);
  return Median(std::move(errors));
}

std::vector<std::vector<double>> CovariancesOf(const CurveModel& model, std::span<const int> groups,
                                               double frequency_mhz) {
  std::vector<CurveModel::Prediction> predictions;
  for (const int group : groups) predictions.push_back(model.At(group, frequency_mhz));
  std::vector<std::vector<double>> covariances(groups.size(), std::vector<double>(groups.size()));
  for (std::size_t a = 0; a < groups.size(); ++a) {
    for (std::size_t b = 0; b <= a; ++b) {
      covariances[a][b] = covariances[b][a] = model.CovarianceOf(predictions[a], predictions[b]);
    }
  }
  return covariances;
}

}  // namespace

OptionModel::OptionModel(std::span<const MeasuredOption> measured, CurveModel::Sharing sharing) {
  for (const MeasuredOption& option : measured) {
    chunks_ = std::max(chunks_, option.group.chunk + 1);
    measured_.insert_or_assign({option.group, option.frequency_mhz}, option);
  }
  std::map<InstructionKind, Points> points;
  for (const auto& [key, option] : measured_) {
    const int group = IndexOf(option.group);
    Points& of_kind = points[option.group.kind];
    of_kind.times.push_back({group, static_cast<double>(option.frequency_mhz), option.time_s,
                             RelativeError(option.time_ci_s, option.time_s)});
    if (option.power_w <= 0) continue;
    of_kind.powers.push_back({group, static_cast<double>(option.frequency_mhz), option.power_w,
                              RelativeError(option.power_ci_w, option.power_w)});
  }
  for (const auto& [kind, of_kind] : points) {
    if (of_kind.powers.empty()) continue;
    kinds_.emplace(
        kind, KindModel{CurveModel(of_kind.times, sharing), CurveModel(of_kind.powers, sharing),
                        MedianError(of_kind.times), MedianError(of_kind.powers)});
  }
}

bool OptionModel::Knows(InstructionKind kind) const { return kinds_.contains(kind); }

OptionModel::Prediction OptionModel::At(const InstructionGroup& group, int frequency_mhz) const {
  const KindModel& kind = Of(group.kind);
  const CurveModel::Prediction time = kind.time.At(IndexOf(group), frequency_mhz);
  const CurveModel::Prediction power = kind.power.At(IndexOf(group), frequency_mhz);
  return {time.value, time.relative_standard_deviation, power.value,
          power.relative_standard_deviation};
}

const MeasuredOption* OptionModel::Measured(const InstructionGroup& group,
                                            int frequency_mhz) const {
  const auto found = measured_.find({group, frequency_mhz});
  return found == measured_.end() ? nullptr : &found->second;
}

OptionModel::Covariances OptionModel::CovariancesAt(std::span<const InstructionGroup> groups,
                                                    int frequency_mhz) const {
  std::vector<int> indices;
  for (const InstructionGroup& group : groups) indices.push_back(IndexOf(group));
  const KindModel& kind = Of(groups.front().kind);
  return {CovariancesOf(kind.time, indices, frequency_mhz),
          CovariancesOf(kind.power, indices, frequency_mhz)};
}

}  // namespace perseus::profiler
