#include "perseus/runtime/profiler/curve_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace perseus::profiler {
namespace {

// Standard deviations of the vague priors: a level within a factor of e of the group's mean, a
// trend between clock^-4 and clock^4.
constexpr double kLevel = 1;
constexpr double kTrend = 2;

constexpr std::array kSmooth = {0.03, 0.1, 0.3};
constexpr std::array kReach = {0.2, 0.45};
constexpr std::array kRoughness = {0.0007, 0.002, 0.005, 0.015};
constexpr std::array kOwnShare = {0.003, 0.03, 0.2, 1.0};
// Where the priors have their middle, and how wide they are, as logarithms.
constexpr double kUsualSmooth = 0.1;
constexpr double kUsualRoughness = 0.004;
constexpr double kPriorWidth = 0.9;
// More points than this add nothing to how well the scales are known, only time.
constexpr std::size_t kMostPointsForScales = 200;

double LogPrior(double value, double usual) {
  const double deviations = std::log(value / usual) / kPriorWidth;
  return -0.5 * deviations * deviations;
}

double DotOfCommonLength(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(),
                            a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())),
                            b.begin(), 0.0);
}

}  // namespace

CurveModel::CurveModel(std::span<const CurvePoint> points, Sharing sharing) {
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
          if (sharing == Sharing::kNone && own_share != 1) continue;
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

std::vector<double> CurveModel::Explained(const Point& point) const {
  std::vector<double> explained(factor_.size());
  for (std::size_t i = 0; i < factor_.size(); ++i) {
    double sum = Covariance(point, points_[i]);
    for (std::size_t k = 0; k < i; ++k) sum -= factor_[i][k] * explained[k];
    explained[i] = sum / factor_[i][i];
  }
  return explained;
}

// The logarithm of the density of the measurements, up to a constant.
double CurveModel::FitWith(const Scales& scales) {
  scales_ = scales;
  factor_.clear();
  double log_determinant = 0;
  double squares = 0;
  std::vector<double> whitened;
  for (const Point& point : points_) {
    std::vector<double> row = Explained(point);
    // The roughness, 5e-7 at least, beside entries of about 5: far above a double's rounding.
    const double variance =
        Covariance(point, point) + point.noise_variance - DotOfCommonLength(row, row);
    const double deviation = std::sqrt(std::max(variance, 1e-12));
    whitened.push_back((point.y - DotOfCommonLength(row, whitened)) / deviation);
    squares += whitened.back() * whitened.back();
    log_determinant += 2 * std::log(deviation);
    row.push_back(deviation);
    factor_.push_back(std::move(row));
  }
  weights_ = std::move(whitened);
  FindWeights();
  return -0.5 * (squares + log_determinant);
}

// From L^-1 y in weights_.
void CurveModel::FindWeights() {
  for (std::size_t i = weights_.size(); i-- > 0;) {
    weights_[i] /= factor_[i][i];
    for (std::size_t j = 0; j < i; ++j) weights_[j] -= factor_[i][j] * weights_[i];
  }
}

CurveModel::Prediction CurveModel::At(int group, double frequency_mhz) const {
  const Point point{group, std::log(frequency_mhz / highest_mhz_), 0, 0};
  double mean = CenterOf(group);
  for (std::size_t i = 0; i < points_.size(); ++i)
    mean += Covariance(point, points_[i]) * weights_[i];
  std::vector<double> explained = Explained(point);
  const double variance = Covariance(point, point) - DotOfCommonLength(explained, explained);
  return {std::exp(mean), std::sqrt(std::max(variance, 1e-14)), group, point.x,
          std::move(explained)};
}

double CurveModel::CovarianceOf(const Prediction& a, const Prediction& b) const {
  return Covariance({a.group, a.x, 0, 0}, {b.group, b.x, 0, 0}) -
         DotOfCommonLength(a.explained, b.explained);
}

}  // namespace perseus::profiler
