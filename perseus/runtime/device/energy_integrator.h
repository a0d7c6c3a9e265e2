// The energy of a GPU as one number that only grows. Its source is power readings, or a counter
// that restarts when the driver is reloaded.
//
// Not thread-safe. The device that owns it uses a lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "perseus/base/units.h"

namespace perseus::device {

// For GPUs without an energy counter. It connects power readings by straight lines (trapezoids), so
// it does not see what happens between two readings.
class EnergyIntegrator {
 public:
  // Adds a reading. One that is not later than the last is ignored, so the energy never falls.
  void Add(Nanoseconds at, double power_w) {
    if (last_) {
      if (at <= last_->at) return;
      energy_j_ += ToSeconds(at - last_->at) * (last_->power_w + power_w) / 2;
    }
    last_ = Reading{at, power_w};
  }
  // The energy since the first reading.
  double energy_j() const { return energy_j_; }

 private:
  struct Reading {
    Nanoseconds at;
    double power_w;
  };
  std::optional<Reading> last_;
  double energy_j_ = 0;
};

// For GPUs with a counter. A reload of the driver starts the counter at 0 again, and this class
// keeps what was counted before. Readings of several threads may arrive in another order than they
// were taken. So only a reading after a restart of the driver's library (with a higher
// `generation`) can mean that the counter started again.
class EnergyCounter {
 public:
  // Returns the energy after this reading, in J.
  double Add(double counter_j, std::uint64_t generation) {
    if (generation > generation_) {
      if (counter_j < last_j_) before_j_ += std::exchange(last_j_, 0);
      generation_ = generation;
    }
    if (generation == generation_) last_j_ = std::max(last_j_, counter_j);
    return before_j_ + last_j_;
  }

 private:
  double before_j_ = 0;  // Counted before the last restart of the counter.
  double last_j_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace perseus::device
