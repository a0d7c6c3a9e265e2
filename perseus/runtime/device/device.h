// One GPU as far as energy is concerned: what it is, what it draws, and the three settings that can
// be changed. NVML, ROCm SMI and virtual GPUs all implement this interface.
//
// A device knows nothing of jobs, leases or plans. The agent decides who may change what.
//
// Thread safety: several threads may call one Device at the same time.
//
// Every backend guarantees:
//  1. Apply() succeeds only if the driver reported that it accepted the setting. Whether the GPU
//     really runs at it is another question, which ReadEffect() answers by a reading.
//  2. Nothing is remembered instead of read: ReadSetting() returns what the driver reports, and
//  says
//     so if the driver cannot report it (NVML has no call that reads locked clocks).
//  3. A driver that goes away (reload, reset, a GPU that fell off the bus) is an error of kind
//  kGone.
//     The next call searches for the same UUID again, so a device object survives it.
//  4. Units are converted here, once: MHz, milliwatts, joules, degrees Celsius.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/units.h"

namespace perseus::device {

// ---- What can go wrong ----

enum class DeviceErrorKind {
  kPermission,    // The driver wants a privilege that this process lacks.
  kNotSupported,  // This GPU, or this driver, cannot do it at all.
  kInvalid,       // Not a value that the GPU knows.
  kGone,          // The driver or the GPU went away. May come back.
  kFailed,        // Anything else. May work the next time.
};

struct DeviceError {
  DeviceErrorKind kind = DeviceErrorKind::kFailed;
  std::string message;  // One line: what failed, why, and the remedy where one is known.
};

template <typename T>
class [[nodiscard]] DeviceResult : public tl::expected<T, DeviceError> {
 public:
  using tl::expected<T, DeviceError>::expected;
};

template <typename... Args>
[[nodiscard]] tl::unexpected<DeviceError> DeviceFail(DeviceErrorKind kind,
                                                     fmt::format_string<Args...> format,
                                                     Args&&... args) {
  return tl::unexpected<DeviceError>(
      DeviceError{kind, fmt::format(format, std::forward<Args>(args)...)});
}

// ---- What can be set ----

enum class Control {
  kSmClock,      // The range that the SM clock is locked to, MHz.
  kMemoryClock,  // The range that the memory clock is locked to, MHz.
  kPowerLimit,   // The board's power limit, mW (lower equals upper).
};
inline constexpr Control kAllControls[] = {Control::kSmClock, Control::kMemoryClock,
                                           Control::kPowerLimit};

// "SM clock", "memory clock", "power limit".
std::string_view NameOf(Control control);

// What one control is set to. `std::optional<Setting>` is used throughout: nothing means the
// driver's own management (no lock; the default power limit).
struct Setting {
  int lower = 0;
  int upper = 0;
  friend bool operator==(const Setting&, const Setting&) = default;
};

// "1410 MHz", "1200-1410 MHz", "300 W", "the driver's default".
std::string Describe(Control control, const std::optional<Setting>& setting);

// What a driver tells of a control.
struct SettingReading {
  // The driver has no way to tell; `setting` then means nothing.
  bool is_known = false;
  std::optional<Setting> setting;
  // Where it is not known: what suggests that somebody locked it ("the SM clock stands at 1200 of
  // 1980 MHz, and the driver names a clock setting as the reason"). Empty where nothing does.
  std::string hint;
  // The hint is more than a guess: the driver itself names a clock setting.
  bool is_certain = false;
};

// ---- What can be read ----

// Why a clock is lower than asked, by what the driver says; bits, for several at a time.
enum class ClockLimit : unsigned {
  kIdle = 1U << 0,
  kSetting = 1U << 1,     // Somebody's clock setting, ours included.
  kPowerCap = 1U << 2,    // The power limit.
  kThermal = 1U << 3,     // Too hot.
  kPowerBrake = 1U << 4,  // The board or the rack pulled the brake.
  kOther = 1U << 5,
};
struct ClockLimits {
  unsigned bits = 0;
  bool Has(ClockLimit limit) const { return (bits & static_cast<unsigned>(limit)) != 0; }
  void Add(ClockLimit limit) { bits |= static_cast<unsigned>(limit); }
  friend bool operator==(const ClockLimits&, const ClockLimits&) = default;
};
// "power limit, too hot"; "" for none.
std::string Describe(ClockLimits limits);

struct Telemetry {
  Nanoseconds at = 0;  // Of the device's clock (steady; virtual GPUs: virtual time).
  double power_w = 0;
  // Since some fixed moment; only differences mean something.
  double energy_j = 0;
  // Integrated from power readings, since the GPU has no counter: as good as it is read often.
  bool is_energy_integrated = false;
  int temperature_c = 0;
  int sm_clock_mhz = 0;
  int memory_clock_mhz = 0;
  ClockLimits limits;
};

enum class EffectState {
  kInEffect,  // Read back, and it is so.
  kPending,   // Accepted; not seen yet. Also of an idle GPU, whose clock tells nothing.
  kLimited,   // Accepted, but something else holds the GPU below it: `limits` says what.
};
struct Effect {
  EffectState state = EffectState::kPending;
  int sm_clock_mhz = 0;
  ClockLimits limits;
};

// ---- The device ----

struct DeviceInfo {
  std::string uuid;        // "GPU-…": what identifies it. Index order is nobody's business here.
  std::string name;        // "NVIDIA A100-SXM4-80GB"
  std::string backend;     // "nvml", "rocm", "virtual"
  std::string pci_bus_id;  // Empty if it has none.
  std::optional<int> minor_number;     // N of /dev/nvidiaN.
  // Whoever may open this file for reading and writing may use the GPU: "/dev/nvidia3". Empty if
  // none is known.
  std::filesystem::path device_file;
  std::vector<int> sm_clocks_mhz;      // Ascending; those that a lock may name.
  std::vector<int> memory_clocks_mhz;  // Ascending.
  int default_power_limit_mw = 0;      // 0: the GPU has no power limit to set.
  int least_power_limit_mw = 0;
  int most_power_limit_mw = 0;
  // Whether the driver keeps the GPU initialized, and with it what was set, while nobody uses it
  // (NVIDIA's persistence mode), as it was when the device was opened. Nothing: no such notion.
  std::optional<bool> is_persistent;
  // Why this GPU can be measured but not set, in words; empty where it can be set, as far as can be
  // known without trying.
  std::string measure_only;
};

class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Does not change while the device lives.
  virtual const DeviceInfo& info() const = 0;

  virtual DeviceResult<Telemetry> Read() = 0;
  // Telemetry's energy_j alone, for who looks at it a hundred times a second.
  virtual DeviceResult<double> ReadEnergy();
  virtual DeviceResult<SettingReading> ReadSetting(Control control) = 0;

  // Asks the driver for it, and returns when the driver has answered (for a clock: long before the
  // GPU runs so). Nothing: back to the driver's own management.
  virtual DeviceResult<void> Apply(Control control, const std::optional<Setting>& setting) = 0;
  // Whether what was applied last is what the GPU does, by reading back now.
  virtual DeviceResult<Effect> ReadEffect(Control control,
                                          const std::optional<Setting>& setting) = 0;
};

// A GPU, or a part of one, that is there and cannot be used; "why" has the remedy.
struct RefusedDevice {
  std::string what;
  std::string why;
};

struct DeviceList {
  // The time in which these GPUs live, and so whoever measures or sets them.
  std::shared_ptr<Clock> clock = std::make_shared<RealClock>();
  std::vector<std::unique_ptr<Device>> devices;  // By UUID, ascending.
  std::vector<RefusedDevice> refused;
};

}  // namespace perseus::device
