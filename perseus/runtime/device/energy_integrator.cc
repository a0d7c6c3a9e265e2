#include "perseus/runtime/device/energy_integrator.h"

#include <algorithm>
#include <utility>

namespace perseus::device {

void EnergyIntegrator::Add(Nanoseconds at, double power_w) {
  if (last_) {
    if (at <= last_->at) return;
    energy_j_ += ToSeconds(at - last_->at) * (last_->power_w + power_w) / 2;
  }
  last_ = Reading{at, power_w};
}

double EnergyCounter::Add(double counter_j, std::uint64_t generation) {
  if (generation > generation_) {
    if (counter_j < last_j_) before_j_ += std::exchange(last_j_, 0);
    generation_ = generation;
  }
  if (generation == generation_) last_j_ = std::max(last_j_, counter_j);
  return before_j_ + last_j_;
}

}  // namespace perseus::device
