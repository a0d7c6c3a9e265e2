// All options of a job, measured or not: the probable time and power of each, and how certain they
// are.
//
// It has one CurveModel for the times and one for the powers of each kind of instruction, over all
// pp_ranks and chunks. Immutable, so any thread may use it.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "perseus/runtime/profiler/curve_model.h"
#include "perseus/runtime/profiler/measured_option.h"

namespace perseus::profiler {

class OptionModel {
 public:
  struct Prediction {
    double time_s = 0;
    double time_deviation = 0;  // Relative.
    double power_w = 0;
    double power_deviation = 0;
    double energy_j() const { return time_s * power_w; }
  };

  // Options without a power (power_w is 0) count for their time only.
  OptionModel(std::span<const MeasuredOption> measured, CurveModel::Sharing sharing);

  // Whether both a time and a power of that kind were measured.
  bool Knows(InstructionKind kind) const;
  // Requires Knows(group.kind).
  Prediction At(const InstructionGroup& group, int frequency_mhz) const;
  // Null if the option was not measured.
  const MeasuredOption* Measured(const InstructionGroup& group, int frequency_mhz) const;

  // [a][b]: covariances of the logarithms of two groups at one clock. Requires groups of one kind.
  struct Covariances {
    std::vector<std::vector<double>> time;
    std::vector<std::vector<double>> power;
  };
  Covariances CovariancesAt(std::span<const InstructionGroup> groups, int frequency_mhz) const;

  // The median relative standard error of the measurements of that kind.
  double usual_time_error(InstructionKind kind) const { return Of(kind).usual_time_error; }
  double usual_power_error(InstructionKind kind) const { return Of(kind).usual_power_error; }

 private:
  struct KindModel {
    CurveModel time;
    CurveModel power;
    double usual_time_error = 0;
    double usual_power_error = 0;
  };
  const KindModel& Of(InstructionKind kind) const { return kinds_.at(kind); }
  int IndexOf(const InstructionGroup& group) const { return group.rank * chunks_ + group.chunk; }

  int chunks_ = 1;
  std::map<std::pair<InstructionGroup, int>, MeasuredOption> measured_;
  std::map<InstructionKind, KindModel> kinds_;
};

}  // namespace perseus::profiler
