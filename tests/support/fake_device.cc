#include "tests/support/fake_device.h"

#include <chrono>
#include <condition_variable>
#include <thread>
#include <utility>

namespace perseus {

struct FakeGpu::State {
  device::DeviceInfo info;
  Mutex mutex;
  std::condition_variable_any unblocked;
  std::map<device::Control, std::optional<device::Setting>> settings PERSEUS_GUARDED_BY(mutex);
  std::vector<Write> history PERSEUS_GUARDED_BY(mutex);
  struct Failure {
    int times = 0;
    device::DeviceError error;
  };
  std::map<device::Control, Failure> failures PERSEUS_GUARDED_BY(mutex);
  std::map<device::Control, int> ignored PERSEUS_GUARDED_BY(mutex);
  std::optional<std::string> hint PERSEUS_GUARDED_BY(mutex);
  std::optional<device::DeviceError> broken PERSEUS_GUARDED_BY(mutex);
  device::ClockLimits limits PERSEUS_GUARDED_BY(mutex);
  bool is_blocked PERSEUS_GUARDED_BY(mutex) = false;
  device::CounterState counter PERSEUS_GUARDED_BY(mutex) = device::CounterState::kUsed;
  std::uint64_t counter_falls PERSEUS_GUARDED_BY(mutex) = 0;
};

class FakeGpu::FakeDevice : public device::Device {
 public:
  explicit FakeDevice(std::shared_ptr<State> state) : state_(std::move(state)) {}

  const device::DeviceInfo& info() const override { return state_->info; }

  device::DeviceResult<device::Telemetry> Read() override {
    const MutexLock lock(state_->mutex);
    if (state_->broken) return tl::unexpected<device::DeviceError>(*state_->broken);
    device::Telemetry telemetry;
    telemetry.power_w = 250;
    telemetry.temperature_c = 50;
    telemetry.sm_clock_mhz = ClockNow();
    telemetry.limits = state_->limits;
    telemetry.counter = state_->counter;
    telemetry.counter_falls = state_->counter_falls;
    return telemetry;
  }

  device::DeviceResult<device::SettingReading> ReadSetting(device::Control control) override {
    const MutexLock lock(state_->mutex);
    if (state_->broken) return tl::unexpected<device::DeviceError>(*state_->broken);
    if (control == device::Control::kSmClock && state_->hint) {
      // As with NVML, the reading shows only that some clock is locked.
      return device::SettingReading{.is_known = false,
                                    .setting = std::nullopt,
                                    .hint = state_->settings[control] ? *state_->hint : "",
                                    .is_certain = state_->settings[control].has_value()};
    }
    return device::SettingReading{
        .is_known = true, .setting = state_->settings[control], .hint = "", .is_certain = false};
  }

  device::DeviceResult<void> Apply(device::Control control,
                                   const std::optional<device::Setting>& setting) override {
    const MutexLock lock(state_->mutex);
    while (state_->is_blocked) state_->unblocked.wait(state_->mutex);
    if (state_->broken) return tl::unexpected<device::DeviceError>(*state_->broken);
    if (State::Failure& failure = state_->failures[control]; failure.times > 0) {
      --failure.times;
      return tl::unexpected<device::DeviceError>(failure.error);
    }
    state_->history.push_back({control, setting});
    if (int& ignored = state_->ignored[control]; ignored > 0) {
      --ignored;
    } else {
      state_->settings[control] = setting;
    }
    return {};
  }

  device::DeviceResult<device::Effect> ReadEffect(
      device::Control control, const std::optional<device::Setting>& setting) override {
    const MutexLock lock(state_->mutex);
    if (state_->broken) return tl::unexpected<device::DeviceError>(*state_->broken);
    device::Effect effect{device::EffectState::kInEffect, ClockNow(), state_->limits};
    if (state_->limits.bits != 0) effect.state = device::EffectState::kLimited;
    if (state_->settings[control] != setting) effect.state = device::EffectState::kPending;
    return effect;
  }

 private:
  int ClockNow() const PERSEUS_REQUIRES(state_->mutex) {
    const auto& lock = state_->settings[device::Control::kSmClock];
    return lock ? lock->upper : state_->info.sm_clocks_mhz.back();
  }

  std::shared_ptr<State> state_;
};

FakeGpu::FakeGpu(std::string uuid) : state_(std::make_shared<State>()) {
  state_->info.uuid = std::move(uuid);
  state_->info.name = "Fake";
  state_->info.backend = "fake";
  state_->info.sm_clocks_mhz = {900, 1000, 1100, 1200, 1300, 1410};
  state_->info.memory_clocks_mhz = {1215};
  state_->info.default_power_limit_mw = 400'000;
  state_->info.least_power_limit_mw = 100'000;
  state_->info.most_power_limit_mw = 400'000;
}

std::vector<FakeGpu::Write> FakeGpu::history() const {
  const MutexLock lock(state_->mutex);
  return state_->history;
}
std::optional<device::Setting> FakeGpu::setting(device::Control control) const {
  const MutexLock lock(state_->mutex);
  return state_->settings[control];
}
void FakeGpu::Set(device::Control control, std::optional<device::Setting> setting) {
  const MutexLock lock(state_->mutex);
  state_->settings[control] = setting;
}
void FakeGpu::FailNext(device::Control control, int times, device::DeviceErrorKind kind,
                       std::string message) {
  const MutexLock lock(state_->mutex);
  state_->failures[control] = {times, {kind, {std::move(message), ErrorKind::kSystem}}};
}
void FakeGpu::IgnoreNext(device::Control control, int times) {
  const MutexLock lock(state_->mutex);
  state_->ignored[control] = times;
}
void FakeGpu::HideSmClock(std::string hint) {
  const MutexLock lock(state_->mutex);
  state_->hint = std::move(hint);
}
void FakeGpu::SetLimits(device::ClockLimits limits) {
  const MutexLock lock(state_->mutex);
  state_->limits = limits;
}
void FakeGpu::SetCounter(device::CounterState state, std::uint64_t falls) {
  const MutexLock lock(state_->mutex);
  state_->counter = state;
  state_->counter_falls = falls;
}
void FakeGpu::Break(device::DeviceErrorKind kind, std::string message) {
  const MutexLock lock(state_->mutex);
  state_->broken = device::DeviceError{kind, {std::move(message), ErrorKind::kSystem}};
}
void FakeGpu::Repair() {
  const MutexLock lock(state_->mutex);
  state_->broken.reset();
}
void FakeGpu::Block() {
  const MutexLock lock(state_->mutex);
  state_->is_blocked = true;
}
void FakeGpu::Unblock() {
  {
    const MutexLock lock(state_->mutex);
    state_->is_blocked = false;
  }
  state_->unblocked.notify_all();
}
void FakeGpu::SetDeviceFile(std::filesystem::path file) {
  state_->info.device_file = std::move(file);
}

std::unique_ptr<device::Device> FakeGpu::Open() { return std::make_unique<FakeDevice>(state_); }

bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace perseus
