// All options of a job, measured or not: the probable time and power of each option, and their
// uncertainty.
//
// For each kind of instruction, the model has two curve models, which cover all pp_ranks and
// chunks: one CurveModel for the times, and one for the powers. The model is immutable, so any
// thread may use it.
//
// Without a pipeline, there is only one stage, so no other stage helps to predict it. Also, all
// windows of the energy counter contain the kinds in nearly the same proportion. So the powers of
// kinds have large errors of opposite sign: a forward seemed to draw more power at a lower clock,
// and a backward much less. So the kinds then share one CurveModel of powers, each as a group.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "perseus/runtime/profiler/measured_option.h"

namespace perseus::profiler {

// A model of the time or the power of instructions at clocks that were not measured, with the
// uncertainty of each prediction.
//
// The problem. A few clocks were measured, each with its own error. A planner needs the values at
// the other clocks. A profiler needs to know where the next measurement helps most. Both need an
// uncertainty that is small near the measurements, and realistic between them. The stages of a
// pipeline have similar layers on similar GPUs, so the measurements of one stage also help to
// predict another stage. The model has to learn how much they help.
//
// The model (universal kriging with several outputs; Rasmussen and Williams, Gaussian Processes for
// Machine Learning, 2006, chapters 2 and 5; Bonilla et al., NeurIPS 2007). Each *group* has its own
// curve. A group is a (rank, chunk). With x = ln(clock / highest clock) and y = ln(value),
//
//     y_g(x) = level_g + trend_g x + smooth_g(x) + roughness_g(x)
//
//   level      Independent in each group.
//   trend      A power law: time falls and power rises with the clock. Its prior is vague.
//   smooth     A Gaussian process with Matérn 5/2 covariance, which is twice differentiable. It
//              bends where a GPU leaves its power limit or reaches its voltage floor.
//   roughness  Each clock's own deviation, independent of its neighbors. Real profiles have
//              roughness. More samples do not remove it. It decides which of two neighboring clocks
//              is better.
//
// Each of the last three terms is the sum of a part that all groups share and a part of the group's
// own. `own_share` is the fraction of the variance that is the group's own. A grid search chooses
// four parameters by the posterior density of the measurements: the sizes of smooth and roughness,
// the reach of smooth (its length in x), and own_share. If groups differ completely, own_share is
// 1, and each group is predicted from its own measurements.
//
// Alternatives that we rejected. The published exponential (profile/curve.h) has three parameters,
// fits only effective energy, and gives no uncertainty. The same model with own_share fixed at 1
// needs more than ten clocks per group for rough profiles. docs/explanation/client-design.md has
// the losses of both alternatives.
//
// Limit: the model cannot predict a jump if no measured clock of any group shows it.
//
// Immutable, so any thread may use it. Fitting n points costs about 100 n^3 / 6 multiplications.

struct CurvePoint {
  int group = 0;
  double frequency_mhz = 0;
  double value = 0;                    // In seconds or watts, above 0.
  double relative_standard_error = 0;  // The error of the measurement, above 0.
};

class CurveModel {
 public:
  struct Prediction {
    double value = 0;
    double relative_standard_deviation = 0;
    // These three are for CovarianceOf. `explained` is L^-1 k. L is the Cholesky factor `factor_`,
    // and k has the covariance of this prediction with each measured point.
    int group = 0;
    double x = 0;
    std::vector<double> explained;
  };

  // Requires at least one point, and at most one point for each clock of a group.
  explicit CurveModel(std::span<const CurvePoint> points);

  // Predicts the true value at `frequency_mhz`. At a measured clock, the prediction is near the
  // measurement and about as certain as the measurement. A group without a point gets the average
  // of the other groups, with a very large deviation.
  Prediction At(int group, double frequency_mhz) const;
  // The covariance of the logarithms of two true values, given all measurements.
  double CovarianceOf(const Prediction& a, const Prediction& b) const;

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
    double y = 0;  // Relative to the mean of its group.
    double noise_variance = 0;
  };
  double Covariance(const Point& a, const Point& b) const;
  double FitWith(const Scales& scales);
  double CenterOf(int group) const;
  // The covariances with each of the points.
  std::vector<double> CovariancesWith(const Point& point) const;

  double highest_mhz_ = 0;
  std::vector<double> centers_;  // By group: the mean of ln(value).
  double center_ = 0;
  std::vector<Point> points_;
  Scales scales_;
  std::vector<double> factor_;   // The Cholesky factor L of the covariance, column by column.
  std::vector<double> weights_;  // Covariance^-1 y.
};

class OptionModel {
 public:
  struct Prediction {
    double time_s = 0;
    double time_deviation = 0;  // The relative standard deviation.
    double power_w = 0;
    double power_deviation = 0;
    double energy_j() const { return time_s * power_w; }
  };

  // Uses only the time of an option without a power (power_w is 0).
  explicit OptionModel(std::span<const MeasuredOption> measured);

  // Whether both a time and a power of `kind` were measured.
  bool Knows(InstructionKind kind) const;
  // Requires Knows(group.kind).
  Prediction At(const InstructionGroup& group, int frequency_mhz) const;
  // The measurement of an option. Null if the option was not measured.
  const MeasuredOption* Measured(const InstructionGroup& group, int frequency_mhz) const;

  // [a][b]: the covariance of the logarithms of groups a and b at one clock. Requires groups of one
  // kind.
  struct Covariances {
    std::vector<std::vector<double>> time;
    std::vector<std::vector<double>> power;
  };
  Covariances CovariancesAt(std::span<const InstructionGroup> groups, int frequency_mhz) const;

  // The median relative standard error of the measured times of `kind`.
  double usual_time_error(InstructionKind kind) const { return Of(kind).usual_time_error; }
  double usual_power_error(InstructionKind kind) const { return Of(kind).usual_power_error; }

 private:
  struct KindModel {
    CurveModel time;
    CurveModel power;
    double usual_time_error = 0;
    double usual_power_error = 0;
    int first_power_group = 0;
  };
  const KindModel& Of(InstructionKind kind) const { return kinds_.at(kind); }
  int IndexOf(const InstructionGroup& group) const { return group.rank * chunks_ + group.chunk; }

  int chunks_ = 1;
  std::map<std::pair<InstructionGroup, int>, MeasuredOption> measured_;
  std::map<InstructionKind, KindModel> kinds_;
};

}  // namespace perseus::profiler
