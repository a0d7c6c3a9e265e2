// The energy of a GPU as one number that never decreases. The source of this number is either power
// readings, or a counter that restarts when the driver is reloaded.
//
// Not thread-safe. The device that owns it uses a lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "perseus/base/units.h"

namespace perseus::device {

// The energy of a GPU without an energy counter. This class connects power readings by straight
// lines (trapezoids). So it does not see how the power changes between two readings.
class EnergyIntegrator {
 public:
  // Adds a reading. Ignores a reading that is not later than the last one, so the energy never
  // falls.
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

// The energy of a GPU with an energy counter. A reload of the driver sets the counter to 0, and
// this class keeps the energy that was counted before. Threads may pass their readings in another
// order than they took them. So a smaller value alone does not show that the counter started again.
// It shows this only in the first reading after a restart of the driver's library, which has a
// higher `generation`.
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
  double before_j_ = 0;  // The energy before the last restart of the counter.
  double last_j_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace perseus::device
