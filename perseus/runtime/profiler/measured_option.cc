#include "perseus/runtime/profiler/measured_option.h"

#include <cmath>

namespace perseus::profiler {

double MeasuredOption::energy_ci_j() const {
  return energy_j() * std::hypot(time_ci_s / time_s, power_ci_w / power_w);
}

}  // namespace perseus::profiler
