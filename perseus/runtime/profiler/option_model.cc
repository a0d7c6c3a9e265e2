#include "perseus/runtime/profiler/option_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "perseus/base/statistics.h"
#include "perseus/runtime/profiler/cholesky.h"

namespace perseus::profiler {
namespace {

// Standard deviations of the vague priors. Two deviations of a level are a factor of e^2 from the
// group's mean. Two deviations of a trend are clock^-4 and clock^4.
constexpr double kLevel = 1;
constexpr double kTrend = 2;

constexpr std::array kSmooth = {0.03, 0.1, 0.3};
constexpr std::array kReach = {0.2, 0.45};
constexpr std::array kRoughness = {0.0007, 0.002, 0.005, 0.015};
constexpr std::array kOwnShare = {0.003, 0.03, 0.2, 1.0};
// The priors of the logarithms: their centers, and their common standard deviation.
constexpr double kUsualSmooth = 0.1;
constexpr double kUsualRoughness = 0.004;
constexpr double kPriorWidth = 0.9;
// If there are more points than this, the additional points cost time, and do not make the scales
// more certain.
constexpr std::size_t kMostPointsForScales = 200;

double LogPrior(double value, double usual) {
  const double deviations = std::log(value / usual) / kPriorWidth;
  return -0.5 * deviations * deviations;
}

Eigen::Map<const Eigen::VectorXd> AsVector(const std::vector<double>& values) {
  return {values.data(), static_cast<Eigen::Index>(values.size())};
}

std::vector<double> AsList(const Eigen::VectorXd& values) {
  return {values.data(), values.data() + values.size()};
}

// Limits of relative errors: the resolution of a clock, and the assumed error of a single sample,
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

CurveModel::CurveModel(std::span<const CurvePoint> points) {
  std::vector<int> counts;
  for (const CurvePoint& point : points) {
    highest_mhz_ = std::max(highest_mhz_, point.frequency_mhz);
    const auto group = static_cast<std::size_t>(point.group);
    if (group >= centers_.size()) {
      centers_.resize(group + 1);
      counts.resize(group + 1);
    }
    centers_[group] += std::log(point.value);
    ++counts[group];
    center_ += std::log(point.value) / static_cast<double>(points.size());
  }
  for (std::size_t group = 0; group < counts.size(); ++group) {
    centers_[group] = counts[group] == 0 ? center_ : centers_[group] / counts[group];
  }
  for (const CurvePoint& point : points) {
    points_.push_back({point.group, std::log(point.frequency_mhz / highest_mhz_),
                       std::log(point.value) - CenterOf(point.group),
                       point.relative_standard_error * point.relative_standard_error});
  }

  const std::vector<Point> all = points_;
  points_.resize(std::min(points_.size(), kMostPointsForScales));
  Scales best;
  double greatest = -std::numeric_limits<double>::infinity();
  for (const double smooth : kSmooth) {
    for (const double reach : kReach) {
      for (const double roughness : kRoughness) {
        for (const double own_share : kOwnShare) {
          const Scales scales{smooth, reach, roughness, own_share};
          const double density = FitWith(scales) + LogPrior(smooth, kUsualSmooth) +
                                 LogPrior(roughness, kUsualRoughness);
          if (density > greatest) {
            greatest = density;
            best = scales;
          }
        }
      }
    }
  }
  points_ = all;
  FitWith(best);
}

double CurveModel::CenterOf(int group) const {
  const auto index = static_cast<std::size_t>(group);
  return index < centers_.size() ? centers_[index] : center_;
}

double CurveModel::Covariance(const Point& a, const Point& b) const {
  const bool is_same_group = a.group == b.group;
  const double shared = is_same_group ? 1 : 1 - scales_.own_share;
  const double distance = std::sqrt(5.0) * std::abs(a.x - b.x) / scales_.reach;
  const double matern = (1 + distance + distance * distance / 3) * std::exp(-distance);
  const double rough = a.x == b.x ? scales_.roughness * scales_.roughness : 0;
  return (is_same_group ? kLevel * kLevel : 0) +
         shared * (kTrend * kTrend * a.x * b.x + scales_.smooth * scales_.smooth * matern + rough);
}

std::vector<double> CurveModel::CovariancesWith(const Point& point) const {
  std::vector<double> covariances;
  covariances.reserve(points_.size());
  for (const Point& other : points_) covariances.push_back(Covariance(point, other));
  return covariances;
}

// Returns the logarithm of the density of the measurements, up to a constant.
double CurveModel::FitWith(const Scales& scales) {
  scales_ = scales;
  const auto n = static_cast<Eigen::Index>(points_.size());
  Eigen::MatrixXd covariance(n, n);
  Eigen::VectorXd y(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    const Point& point = points_[static_cast<std::size_t>(i)];
    y(i) = point.y;
    for (Eigen::Index j = 0; j <= i; ++j) {
      covariance(i, j) = Covariance(point, points_[static_cast<std::size_t>(j)]);
    }
    // The roughness adds at least 5e-7 to a diagonal of about 5, which is far above the rounding of
    // doubles. So the matrix stays definite.
    covariance(i, i) += point.noise_variance;
  }
  const auto factor = FactorCovariance(std::move(covariance));
  const Eigen::MatrixXd lower = factor.matrixL();
  factor_.assign(lower.data(), lower.data() + lower.size());
  weights_ = AsList(factor.solve(y));
  const double squares = factor.matrixL().solve(y).squaredNorm();
  return -0.5 * (squares + LogDeterminant(factor));
}

CurveModel::Prediction CurveModel::At(int group, double frequency_mhz) const {
  const Point point{group, std::log(frequency_mhz / highest_mhz_), 0, 0};
  const std::vector<double> covariances = CovariancesWith(point);
  const double mean = CenterOf(group) + AsVector(covariances).dot(AsVector(weights_));
  const auto n = static_cast<Eigen::Index>(points_.size());
  const Eigen::Map<const Eigen::MatrixXd> factor(factor_.data(), n, n);
  const Eigen::VectorXd explained =
      factor.triangularView<Eigen::Lower>().solve(AsVector(covariances));
  const double variance = Covariance(point, point) - explained.squaredNorm();
  return {std::exp(mean), std::sqrt(std::max(variance, 1e-14)), group, point.x, AsList(explained)};
}

double CurveModel::CovarianceOf(const Prediction& a, const Prediction& b) const {
  return Covariance({a.group, a.x, 0, 0}, {b.group, b.x, 0, 0}) -
         AsVector(a.explained).dot(AsVector(b.explained));
}

OptionModel::OptionModel(std::span<const MeasuredOption> measured) {
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
  std::erase_if(points, [](const auto& of_kind) { return of_kind.second.powers.empty(); });
  const bool has_one_stage = std::ranges::all_of(
      measured_, [this](const auto& option) { return IndexOf(option.second.group) == 0; });
  std::vector<CurvePoint> all_powers;
  int kinds = 0;
  for (auto& [kind, of_kind] : points) {
    if (!has_one_stage) continue;
    for (CurvePoint& point : of_kind.powers) point.group = kinds;
    all_powers.insert(all_powers.end(), of_kind.powers.begin(), of_kind.powers.end());
    ++kinds;
  }
  int first_power_group = 0;
  for (const auto& [kind, of_kind] : points) {
    kinds_.emplace(kind, KindModel{CurveModel(of_kind.times),
                                   CurveModel(has_one_stage ? all_powers : of_kind.powers),
                                   MedianError(of_kind.times), MedianError(of_kind.powers),
                                   first_power_group});
    if (has_one_stage) ++first_power_group;
  }
}

bool OptionModel::Knows(InstructionKind kind) const { return kinds_.contains(kind); }

OptionModel::Prediction OptionModel::At(const InstructionGroup& group, int frequency_mhz) const {
  const KindModel& kind = Of(group.kind);
  const CurveModel::Prediction time = kind.time.At(IndexOf(group), frequency_mhz);
  const CurveModel::Prediction power =
      kind.power.At(kind.first_power_group + IndexOf(group), frequency_mhz);
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
  const KindModel& kind = Of(groups.front().kind);
  std::vector<int> indices;
  std::vector<int> power_indices;
  for (const InstructionGroup& group : groups) {
    indices.push_back(IndexOf(group));
    power_indices.push_back(kind.first_power_group + indices.back());
  }
  return {CovariancesOf(kind.time, indices, frequency_mhz),
          CovariancesOf(kind.power, power_indices, frequency_mhz)};
}

}  // namespace perseus::profiler
