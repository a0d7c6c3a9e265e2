// How much the time of an instruction varies from run to run, as a profile states it.
//
// A profile may have two more columns, `noise` and `common_noise`: the relative standard deviations
// below. `perseus tune` measures and writes them, and every plan of the profile keeps its time
// under them.
//
// Alternatives. (a) Keys of the job file. But the noise is measured with the times, by the same
// program, and changes when they are measured again. So it goes where the measurements go: to
// another machine, or to a server. (b) Values for each option. The columns allow this, and the root
// mean square over the rows is used: a few dozen steps show the noise of all instructions together
// to a tenth, but not that of one option.
#pragma once

namespace perseus::profile {

// Relative standard deviations of the time of an instruction. The power is not affected.
struct TimeNoise {
  double independent = 0;  // Each run of an instruction by itself.
  double common = 0;       // Shared by all instructions of a pp_rank in one iteration.
  friend bool operator==(const TimeNoise&, const TimeNoise&) = default;
};

// No more: the normal distribution no longer describes such times.
inline constexpr double kMostTimeNoise = 0.2;

}  // namespace perseus::profile
