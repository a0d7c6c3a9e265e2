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

#include "perseus/planning/hardware_facts/hardware_facts.h"

namespace perseus::qualifier {

using hardware_facts::Estimate;

// The quantile `part` (0 < part < 1) of the distribution that the samples come from. Without enough
// samples for 95 %, the interval ends at the smallest or the largest sample (IsEnclosed says
// whether). Empty without samples.
std::optional<Estimate> QuantileOf(std::vector<double> samples, double part);
std::optional<Estimate> MedianOf(std::vector<double> samples);

// Whether so many samples enclose this quantile on both sides with 95 %: 6 for the median, 72 for
// the 95th percentile.
bool IsEnclosed(int samples, double part);

// The mean. One sample has the interval of that sample. Empty without samples.
std::optional<Estimate> MeanOf(const std::vector<double>& samples);

}  // namespace perseus::qualifier
