// The measurement of one kind of instruction at one clock.
#pragma once

#include <cmath>
#include <compare>

#include "perseus/base/instruction_kind.h"

namespace perseus::profiler {

// A group of similar instructions: one kind, on one chunk of one rank, for any microbatch.
struct InstructionGroup {
  int rank = 0;   // The pp_rank.
  int chunk = 0;  // The number among the stages on that rank.
  InstructionKind kind = InstructionKind::kForward;
  friend auto operator<=>(const InstructionGroup&, const InstructionGroup&) = default;
};

// Whether the power limit kept a GPU below a requested clock. `usual_mhz` is the mean of readings
// of its clock. A clock that is kept exactly has this mean.
constexpr bool IsHeldDown(double usual_mhz, int requested_mhz) {
  return usual_mhz > 0 && usual_mhz < 0.995 * requested_mhz;
}

struct MeasuredOption {
  InstructionGroup group;
  int frequency_mhz = 0;
  int samples = 0;  // The number of measured instructions.
  double time_s = 0;
  // The half-width of the 95 % confidence interval. The same is true of every `_ci_`.
  double time_ci_s = 0;
  double power_w = 0;  // The mean power of one GPU while the instruction runs.
  double power_ci_w = 0;
  // The highest clock that was read while the instruction ran at the power limit. 0: during this
  // instruction, the GPU was never at its power limit, or there are too few readings.
  int reached_mhz = 0;
  // The mean of the latest of these readings, because the clock wanders at the limit.
  double usual_mhz = 0;

  bool is_held_down() const { return IsHeldDown(usual_mhz, frequency_mhz); }
  double energy_j() const { return power_w * time_s; }
  // Time and power are measured independently of each other (power_fit.h).
  double energy_ci_j() const {
    return energy_j() * std::hypot(time_ci_s / time_s, power_ci_w / power_w);
  }
};

// The half-width of a 95 % interval of a normal distribution, in standard errors.
inline constexpr double kStandardErrorsOf95 = 1.959964;

}  // namespace perseus::profiler
