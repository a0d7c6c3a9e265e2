// The measurement of one kind of instruction at one clock.
#pragma once

#include <cmath>
#include <compare>

#include "perseus/base/instruction_kind.h"

namespace perseus::profiler {

// Similar instructions: of one kind, on one chunk of one rank, for any microbatch.
struct InstructionGroup {
  int rank = 0;   // The pp_rank.
  int chunk = 0;  // Among the stages on that rank.
  InstructionKind kind = InstructionKind::kForward;
  friend auto operator<=>(const InstructionGroup&, const InstructionGroup&) = default;
};

struct MeasuredOption {
  InstructionGroup group;
  int frequency_mhz = 0;
  int samples = 0;  // How many instructions were measured.
  double time_s = 0;
  double time_ci_s = 0;  // The half-width of the 95 % confidence interval, as all `_ci_`.
  double power_w = 0;    // The mean of one GPU while it runs.
  double power_ci_w = 0;
  // The highest clock that was read while the instruction ran at the power limit. 0: the GPU never
  // was at its power limit then, or there are too few readings.
  int reached_mhz = 0;

  double energy_j() const { return power_w * time_s; }
  // Time and power are measured independently of each other (power_fit.h).
  double energy_ci_j() const {
    return energy_j() * std::hypot(time_ci_s / time_s, power_ci_w / power_w);
  }
};

// Half-width of a 95 % interval, in standard errors, of a normal distribution.
inline constexpr double kStandardErrorsOf95 = 1.959964;

}  // namespace perseus::profiler
