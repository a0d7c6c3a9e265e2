// Reads the energy counter of a GPU, and reports only new values: the counter moves every 20 to 100
// ms. Everything else is read once a second, because each call takes a lock of the driver that
// launches of the training also need. Only at the power limit is the clock read as often as the
// counter, because different kinds of instructions reach different clocks there. (On an H100, a
// read of the clock takes 2 us, and a read of the counter 2.4 ms.)
//
// Times of reads. The counter took a new value at an unknown time between two reads. Reads with a
// fixed period of 10 ms stay in phase with a counter that moves every 100 ms, so the error of this
// time is the same for minutes. Then no average removes it: under a plan, most windows between
// clock changes are short, and energies were 6 to 20 % off (measured on virtual GPUs). So the time
// between two reads is random (dither), and the errors are independent.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/random.h"
#include "perseus/base/units.h"
#include "perseus/runtime/device/device.h"

namespace perseus::client {

struct EnergyReading {
  Nanoseconds after = 0;  // The counter took this value in (after, until]; CLOCK_MONOTONIC.
  Nanoseconds until = 0;
  double energy_j = 0;
};
struct ClockReading {
  Nanoseconds at = 0;  // CLOCK_MONOTONIC.
  int sm_clock_mhz = 0;
};

class EnergyMeter {
 public:
  static constexpr Nanoseconds kLeastPause = 5'000'000;
  static constexpr Nanoseconds kMostPause = 15'000'000;

  // `device` may be null: nothing is ever read. Meters with different seeds read at different
  // times.
  EnergyMeter(std::unique_ptr<device::Device> device, Clock& clock, std::uint64_t seed)
      : device_(std::move(device)), clock_(clock), random_{seed} {}

  const device::DeviceInfo* info() const { return device_ != nullptr ? &device_->info() : nullptr; }
  // Reads the counter. Returns nullopt if its value has not changed, or if the driver reports none.
  std::optional<EnergyReading> Look();
  // Returns the clock now, if the power limit held it down when everything was read last. Returns
  // nullopt otherwise, or if the clock cannot be read.
  std::optional<ClockReading> ReachedClock();
  // The time until the next look while steps are recorded: uniform from kLeastPause to kMostPause.
  Nanoseconds Pause();
  // The latest read of everything that succeeded, with the energy of the latest look.
  const device::Telemetry& telemetry() const { return telemetry_; }
  // Why the last look failed. Empty if it succeeded.
  const std::string& trouble() const { return trouble_; }

 private:
  device::DeviceResult<double> ReadEnergy(Nanoseconds now);

  std::unique_ptr<device::Device> device_;
  Clock& clock_;
  SplitMix64 random_;
  bool has_looked_ = false;
  Nanoseconds last_look_ = 0;  // When the last look began.
  Nanoseconds next_state_ = 0;
  device::Telemetry telemetry_;
  std::string trouble_;
};

}  // namespace perseus::client
