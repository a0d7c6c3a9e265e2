// A GPU behind NVML.
//
// Limits of NVML, and their effect here:
//  - No call reads locked clocks. So ReadSetting of a clock is never known, and its hint says what
//    looks like a lock.
//  - Locked clocks belong to the driver. A reload drops them. Read() cannot see this, but the next
//    error has the kind kGone.
//  - An idle GPU may run below its lock. Then ReadEffect of a clock is kPending.
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
  // `info` comes from OpenNvmlDevices. Its `uuid` identifies the GPU.
  NvmlDevice(std::shared_ptr<NvmlLibrary> library, DeviceInfo info);

  const DeviceInfo& info() const override { return info_; }
  DeviceResult<Telemetry> Read() override;
  DeviceResult<double> ReadEnergy() override;
  DeviceResult<int> ReadSmClock() override;
  DeviceResult<SettingReading> ReadSetting(Control control) override;
  DeviceResult<void> Apply(Control control, const std::optional<Setting>& setting) override;
  DeviceResult<Effect> ReadEffect(Control control, const std::optional<Setting>& setting) override;

 private:
  // A visit to the driver, with the GPU's handle of the visit's generation.
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
  DeviceResult<unsigned> ReadSmClock(const Session& session);
  DeviceResult<Clocks> ReadClocks(const Session& session);
  DeviceResult<double> ReadCounter(const Session& session);
  DeviceResult<double> EnergyOf(const Session& session, Telemetry& telemetry);
  DeviceResult<int> ReadPowerLimit(const Session& session);
  DeviceResult<void> CheckSetting(Control control, const Setting& setting) const;
  DeviceResult<void> ApplyLock(const Session& session, Control control,
                               const std::optional<Setting>& setting);
  DeviceResult<void> ApplyPowerLimit(const Session& session, const std::optional<Setting>& setting);

  // Calls NVML. `what` completes "cannot ..." in messages. A null function is kNotSupported.
  template <typename... Parameters, typename... Arguments>
  DeviceResult<void> Call(const Session& session, NvmlUse use, std::string_view what,
                          int (*function)(nvml::Handle, Parameters...), Arguments... arguments);
  tl::unexpected<DeviceError> Failure(const NvmlLibrary::Visit& visit, NvmlUse use,
                                      std::string_view what, int code);

  const std::shared_ptr<NvmlLibrary> library_;
  const DeviceInfo info_;

  std::mutex mutex_;  // Never held during a call of the driver. Guards:
  nvml::Handle handle_ = nullptr;
  std::uint64_t handle_generation_ = 0;  // 0: no handle yet.
  EnergyIntegrator integrator_;
  EnergyCounter counter_;
};

}  // namespace perseus::device
