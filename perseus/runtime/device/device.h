// One GPU, for energy management: its identity, its power, and the three settings that can be
// changed. NVML, ROCm SMI and virtual GPUs all implement this interface.
//
// A device knows nothing of jobs, leases or plans. The agent decides who may change what.
//
// Thread safety: several threads may call one Device at the same time.
//
// Every backend guarantees:
//  1. Apply() succeeds only if the driver reported that it accepted the setting. ReadEffect()
//     shows, by a reading, whether the GPU really runs at the setting.
//  2. ReadSetting() returns what the driver reports, not a remembered value. If the driver cannot
//     report a setting, ReadSetting() says so (NVML has no call that reads locked clocks).
//  3. If the driver goes away (reload, reset, a GPU that fell off the bus), the call fails with
//     kGone. The next call searches for the same UUID again. So a device object stays usable after
//     such a failure.
//  4. Units are converted only here: MHz, milliwatts, joules, degrees Celsius.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"

namespace perseus::device {

// ---- What can go wrong ----

enum class DeviceErrorKind {
  kPermission,    // The driver needs a privilege that this process lacks.
  kNotSupported,  // This GPU or this driver does not support the call at all.
  kInvalid,       // The value is not valid for the GPU.
  kGone,          // The driver or the GPU went away. It may come back.
  kFailed,        // Any other error. The next call may succeed.
};

struct DeviceError {
  DeviceErrorKind kind = DeviceErrorKind::kFailed;
  Error error = {.what = {}, .kind = ErrorKind::kSystem};
  std::string Message() const { return error.Message(); }
  // Lets a function that returns a Result return this error.
  operator Error() const { return error; }  // NOLINT(google-explicit-constructor)
};

template <typename T>
using DeviceResult = Result<T, DeviceError>;

template <typename... Args>
[[nodiscard]] tl::unexpected<DeviceError> DeviceFail(DeviceErrorKind kind,
                                                     MessageOf<Args...> message, Args&&... args) {
  return tl::unexpected<DeviceError>(
      DeviceError{kind, message(ErrorKind::kSystem, std::forward<Args>(args)...)});
}

// Returns true if the call succeeded, and false if the GPU or its driver does not support the call.
// Returns any other error of the call as an error.
DeviceResult<bool> IfSupported(const DeviceResult<void>& called);

// ---- What can be set ----

enum class Control {
  kSmClock,      // The range to which the SM clock is locked, in MHz.
  kMemoryClock,  // The range to which the memory clock is locked, in MHz.
  kPowerLimit,   // The board's power limit, in mW (lower equals upper).
};
inline constexpr Control kAllControls[] = {Control::kSmClock, Control::kMemoryClock,
                                           Control::kPowerLimit};

// "SM clock", "memory clock", "power limit".
std::string_view NameOf(Control control);

// The value of a control. It is always passed as `std::optional<Setting>`. If the optional is
// empty, the driver manages the control (no lock, the default power limit).
struct Setting {
  int lower = 0;
  int upper = 0;
  friend bool operator==(const Setting&, const Setting&) = default;
};

// "1410 MHz", "1200-1410 MHz", "300 W", "the driver's default".
std::string Describe(Control control, const std::optional<Setting>& setting);

// What a driver reports about a control.
struct SettingReading {
  // False: the driver cannot report the setting, and `setting` has no meaning.
  bool is_known = false;
  std::optional<Setting> setting;
  // If the setting is not known: a sign of a lock ("the SM clock stands at 1200 of 1980 MHz, and
  // the driver names a clock setting as the reason"). Empty: no such sign.
  std::string hint;
  // True: the hint is certain, because the driver itself names a clock setting.
  bool is_certain = false;
};

// ---- What can be read ----

// The reason why a clock is lower than requested, as the driver reports it. Several reasons may
// apply at once.
enum class ClockLimit : unsigned {
  kIdle = 1U << 0,
  kSetting = 1U << 1,     // A clock setting, of Perseus or of another program.
  kPowerCap = 1U << 2,    // The power limit.
  kThermal = 1U << 3,     // The GPU is too hot.
  kPowerBrake = 1U << 4,  // The board or the rack limits the power.
  kOther = 1U << 5,
};
struct ClockLimits {
  unsigned bits = 0;
  bool Has(ClockLimit limit) const { return (bits & static_cast<unsigned>(limit)) != 0; }
  void Add(ClockLimit limit) { bits |= static_cast<unsigned>(limit); }
  friend bool operator==(const ClockLimits&, const ClockLimits&) = default;
};
// Such as "power limit, too hot". Empty if there is no limit.
std::string Describe(ClockLimits limits);
// The limits that hold a clock down, apart from idling and clock settings. Metrics and the rank log
// use the same names.
inline constexpr std::pair<ClockLimit, std::string_view> kHoldingDown[] = {
    {ClockLimit::kPowerCap, "power"},
    {ClockLimit::kThermal, "temperature"},
    {ClockLimit::kPowerBrake, "power_brake"},
    {ClockLimit::kOther, "other"}};
// The names of the limits in kHoldingDown that apply.
std::vector<std::string> NamesOfHoldingDown(ClockLimits limits);
// Whether something other than a clock setting holds the clock down.
bool IsHeldDown(ClockLimits limits);
// Whether the power limit alone holds the clock down. A GPU that works hard is in this state most
// of the time: it runs as fast as it can.
bool IsAtPowerLimit(ClockLimits limits);

// What is known about the energy counter of a GPU (energy_account.h).
enum class CounterState {
  kUsed,
  kOnTrial,   // It is still compared with the power.
  kNone,      // In this and all further states, the energy is integrated from power readings.
  kOfModule,  // It counts other parts of the module too: CPU and memory.
  kDisagrees,
  kStandsStill,
  kFalls,
};
// The name in metrics, such as "stands_still".
std::string_view NameOf(CounterState state);
inline constexpr CounterState kAllCounterStates[] = {
    CounterState::kUsed,     CounterState::kOnTrial,   CounterState::kNone,
    CounterState::kOfModule, CounterState::kDisagrees, CounterState::kStandsStill,
    CounterState::kFalls};

// What a reading of power or energy covers.
enum class PowerScope {
  kGpu,
  kModule,  // Also another GPU of the same module: the first die of an MI250X reports both dies.
};

// A value that the driver does not report is absent.
struct Telemetry {
  Nanoseconds at = 0;  // The time on the device's clock (steady; virtual time for virtual GPUs).
  std::optional<double> power_w;
  // The energy since a fixed moment. Only differences have a meaning. A value that is smaller than
  // the one before, in most cases 0, begins a new count, and the energy between the two is unknown.
  // Integrated energy is more exact if it is read often.
  std::optional<double> energy_j;
  CounterState counter = CounterState::kUsed;
  std::uint64_t counter_falls = 0;      // How often the counter fell, since the device was opened.
  PowerScope scope = PowerScope::kGpu;  // That of power_w and energy_j.
  std::optional<int> temperature_c;
  std::optional<int> sm_clock_mhz;
  std::optional<int> memory_clock_mhz;
  ClockLimits limits;
};
// Returns why the energy is not that of a counter of this GPU, such as "its energy counter stands
// still: energy is integrated from power". Empty if it is, and while the counter is on trial.
std::string DescribeEnergy(const Telemetry& telemetry);

enum class EffectState {
  kInEffect,  // A reading confirms the setting.
  // The driver accepted the setting, but no reading has confirmed it yet. The clock of an idle GPU
  // confirms nothing.
  kPending,
  // The driver accepted the setting, but the clock is lower, for the reasons in `limits`.
  kLimited,
};
struct Effect {
  EffectState state = EffectState::kPending;
  std::optional<int> sm_clock_mhz;
  ClockLimits limits;
};

// ---- The device ----

struct DeviceInfo {
  // Identifies the GPU: "GPU-…". Perseus never depends on the order of indices.
  std::string uuid;
  std::string name;                 // "NVIDIA A100-SXM4-80GB"
  std::string backend;              // "nvml", "rocm", "virtual"
  std::string driver_version;       // Empty if the driver does not report it.
  std::string pci_bus_id;           // Empty if the GPU has none.
  std::optional<int> minor_number;  // N of /dev/nvidiaN.
  // The number that nvidia-smi or rocm-smi shows. NVML counts in the order of PCI buses. The number
  // changes if a GPU falls off the bus, so Perseus only displays it.
  std::optional<int> index;
  // A process that may open this file for reading and writing may use the GPU: "/dev/nvidia3".
  // Empty if no such file is known.
  std::filesystem::path device_file;
  std::vector<int> sm_clocks_mhz;      // Ascending. A lock may name only these.
  std::vector<int> memory_clocks_mhz;  // Ascending.
  int default_power_limit_mw = 0;      // 0: the GPU has no power limit to set.
  int least_power_limit_mw = 0;
  int most_power_limit_mw = 0;
  // Whether the driver keeps the GPU and its settings initialized while no program uses the GPU
  // (NVIDIA's persistence mode). Read when the device was opened. Empty if the driver has no such
  // mode.
  std::optional<bool> is_persistent;
  // The reason why this GPU can be measured but its clocks cannot be set. Empty if no reason is
  // known.
  std::string measure_only;
};

// The power limit to set, in mW. Fails if the GPU has no such limit.
DeviceResult<int> PowerLimitToSet(const DeviceInfo& info, const std::optional<Setting>& setting);

class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Constant during the device's lifetime.
  virtual const DeviceInfo& info() const = 0;

