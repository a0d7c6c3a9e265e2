#include "perseus/runtime/client/energy_meter.h"

#include <utility>

namespace perseus::client {
namespace {

constexpr Nanoseconds kStateEvery = kSecond;

}  // namespace

device::DeviceResult<double> EnergyMeter::ReadEnergy(Nanoseconds now) {
  // A device that integrates its power has to read everything in any case.
  if (has_looked_ && now < next_state_ && !telemetry_.is_energy_integrated) {
    return device_->ReadEnergy();
  }
  PERSEUS_ASSIGN_OR_RETURN(device::Telemetry read, device_->Read());
  next_state_ = now + kStateEvery;
  const double energy_j = std::exchange(read.energy_j, telemetry_.energy_j);
  telemetry_ = read;
  return energy_j;
}

std::optional<EnergyReading> EnergyMeter::Look() {
  if (device_ == nullptr) return std::nullopt;
  const Nanoseconds began = clock_.Now();
  const auto read = ReadEnergy(began);
  if (!read) {
    trouble_ = read.error().Message();
    return std::nullopt;
  }
  trouble_.clear();
  const Nanoseconds after = last_look_;
  const bool is_new = has_looked_ && *read != telemetry_.energy_j;
  last_look_ = began;
  telemetry_.energy_j = *read;
  // The time of the first value is unknown.
  has_looked_ = true;
  if (!is_new) return std::nullopt;
  return EnergyReading{after, clock_.Now(), *read};
}

std::optional<ClockReading> EnergyMeter::ReachedClock() {
  if (!trouble_.empty() || !telemetry_.limits.Has(device::ClockLimit::kPowerCap)) {
    return std::nullopt;
  }
  const Nanoseconds at = clock_.Now();
  const auto mhz = device_->ReadSmClock();
  if (!mhz || *mhz <= 0) return std::nullopt;
  return ClockReading{at, *mhz};
}

Nanoseconds EnergyMeter::Pause() {
  constexpr auto kSpan = static_cast<double>(kMostPause - kLeastPause);
  return kLeastPause + static_cast<Nanoseconds>(kSpan * Uniform(random_));
}

}  // namespace perseus::client
