// A GPU behind ROCm SMI.
//
// Two controls can be set: a range of the SM clock, if the driver has one (its performance level is
// then "manual"; unlocking sets the level "auto"), and the power cap. Unlike NVML, the driver
// reports both settings. It does not report what limits a clock, nor whether the GPU is idle. So a
// setting is in effect if it is read back.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "perseus/runtime/device/device.h"
#include "perseus/runtime/device/energy_integrator.h"
#include "perseus/runtime/device/nvml_library.h"
#include "perseus/runtime/device/rocm_api.h"

namespace perseus::device {

// ROCm SMI, shared by all its devices. Only one call runs at a time: its functions read and write a
// few small kernel files, and their thread safety differs between releases.
struct RocmLibrary {
  RocmLibrary(rocm::Api loaded, DeviceClock now) : api(std::move(loaded)), clock(std::move(now)) {}
  RocmLibrary(const RocmLibrary&) = delete;
  RocmLibrary& operator=(const RocmLibrary&) = delete;
  ~RocmLibrary();

  const rocm::Api api;
  const DeviceClock clock;
  std::mutex mutex;  // Guards all calls, and:
  bool is_initialized = false;
  bool is_gone = false;          // A call failed with kGone. The next call restarts the library.
  std::uint64_t generation = 0;  // The number of the initialization. It invalidates older indices.
};

// "GPU-" and the unique id that the driver reports, or else the PCI id.
std::string RocmUuid(const rocm::Functions& functions, std::uint32_t gpu);

class RocmDevice : public Device {
 public:
  RocmDevice(std::shared_ptr<RocmLibrary> library, DeviceInfo info);

  const DeviceInfo& info() const override { return info_; }
  DeviceResult<Telemetry> Read() override;
  DeviceResult<SettingReading> ReadSetting(Control control) override;
  DeviceResult<void> Apply(Control control, const std::optional<Setting>& setting) override;
  DeviceResult<Effect> ReadEffect(Control control, const std::optional<Setting>& setting) override;

 private:
  // The duration of one call of the library.
  struct Session {
    std::unique_lock<std::mutex> lock;
    std::uint32_t gpu = 0;
  };
  DeviceResult<Session> Begin();
  // Call both with the library's lock held.
  DeviceResult<void> Restart();
  DeviceResult<std::uint32_t> FindGpu();

  template <typename... Parameters, typename... Arguments>
  DeviceResult<void> Call(const Session& session, std::string_view what,
                          rocm::Code (*function)(std::uint32_t, Parameters...),
                          Arguments... arguments);
  tl::unexpected<DeviceError> Failure(std::string_view what, rocm::Code code);

  DeviceResult<double> ReadPower(const Session& session);
  DeviceResult<double> ReadEnergyCounter(const Session& session, Telemetry& telemetry);
  // 0 if the driver does not report it.
  DeviceResult<int> ReadClock(const Session& session, int clock);
  DeviceResult<int> ReadTemperature(const Session& session);
  DeviceResult<SettingReading> ReadClockSetting(const Session& session);
  DeviceResult<SettingReading> ReadPowerCap(const Session& session);
  DeviceResult<void> ApplyClock(const Session& session, const std::optional<Setting>& setting);
  DeviceResult<void> ApplyPowerCap(const Session& session, const std::optional<Setting>& setting);

  const std::shared_ptr<RocmLibrary> library_;
  const DeviceInfo info_;
  // Guarded by the library's lock:
  std::uint32_t gpu_ = 0;
  std::uint64_t gpu_generation_ = 0;
  EnergyIntegrator integrator_;
  EnergyCounter counter_;
};

}  // namespace perseus::device
