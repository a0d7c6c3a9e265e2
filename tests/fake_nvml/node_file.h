// The file with the state of a fake node: its GPUs, their settings, the injected faults, and a log
// of all calls. All processes that use the fake map the file. So these processes and the test see
// the same hardware, and the state remains when a process ends.
//
// A process may be killed at any instruction, so there are no locks. Each variable field is an
// atomic. Values that belong together (the two ends of a clock range) share one atomic. All
// processes must come from the same build. If the layout changes, the magic number changes, too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace perseus::fake_nvml {

inline constexpr std::uint64_t kMagic = 0x34304c4d564e4b46;  // "FKNVML04"
inline constexpr int kMostGpus = 16;
inline constexpr int kMostClocks = 256;
inline constexpr int kMostInstances = 7;
inline constexpr int kMostPrograms = 32;
inline constexpr std::size_t kLogCapacity = 1 << 16;

// The functions of NVML, as the log and the faults name them.
enum class Function : std::uint32_t {
  kInit,
  kShutdown,
  kGetCount,
  kGetHandle,
  kGetInfo,  // Constant data: UUID, name, clock lists, limits and modes.
  kGetClock,
  kGetReasons,
  kGetPower,
  kGetEnergy,
  kGetTemperature,
  kGetPowerLimit,
  kSetPowerLimit,
  kSetSmClock,
  kResetSmClock,
  kSetMemoryClock,
  kResetMemoryClock,
  kGetDriverVersion,
  kGetPrograms,
};
inline constexpr std::size_t kFunctions = 18;
inline constexpr std::uint32_t kNoGpu = ~0U;

struct Gpu {
  // These fields are constant. They are written before other processes map the file.
  char uuid[96];
  char name[96];
  char bus_id[32];
  std::uint32_t minor_number;
  std::uint32_t sm_clock_count;  // Ascending.
  std::uint32_t sm_clocks_mhz[kMostClocks];
  std::uint32_t memory_clock_count;
  std::uint32_t memory_clocks_mhz[kMostClocks];
  std::uint32_t default_power_limit_mw;
  std::uint32_t least_power_limit_mw;
  std::uint32_t most_power_limit_mw;
  std::int32_t
      mig_instances;  // -1: no MIG support; 0: MIG is off; otherwise the number of instances.
  std::uint32_t has_energy_counter;
  std::uint32_t has_power;

  // Settings that were made through NVML. A range is lower << 32 | upper. 0 means no lock.
  std::atomic<std::uint64_t> sm_lock;
  std::atomic<std::uint64_t> memory_lock;
  std::atomic<std::uint32_t> power_limit_mw;

  // Values that the test sets.
  std::atomic<std::uint32_t> power_mw;
  std::atomic<std::uint32_t> temperature_c;
  std::atomic<std::uint32_t> is_persistent;
  std::atomic<std::uint64_t> energy_mj;  // The counter. If it runs, its value at energy_since_ns.
  std::atomic<std::uint32_t> is_energy_running;  // The counter adds power_mw since energy_since_ns.
  std::atomic<std::int64_t> energy_since_ns;
  std::atomic<std::uint32_t> is_idle;
  std::atomic<std::uint32_t> stuck_sm_clock_mhz;  // The clock stays at this value; 0: it changes.
  std::atomic<std::uint32_t> sm_cap_mhz;          // Upper limit of the SM clock; 0: no cap.
  std::atomic<std::uint64_t> cap_reasons;         // The reasons that NVML reports for the cap.
  std::atomic<std::uint32_t> hides_setting;       // NVML does not name a lock as a reason.
  std::atomic<std::uint32_t> ignores_changes;     // Changes return success but have no effect.
  std::atomic<std::uint32_t> is_lost;
  std::atomic<std::uint32_t> program_count;  // Programs that use the GPU.
  std::atomic<std::uint32_t> program_pids[kMostPrograms];
  std::atomic<std::uint32_t> has_long_programs;  // An entry of their list has 32 bytes, not 24.
  // By function: code << 16 | number of times (0xffff: until Heal()).
  std::atomic<std::uint32_t> faults[kFunctions];
  std::atomic<std::uint32_t> slow_ms[kFunctions];
};

struct LogEntry {
  // The position in the log + 1, written after all other fields.
  std::atomic<std::uint64_t> sequence;
  std::atomic<std::uint32_t> function;
  std::atomic<std::uint32_t> gpu;
  std::atomic<std::uint32_t> first;
  std::atomic<std::uint32_t> second;
  std::atomic<std::int32_t> pid;
  std::atomic<std::int32_t> result;  // kInside until the call returns.
};
inline constexpr std::int32_t kInside = -1;

struct Node {
  std::uint64_t magic;
  std::uint32_t gpu_count;
  char driver_version[80];
  // Changes at a driver reload. Processes that initialized NVML before the reload must do so again.
  std::atomic<std::uint64_t> driver_generation;
  std::atomic<std::uint32_t> is_driver_loaded;
  // A process holds a lock during each call, so its calls wait for each other.
  std::atomic<std::uint32_t> is_serial;
  std::atomic<std::uint32_t> faults[kFunctions];  // For functions without a GPU argument.
  std::atomic<std::uint64_t> calls[kFunctions];
  std::atomic<std::uint64_t> log_end;
  LogEntry log[kLogCapacity];  // A ring buffer.
  Gpu gpus[kMostGpus];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Maps the file. Returns null if the file does not exist or is not a node file.
std::shared_ptr<Node> MapNode(const std::string& path);
// Creates the file with all fields zero except the magic number. Returns null if this fails.
std::shared_ptr<Node> CreateNode(const std::string& path);

std::int64_t MonotonicNs();
inline std::uint64_t Range(std::uint64_t lower, std::uint32_t upper) { return lower << 32 | upper; }

}  // namespace perseus::fake_nvml
