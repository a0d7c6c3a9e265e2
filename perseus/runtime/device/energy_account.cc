#include "perseus/runtime/device/energy_account.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace perseus::device {

void EnergyAccount::Add(const Reading& reading) {
  if (last_ && reading.began < last_->ended) return;
  const std::optional<Reading> before = std::exchange(last_, reading);
  if (reading.power_w) integrator_.Add(reading.ended, *reading.power_w);
  if (state_ != CounterState::kOnTrial && state_ != CounterState::kUsed) return;
  if (!reading.counter_j) return Integrate(CounterState::kNone, reading);
  if (!before) {
    changed_at_ = reading.ended;
    return BeginTrial(reading);
  }
  if (reading.counter_j != before->counter_j) changed_at_ = reading.ended;
  if (reading.counter_j < before->counter_j) {
    ++falls_;
    if (fell_at_ && reading.began - *fell_at_ < kBetweenFalls) {
      return Integrate(CounterState::kFalls, reading);
    }
    fell_at_ = reading.began;
    base_j_ = *reading.counter_j;
    BeginTrial(reading);
  } else if (reading.began - changed_at_ >= kLongestStandstill) {
    return Integrate(CounterState::kStandsStill, reading);
  } else if (state_ == CounterState::kOnTrial) {
    Judge(reading);
  }
}

void EnergyAccount::BeginTrial(const Reading& reading) {
  trial_ = {.began = reading.ended,
            .counter_j = *reading.counter_j,
            .power_j = integrator_.energy_j(),
            .most_w = reading.power_w.value_or(0),
            .readings = 0};
}

void EnergyAccount::Judge(const Reading& reading) {
  trial_.most_w = std::max(trial_.most_w, reading.power_w.value_or(0));
  if (++trial_.readings < kLeastReadings || reading.ended - trial_.began < kWindow) return;
  const double counter_j = *reading.counter_j - trial_.counter_j;
  const double power_j = integrator_.energy_j() - trial_.power_j;
  const double most_j = trial_.most_w * ToSeconds(reading.ended - trial_.began);
  // Without power readings, nothing but its movement shows what the counter is.
  const bool is_alone = trial_.most_w == 0;
  if (counter_j > 0 && (is_alone || std::abs(counter_j - power_j) <= kAgreement * power_j)) {
    state_ = CounterState::kUsed;
  } else if (counter_j > kModuleFactor * most_j) {
    Integrate(CounterState::kOfModule, reading);
  } else if (++windows_ == kMostWindows) {
    Integrate(CounterState::kDisagrees, reading);
  } else {
    BeginTrial(reading);
  }
}

void EnergyAccount::Integrate(CounterState why, const Reading& reading) {
  state_ = why;
  integrator_ = {};
  if (reading.power_w) integrator_.Add(reading.ended, *reading.power_w);
}

std::optional<double> EnergyAccount::energy_j() const {
  if (!last_ || state_ == CounterState::kOnTrial) return std::nullopt;
  if (state_ == CounterState::kUsed) return *last_->counter_j - base_j_;
  return last_->power_w ? std::optional(integrator_.energy_j()) : std::nullopt;
}

void EnergyAccount::Fill(Telemetry& telemetry) const {
  telemetry.energy_j = energy_j();
  telemetry.counter = state_;
  telemetry.counter_falls = falls_;
}

}  // namespace perseus::device
