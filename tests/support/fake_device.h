// A fake GPU that records every write and fails on request.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/runtime/device/device.h"

namespace perseus {

// The test's view of the GPU. Open() creates the device that the code under test owns. Thread-safe.
class FakeGpu {
 public:
  explicit FakeGpu(std::string uuid);

  struct Write {
    device::Control control = device::Control::kSmClock;
    std::optional<device::Setting> setting;
    friend bool operator==(const Write&, const Write&) = default;
  };
  // All successful calls of Apply(), in order.
  std::vector<Write> history() const;
  std::optional<device::Setting> setting(device::Control control) const;

  // Changes the setting as an administrator would, without a record in the history.
  void Set(device::Control control, std::optional<device::Setting> setting);
  // Makes the next `times` calls of Apply() on this control fail with this error.
  void FailNext(device::Control control, int times, device::DeviceErrorKind kind,
                std::string message);
  // Makes the next `times` calls of Apply() on this control succeed but change nothing.
  void IgnoreNext(device::Control control, int times);
  // Makes ReadSetting() of the SM clock return only this hint, as with NVML.
  void HideSmClock(std::string hint);
  void SetLimits(device::ClockLimits limits);
  void SetCounter(device::CounterState state, std::uint64_t falls);
  // Makes every call fail until Repair() is called.
  void Break(device::DeviceErrorKind kind, std::string message);
  void Repair();
  // Makes Apply() wait until Unblock() is called.
  void Block();
  void Unblock();

  // Sets DeviceInfo::device_file. Call it before Open().
  void SetDeviceFile(std::filesystem::path file);

  // Opens the GPU. A test may call it again: a restarted agent opens the same GPU.
  std::unique_ptr<device::Device> Open();

 private:
  class FakeDevice;
  struct State;
  std::shared_ptr<State> state_;
};

// Waits up to a minute for the work of other threads. Returns whether `condition` became true.
// Checks the condition once a millisecond.
bool Eventually(const std::function<bool()>& condition);

}  // namespace perseus
