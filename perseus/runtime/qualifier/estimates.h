// Estimates with 95 % confidence intervals, from samples of unknown distribution.
//
// Latencies have long tails and several modes, so medians and percentiles use order statistics: the
// number of samples below the true percentile is binomial, whatever the distribution is. So two of
// the sorted samples enclose it with at least 95 % probability. Means (of power, of slowdowns) use
// Student's t on blocks, which are long enough to be close to normal.
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

// The quantile `part` (0 < part < 1) of the distribution that the samples come from. Without enough
// samples for 95 %, the interval ends at the smallest or the largest sample (IsEnclosed says
// whether there are enough). Returns nullopt without samples.
std::optional<Estimate> QuantileOf(std::vector<double> samples, double part);
std::optional<Estimate> MedianOf(std::vector<double> samples);

// Whether a number of samples encloses this quantile on both sides with 95 %. The median needs 6
// samples, the 95th percentile 72.
bool IsEnclosed(int samples, double part);

// Returns the mean, or nullopt without samples. The interval of one sample is the sample itself.
std::optional<Estimate> MeanOf(const std::vector<double>& samples);

// ---- The energy counter: how often it changes, by how much, and whether it agrees with power ----

// Examines the counter by the energy and the power of the readings. Two neighboring readings
// enclose a change. Returns nullopt for fewer than seven changes. Readings should be at least ten
// times as frequent as the changes, and the load should be constant.
//
// The bias is relative to power readings, which have an error of their own (NVIDIA states about 5 %
// for most boards). So it shows whether the two agree, not which of them is correct.
std::optional<hardware_facts::EnergyCounterFacts> ExamineCounter(
    const std::vector<device::Telemetry>& readings);

// The mean power by the counter, between its first and last change, with the interval of at least
// `blocks` blocks. Returns nullopt if the counter did not change often enough for these blocks.
std::optional<Estimate> PowerByCounter(const std::vector<device::Telemetry>& readings, int blocks);

// ---- Interference: what clock changes and readings cost the work that runs beside them ----

struct RateSlowdown {
  double changes_per_s = 0;
  Estimate slowdown;  // The fraction by which an operation takes longer. 0: no effect.
};

// An operation that takes 1 % longer is harmed.
inline constexpr double kHarmfulSlowdown = 0.01;

// The greatest of the measured rates that is shown to be harmless: the upper end of the interval of
// its slowdown is below kHarmfulSlowdown, and no lower rate is shown to harm. 0 if no rate is shown
// to be harmless. This is a lower estimate: a wide interval makes the estimate lower, never higher,
// and a rate that was not tried is never the result.
//
// The true greatest harmless rate is in the interval. Its upper end is the least rate that is shown
// to harm (the lower end of the interval of its slowdown is above kHarmfulSlowdown). Without such a
// rate, it is the greatest one that was tried, and the truth may be above it. Requires rates.
Estimate HarmlessRate(std::vector<RateSlowdown> rates);

// Finds the landing of a clock change, the moment when the clock really changes, from the GPU's
// work.
//
// A kernel that computes does work at a rate proportional to the SM clock. So the rate has a level
// before the switch and another one after it. The landing is the moment that splits the series into
// the two levels with the least sum of squared errors. If the clock moves in a ramp, this is close
// to the moment at which one jump would have done the same work, which is what a plan needs.
//
// The moment is between two samples. So it is exact to about half their distance.
//
// Thread safety: pure functions.

// How much work a kernel had done at a time. Only differences of work have a meaning.
struct WorkSample {
  Nanoseconds at = 0;
  double work = 0;
};

struct ExpectedSwitch {
  Nanoseconds call_begin = 0;  // The samples before are at the old clock.
  double clock_ratio = 1;      // The new clock divided by the old one. Not 1.
};

// Returns the moment of the landing. Returns nullopt if the series has fewer than four samples
// before the call or after the landing, or if the difference of the levels is less than half of the
// difference of the clocks. Then the clock has not landed by the end of the series, or something
// else limits it.
std::optional<Nanoseconds> FindLanding(const std::vector<WorkSample>& samples,
                                       const ExpectedSwitch& expected);

}  // namespace perseus::qualifier
