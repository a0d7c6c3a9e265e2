#include "perseus/runtime/profiler/measured_option.h"

#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>

namespace perseus::profiler {

double MeasuredOption::energy_ci_j() const {
  return energy_j() * std::hypot(time_ci_s / time_s, power_ci_w / power_w);
}

double StudentHalfWidth(double degrees_of_freedom) {
  if (degrees_of_freedom < 1) return std::numeric_limits<double>::infinity();
  constexpr double kTail = (1 - 0.95) / 2;
  const boost::math::students_t distribution(degrees_of_freedom);
  return boost::math::quantile(boost::math::complement(distribution, kTail));
}

}  // namespace perseus::profiler
