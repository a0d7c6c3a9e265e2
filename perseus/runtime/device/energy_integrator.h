// The energy of a GPU as one number that only grows, from what drivers offer: power readings, or a
// counter that restarts when the driver is reloaded.
//
// Thread safety: none. The device that owns it uses a lock.
#pragma once

#include <cstdint>
#include <optional>

#include "perseus/base/units.h"

namespace perseus::device {

// For GPUs without an energy counter: power readings joined by straight lines (trapezoids). As good
// as it is read often; what happens between two readings is not seen.
class EnergyIntegrator {
 public:
  // A reading. One that is not later than the last is left out: time and energy never run back.
  void Add(Nanoseconds at, double power_w);
  // Since the first reading.
  double energy_j() const { return energy_j_; }

 private:
  struct Reading {
    Nanoseconds at;
    double power_w;
  };
  std::optional<Reading> last_;
  double energy_j_ = 0;
};

// For GPUs with a counter, which a reload of the driver starts again at 0; what was counted before
// stays. Readings of several threads may arrive in another order than they were taken: only one
// after a restart of the driver's library (a higher `generation`) can mean a counter started again.
class EnergyCounter {
 public:
  // The energy after this reading, J.
  double Add(double counter_j, std::uint64_t generation);

 private:
  double before_j_ = 0;  // Counted before the counter last began again.
  double last_j_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace perseus::device
