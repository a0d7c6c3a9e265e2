#include "perseus/client/energy_meter.h"

namespace perseus {

std::optional<EnergyReading> EnergyMeter::Look() {
  if (device_ == nullptr) return std::nullopt;
  const Nanoseconds began = clock_.Now();
  const auto read = device_->Read();
  if (!read) {
    trouble_ = read.error().message;
    return std::nullopt;
  }
  trouble_.clear();
  const Nanoseconds after = last_look_;
  const bool is_new = has_looked_ && read->energy_j != telemetry_.energy_j;
  last_look_ = began;
  telemetry_ = *read;
  // When the first value came to be is not known.
  has_looked_ = true;
  if (!is_new) return std::nullopt;
  return EnergyReading{after, clock_.Now(), read->energy_j};
}

}  // namespace perseus
