// The statistics that several modules compute.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <vector>

namespace perseus {

// The mean of the middle two if the number of values is even. Requires a value, and no NaN.
double Median(std::vector<double> values);
// The lower one of the middle two if the number of values is even. Requires a value, and no NaN.
double LowerMedian(std::vector<double> values);

// The first of the values that is nearest to `wanted`. Requires a value.
int NearestTo(std::span<const int> values, double wanted);

// The median of |value - center|: the median absolute deviation, if `center` is the median.
// Requires a value, and no NaN.
double MedianDeviation(std::span<const double> values, double center);
// For normal values: the standard deviation divided by the median absolute deviation.
inline constexpr double kDeviationsOfMad = 1.4826;
// For normal values: the standard error of a median divided by that of a mean, sqrt(pi / 2).
inline constexpr double kErrorOfMedian = 1.2533;

// Estimates the standard deviation of the distribution that the values come from. 0 with fewer than
// two values.
double StandardDeviation(std::span<const double> values);

// The half-width of a 95 % confidence interval, in standard errors, by Student's t-distribution.
// Infinite below one degree of freedom.
double StudentHalfWidth(double degrees_of_freedom);

}  // namespace perseus
