// Reads the energy counter of a GPU, and reports only new values: the counter moves every 20 to
// 100 ms. It reads everything else once a second, because each call takes a lock of the driver that
// launches of the training also need.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/units.h"
#include "perseus/runtime/device/device.h"

namespace perseus::client {

struct EnergyReading {
  Nanoseconds after = 0;  // The counter took this value in (after, until]; CLOCK_MONOTONIC.
  Nanoseconds until = 0;
  double energy_j = 0;
};

class EnergyMeter {
 public:
  // `device` may be null: nothing is ever read.
  EnergyMeter(std::unique_ptr<device::Device> device, Clock& clock)
      : device_(std::move(device)), clock_(clock) {}

  const device::DeviceInfo* info() const { return device_ != nullptr ? &device_->info() : nullptr; }
  // Nothing: the same value as before, or the driver does not report it.
  std::optional<EnergyReading> Look();
  // As of a look of the last second that succeeded; its energy, of the last one.
  const device::Telemetry& telemetry() const { return telemetry_; }
  // What was wrong at the last look; empty if nothing.
  const std::string& trouble() const { return trouble_; }

 private:
  device::DeviceResult<double> ReadEnergy(Nanoseconds now);

  std::unique_ptr<device::Device> device_;
  Clock& clock_;
  bool has_looked_ = false;
  Nanoseconds last_look_ = 0;  // Began then.
  Nanoseconds next_state_ = 0;
  device::Telemetry telemetry_;
  std::string trouble_;
};

}  // namespace perseus::client