  virtual DeviceResult<Telemetry> Read() = 0;
  // Reads only the energy_j of Read(). This is cheaper than Read(), for many calls per second.
  virtual DeviceResult<std::optional<double>> ReadEnergy();
  // Reads only the sm_clock_mhz of Read(), for about a hundred calls per second. Fails
  // (kNotSupported) if the driver does not report it.
  virtual DeviceResult<int> ReadSmClock();
  // Describes the programs that compute on the GPU: "process 4242 runs on GPU-1f…". Empty if no
  // program does. Fails (kNotSupported) if the driver does not list them.
  virtual DeviceResult<std::string> DescribePrograms();
  virtual DeviceResult<SettingReading> ReadSetting(Control control) = 0;

  // Requests the setting, and returns when the driver has answered. The GPU changes its clock long
  // after the answer. An empty setting returns control to the driver.
  virtual DeviceResult<void> Apply(Control control, const std::optional<Setting>& setting) = 0;
  // Reads whether the setting that was applied last is in effect.
  virtual DeviceResult<Effect> ReadEffect(Control control,
                                          const std::optional<Setting>& setting) = 0;
};

// A GPU, or a part of one, that exists but cannot be used. `why` has the remedy.
struct RefusedDevice {
  std::string what;
  std::string why;
  std::string uuid = {};        // Empty if it is unknown. "MIG-…": a part of a GPU.
  std::string pci_bus_id = {};  // The address of a whole GPU. Empty if it is unknown.
};

// Reads the GPUs until none of their energy counters is on trial, for at most 4 s. Returns the last
// readings.
std::vector<DeviceResult<Telemetry>> EndTrials(const std::vector<Device*>& devices, Clock& clock);

// The steady clock of a driver's GPUs. Tests pass their own.
using DeviceClock = std::function<Nanoseconds()>;

struct DeviceList {
  // The time of these GPUs. Every program that measures or sets them uses this clock.
  std::shared_ptr<Clock> clock = std::make_shared<RealClock>();
  std::vector<std::unique_ptr<Device>> devices;  // Sorted by UUID.
  std::vector<RefusedDevice> refused;
};

}  // namespace perseus::device
