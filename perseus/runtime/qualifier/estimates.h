// Estimates with 95 % confidence intervals, from samples of unknown distribution.
//
// Latencies have long tails and several modes, so medians and percentiles use order statistics.
// Whatever the distribution is, the number of samples below the true percentile is binomial. So an
// interval between two of the sorted samples contains the true percentile with at least 95 %
// probability. Means (of power, of slowdowns) use Student's t on blocks of samples. The blocks are
// long enough that their means are close to normal.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"
#include "perseus/runtime/device/device.h"

namespace perseus::qualifier {

using hardware_facts::Estimate;

// Returns the quantile `part` (0 < part < 1) of the distribution from which the samples come. If
// there are too few samples for 95 %, the interval ends at the smallest or the largest sample.
// (IsEnclosed says whether there are enough samples.) Returns nullopt if there are no samples.
std::optional<Estimate> QuantileOf(std::vector<double> samples, double part);
std::optional<Estimate> MedianOf(std::vector<double> samples);

// Whether this number of samples encloses this quantile on both sides with 95 %. The median needs 6
// samples, and the 95th percentile needs 72.
bool IsEnclosed(int samples, double part);

// Returns the mean, or nullopt if there are no samples. The interval of one sample is the sample
// itself.
std::optional<Estimate> MeanOf(const std::vector<double>& samples);

// ---- The energy counter: how often it changes, by how much, and whether it agrees with power
// readings ----

// Examines the counter with the energy and the power of the readings. A change of the counter lies
// between two neighboring readings. Returns nullopt for fewer than seven changes. Readings should
// be at least ten times as frequent as the changes, and the load should be constant.
//
// The bias is relative to power readings, which have their own error (NVIDIA states about 5 % for
// most boards). So the bias shows whether counter and power readings agree, not which of them is
// correct.
std::optional<hardware_facts::EnergyCounterFacts> ExamineCounter(
    const std::vector<device::Telemetry>& readings);

// The mean power from the counter, between its first and its last change. The interval comes from
// at least `blocks` blocks. Returns nullopt if the counter did not change often enough for these
// blocks.
std::optional<Estimate> PowerByCounter(const std::vector<device::Telemetry>& readings, int blocks);

// ---- Interference: how much clock changes and readings slow down the work that runs beside them
// ----

struct RateSlowdown {
  double changes_per_s = 0;
  Estimate slowdown;  // The fraction by which an operation takes longer. 0: no effect.
};

// A slowdown from which an operation counts as harmed: 1 %.
inline constexpr double kHarmfulSlowdown = 0.01;

// The greatest measured rate that is shown to be harmless. A rate is shown to be harmless if the
// upper end of the interval of its slowdown is below kHarmfulSlowdown, and no lower rate is shown
// to harm. 0: no rate is shown to be harmless. This estimate is never too high: a wide interval
// makes the estimate lower, never higher. A rate that was not tried is never the result.
//
// The true greatest harmless rate is in the interval of the result. The upper end of this interval
// is the least rate that is shown to harm: the lower end of the interval of its slowdown is above
// kHarmfulSlowdown. If no rate is shown to harm, the upper end is the greatest rate that was tried,
// and the true rate may be above it. Requires at least one rate.
Estimate HarmlessRate(std::vector<RateSlowdown> rates);

// Finds the landing of a clock change from the GPU's work. The landing is the moment at which the
// clock really changes.
//
// A kernel that computes does work at a rate that is proportional to the SM clock. So the rate has
// one level before the switch, and another level after it. The landing is the moment that splits
// the series into the two levels with the least sum of squared errors. If the clock changes in a
// ramp, the landing is close to the moment at which one jump would have done the same work. This is
// the moment that a plan needs.
//
// The landing is between two samples. So its error is at most about half of their distance.
//
// A change may also stop the GPU for a moment, its stall. Three ways to measure it were considered:
//   - The slowdown of a kernel at a known rate of changes. To keep the rate of work, the changes
//     are between neighboring clocks, and such a change may stall less than a far one. If landings
//     up and down take different times, the clocks do not share the time equally, which looks like
//     a stall.
//   - The gap between two instructions, with a change requested between them, and without. A launch
//     that comes late makes the gap longer, too.
//   - The work that is missing in the series of a switch. It needs no further measurement. This one
//     is used.
// The kernel writes no sample while it stops. So a stall is in one step of the series, from one
// sample to the next. The work that is missing in this step, against the mean rate of the steps
// before and after it, is the stall. It counts in two kinds of steps: in a step with a lower rate
// than both neighbors (no ramp of the clock has such a step), and in the step with the landing. In
// the latter, one stall is known only to a part of the step, because the landing may be anywhere in
// it. But then it is as often early as late, so the mean of many switches is right.

// The work that a kernel had done at a time. Only differences of work have a meaning.
struct WorkSample {
  Nanoseconds at = 0;
  double work = 0;
};

struct ExpectedSwitch {
  Nanoseconds call_begin = 0;  // Samples before this time are at the old clock.
  double clock_ratio = 1;      // The new clock divided by the old clock. Not 1.
};

// If less than this part of the work of a step is missing, that is noise.
inline constexpr double kLeastMissing = 0.05;
// A change may also stall the GPU in this time after the landing.
inline constexpr Nanoseconds kStallWindow = 5 * kMillisecond;

struct Landing {
  Nanoseconds at = 0;
  Nanoseconds stall = 0;  // May be below 0. Only the mean of many switches has a meaning.
};

// Returns the landing. Returns nullopt if the series has fewer than four samples before the call or
// after the landing. Also returns nullopt if the difference of the levels is less than half of the
// difference of the clocks. In this case the clock has not landed by the end of the series, or
// something else limits the clock.
std::optional<Landing> FindLanding(const std::vector<WorkSample>& samples,
                                   const ExpectedSwitch& expected);

}  // namespace perseus::qualifier
