#include "perseus/runtime/profiler/measured_option.h"

#include <cmath>
#include <limits>

namespace perseus::profiler {

double MeasuredOption::energy_ci_j() const {
  return energy_j() * std::hypot(time_ci_s / time_s, power_ci_w / power_w);
}

// Exact for 1 and 2 degrees of freedom; from 3 on the Cornish-Fisher expansion (Abramowitz and
// Stegun 26.7.5), off by 1 % at 3 and by less than 0.1 % from 6 on.
double StudentHalfWidth(double degrees_of_freedom) {
  if (degrees_of_freedom < 1) return std::numeric_limits<double>::infinity();
  if (degrees_of_freedom < 2) return 12.7062;
  if (degrees_of_freedom < 3) return 4.30265;
  const double z = kStandardErrorsOf95;
  const double z3 = z * z * z;
  const double z5 = z3 * z * z;
  const double z7 = z5 * z * z;
  const double n = degrees_of_freedom;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

}  // namespace perseus::profiler
