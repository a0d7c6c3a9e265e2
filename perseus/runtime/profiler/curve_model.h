// What instructions probably take at clocks where nobody measured them, and how sure that is.
//
// The problem. A few clocks were measured, each with its own error. Of the others a planner wants
// the value, and a profiler wants to know where the next measurement tells most: both need an
// uncertainty that is small near what was measured and honest in between. And the stages of a
// pipeline hold like layers on like GPUs: what one has shown says something of the others, and how
// much it says has to be learnt, too.
//
// The model (universal kriging with several outputs; Rasmussen and Williams, Gaussian Processes for
// Machine Learning, 2006, chapters 2 and 5; Bonilla et al., NeurIPS 2007). A *group* is what has a
// curve of its own: a (rank, chunk). With x = ln(clock / highest clock) and y = ln(value),
//
//     y_g(x) = level_g + trend_g x + smooth_g(x) + roughness_g(x)
//
//   level      any; of each group alone.
//   trend      a power law: time falls, power rises with the clock. A vague prior.
//   smooth     a Gaussian process with Matérn 5/2 covariance: twice differentiable, no more. It
//              bends where a GPU leaves its power limit or reaches its voltage floor.
//   roughness  every clock's own deviation, independent of its neighbours'. Real profiles have it,
//              it does not go away with more samples, and it is what makes one of two neighbouring
//              clocks the better choice.
//
// Each of the last three is the sum of a part that all groups share and one of the group's own;
// `own_share` is the latter's part of the variance. How large smooth and roughness are, how far
// smooth reaches, and own_share are chosen from a grid by the posterior density of the
// measurements. If groups turn out to differ, own_share is 1, and each stands for itself.
//
// Rivals. The published exponential (profile/curve.h) has three parameters, fits effective energy
// alone, and gives no uncertainty. The same model with own_share fixed at 1 needs more than ten
// clocks a group for rough profiles. docs/client.md has what either loses.
//
// What it cannot do: foresee a jump that no measured clock of any group has seen.
//
// Immutable; any thread. Fitting n points costs about 100 n^3 / 6 multiplications.
#pragma once

#include <span>
#include <vector>

namespace perseus::profiler {

struct CurvePoint {
  int group = 0;
  double frequency_mhz = 0;
  double value = 0;                    // > 0: seconds, watts.
  double relative_standard_error = 0;  // Of the measurement; > 0.
};

class CurveModel {
 public:
  struct Prediction {
    double value = 0;
    double relative_standard_deviation = 0;
    // For CovarianceOf: L^-1 times the covariances with the points.
    int group = 0;
    double x = 0;
    std::vector<double> explained;
  };
  enum class Sharing { kLearnt, kNone };

  // Requires at least one point, and of each group each clock once.
  explicit CurveModel(std::span<const CurvePoint> points, Sharing sharing = Sharing::kLearnt);

  // Of the true value at that clock. At a measured one: near the measurement, and as sure. A group
  // without a point gets the others' average and next to no certainty.
  Prediction At(int group, double frequency_mhz) const;
  // Of the logarithms of two true values, given all measurements so far.
  double CovarianceOf(const Prediction& a, const Prediction& b) const;

  // Standard deviation of a clock's own deviation, as a fraction.
  double roughness() const { return scales_.roughness; }
  double own_share() const { return scales_.own_share; }

 private:
  struct Scales {
    double smooth = 0;
    double reach = 0;  // In x.
    double roughness = 0;
    double own_share = 0;
  };
  struct Point {
    int group = 0;
    double x = 0;
    double y = 0;  // From its group's mean.
    double noise_variance = 0;
  };
  double Covariance(const Point& a, const Point& b) const;
  double FitWith(const Scales& scales);
  double CenterOf(int group) const;
  // With each of the points.
  std::vector<double> CovariancesWith(const Point& point) const;

  double highest_mhz_ = 0;
  std::vector<double> centers_;  // By group: mean of ln(value).
  double center_ = 0;
  std::vector<Point> points_;
  Scales scales_;
  std::vector<double> factor_;   // The Cholesky factor L of the covariance, by columns.
  std::vector<double> weights_;  // Covariance^-1 y.
};

}  // namespace perseus::profiler
