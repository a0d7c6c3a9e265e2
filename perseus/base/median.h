// The median, as every module computes it.
#pragma once

#include <vector>

namespace perseus {

// The mean of the middle two if the number of values is even. Requires a value, and no NaN.
double Median(std::vector<double> values);
// The lower one of the middle two if the number of values is even. Requires a value, and no NaN.
double LowerMedian(std::vector<double> values);

}  // namespace perseus
