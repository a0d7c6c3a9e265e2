// How much the time of an instruction varies from run to run, as a profile states it.
//
// A profile may have two more columns, `noise` and `common_noise`: the relative standard deviations
// below. `perseus tune` measures and writes them. `plan`, `evaluate` and the server read them.
//
// Alternatives. (a) Keys of the job file. But the noise is measured with the times, by the same
// program, and changes when they are measured again. So it goes where the measurements go: to
// another machine, or to a server. (b) Values for each option. The columns allow this, and the mean
// is used: a few dozen steps show the noise of all instructions together to a tenth, but not that
// of one option.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/planning/profile/profile.h"

namespace perseus::profile {

// Relative standard deviations of the time of an instruction. The power is not affected.
struct TimeNoise {
  double independent = 0;  // Each run of an instruction by itself.
  double common = 0;       // Shared by all instructions of a pp_rank in one iteration.
  friend bool operator==(const TimeNoise&, const TimeNoise&) = default;
};

// No more: the normal distribution no longer describes such times.
inline constexpr double kMostTimeNoise = 0.2;

// The root mean squares of the two columns over the rows that have a value. Empty if no row has
// one. Fails as ParseProfile does, but reads no more than the header of a profile without the
// columns.
Result<std::optional<TimeNoise>> ParseTimeNoise(std::string_view text, std::string_view name);

// The profile with the two columns, with the same values in each row.
std::string FormatProfile(const Profile& profile, const TimeNoise& noise);

}  // namespace perseus::profile
