// A GPU that NVML drives.
//
// What NVML does not do, and how it shows here:
//  - There is no call that reads locked clocks: ReadSetting of a clock is never known, and its hint
//    says what looks like somebody's lock.
//  - Locked clocks belong to the driver: a reload drops them, which Read() cannot see and the
//    next error of kind kGone tells.
//  - An idle GPU may clock down below its lock: ReadEffect of a clock is then kPending.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "perseus/runtime/device/device.h"
#include "perseus/runtime/device/energy_integrator.h"
#include "perseus/runtime/device/nvml_library.h"

namespace perseus::device {

class NvmlDevice : public Device {
 public:
  // `info` as OpenNvmlDevices found it; `uuid` in it is what the GPU is looked up by.
  NvmlDevice(std::shared_ptr<NvmlLibrary> library, DeviceInfo info);

  const DeviceInfo& info() const override { return info_; }
  DeviceResult<Telemetry> Read() override;
  DeviceResult<double> ReadEnergy() override;
  DeviceResult<SettingReading> ReadSetting(Control control) override;
  DeviceResult<void> Apply(Control control, const std::optional<Setting>& setting) override;
  DeviceResult<Effect> ReadEffect(Control control, const std::optional<Setting>& setting) override;

 private:
  // One visit to the driver, with the GPU's handle of that generation.
  struct Session {
    NvmlLibrary::Visit visit;
    nvml::Handle handle;
  };
  struct Clocks {
    int sm_mhz = 0;
    int memory_mhz = 0;
    ClockLimits limits;
  };
  DeviceResult<Session> Begin();
  DeviceResult<Clocks> ReadClocks(const Session& session);
  DeviceResult<double> ReadCounter(const Session& session);
  DeviceResult<double> EnergyOf(const Session& session, Telemetry& telemetry);
  DeviceResult<int> ReadPowerLimit(const Session& session);
  DeviceResult<void> CheckSetting(Control control, const Setting& setting) const;
  DeviceResult<void> ApplyLock(const Session& session, Control control,
                               const std::optional<Setting>& setting);
  DeviceResult<void> ApplyPowerLimit(const Session& session, const std::optional<Setting>& setting);

  // Calls NVML; `what` is what messages say could not be done. A null function is kNotSupported.
  template <typename... Parameters, typename... Arguments>
  DeviceResult<void> Call(const Session& session, NvmlUse use, std::string_view what,
                          int (*function)(nvml::Handle, Parameters...), Arguments... arguments);
  tl::unexpected<DeviceError> Failure(const NvmlLibrary::Visit& visit, NvmlUse use,
                                      std::string_view what, int code);

  const std::shared_ptr<NvmlLibrary> library_;
  const DeviceInfo info_;

  std::mutex mutex_;  // Never held during a driver's call. Guards:
  nvml::Handle handle_ = nullptr;
  std::uint64_t handle_generation_ = 0;  // 0: there is none yet.
  EnergyIntegrator integrator_;
  EnergyCounter counter_;
};

}  // namespace perseus::device
