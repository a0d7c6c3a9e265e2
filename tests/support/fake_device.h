// A GPU that exists only in the test: it remembers every write, and fails as it is told to.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/runtime/device/device.h"

namespace perseus {

// What the test holds on to; the device itself belongs to whoever works with it. Thread-safe.
class FakeGpu {
 public:
  explicit FakeGpu(std::string uuid);

  struct Write {
    device::Control control = device::Control::kSmClock;
    std::optional<device::Setting> setting;
    friend bool operator==(const Write&, const Write&) = default;
  };
  // Every Apply() that the driver took, in order.
  std::vector<Write> history() const;
  std::optional<device::Setting> setting(device::Control control) const;

  // As an administrator would, past the history.
  void Set(device::Control control, std::optional<device::Setting> setting);
  // The next `times` calls of Apply on this control fail so.
  void FailNext(device::Control control, int times, device::DeviceErrorKind kind,
                std::string message);
  // The next `times` calls succeed and change nothing.
  void IgnoreNext(device::Control control, int times);
  // What ReadSetting tells of the SM clock: as NVML, nothing but a hint.
  void HideSmClock(std::string hint);
  void SetLimits(device::ClockLimits limits);
  // Every call fails until Repair() is called.
  void Break(device::DeviceErrorKind kind, std::string message);
  void Repair();
  // Apply() does not return before Unblock().
  void Block();
  void Unblock();

  // More than one may be made: what one agent's successor opens.
  std::unique_ptr<device::Device> Open();

 private:
  class FakeDevice;
  struct State;
  std::shared_ptr<State> state_;
};

// Whether `condition` came true within ten seconds, looked at every millisecond: for what other
// threads do.
bool Eventually(const std::function<bool()>& condition);

}  // namespace perseus
