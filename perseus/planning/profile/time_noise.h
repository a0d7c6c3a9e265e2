// How much the time of an instruction varies from run to run, as a profile states it.
//
// A profile may have two more columns, `noise` and `common_noise`: the relative standard deviations
// below. `perseus tune` measures and writes them. Every plan for this profile keeps its time with
// this noise.
//
// Alternatives. (a) Keys of the job file. But the same program measures the noise and the times,
// and both change when they are measured again. In the profile, the noise stays with these
// measurements, also on another machine or on a server. (b) Values for each option. The columns
// allow this, and the root mean square over the rows is used. A few dozen steps show the noise of
// all instructions together to a tenth, but not the noise of one option.
#pragma once

namespace perseus::profile {

// Relative standard deviations of the time of an instruction. The power is not affected.
struct TimeNoise {
  double independent = 0;  // Independent for each run of an instruction.
  double common = 0;       // Common to all instructions of a pp_rank in one iteration.
  friend bool operator==(const TimeNoise&, const TimeNoise&) = default;
};

// The largest allowed noise. Above it, the normal distribution no longer describes the times.
inline constexpr double kMostTimeNoise = 0.2;

}  // namespace perseus::profile
