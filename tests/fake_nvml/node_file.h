// The file that holds a fake node: its GPUs, what is set on them, what goes wrong, and every call
// that was made. All processes that use the fake map it, so that they and the test see the same
// hardware, and it outlives them.
//
// A process may be killed at any instruction. There are therefore no locks: everything that changes
// is one atomic, and what belongs together (the two ends of a clock range) shares one. The layout
// is that of one build; the magic number changes with it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace perseus::fake_nvml {

inline constexpr std::uint64_t kMagic = 0x31304c4d564e4b46;  // "FKNVML01"
inline constexpr int kMostGpus = 16;
inline constexpr int kMostClocks = 256;
inline constexpr int kMostInstances = 7;
inline constexpr std::size_t kLogCapacity = 1 << 16;

// What NVML is asked. The log and the faults name these.
enum class Function : std::uint32_t {
  kInit,
  kShutdown,
  kGetCount,
  kGetHandle,
  kGetInfo,  // UUID, name, clocks' lists, constraints, modes: what never changes.
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
};
inline constexpr std::size_t kFunctions = 16;
inline constexpr std::uint32_t kNoGpu = ~0U;

struct Gpu {
  // Written once, before anybody maps the file.
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
  std::int32_t mig_instances;  // -1: no such thing as MIG; 0: off; else MIG mode, with so many.
  std::uint32_t has_energy_counter;

  // What NVML set. A range is lower << 32 | upper; 0: none.
  std::atomic<std::uint64_t> sm_lock;
  std::atomic<std::uint64_t> memory_lock;
  std::atomic<std::uint32_t> power_limit_mw;

  // What the test sets.
  std::atomic<std::uint32_t> power_mw;
  std::atomic<std::uint32_t> temperature_c;
  std::atomic<std::uint32_t> is_persistent;
  std::atomic<std::uint64_t> energy_mj;          // The counter, but for what follows:
  std::atomic<std::uint32_t> is_energy_running;  // power_mw since energy_since_ns is added.
  std::atomic<std::int64_t> energy_since_ns;
  std::atomic<std::uint32_t> is_idle;
  std::atomic<std::uint32_t> stuck_sm_clock_mhz;  // Whatever is set; 0: not stuck.
  std::atomic<std::uint32_t> sm_cap_mhz;          // The SM clock stays at or below; 0: no cap.
  std::atomic<std::uint64_t> cap_reasons;         // What is named as the cause of the cap.
  std::atomic<std::uint32_t> hides_setting;       // A lock is not named as a reason.
  std::atomic<std::uint32_t> ignores_changes;     // Answers success, and changes nothing.
  std::atomic<std::uint32_t> is_lost;
  // By function: code << 16 | how many times (0xffff: until it is taken back).
  std::atomic<std::uint32_t> faults[kFunctions];
  std::atomic<std::uint32_t> slow_ms[kFunctions];
};

struct LogEntry {
  std::atomic<std::uint64_t> sequence;  // Position in the log + 1, once all else is written.
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
  // Another one: the driver was reloaded, and whoever initialized NVML before has to do it again.
  std::atomic<std::uint64_t> driver_generation;
  std::atomic<std::uint32_t> is_driver_loaded;
  std::atomic<std::uint32_t> faults[kFunctions];  // Of calls that name no GPU.
  std::atomic<std::uint64_t> calls[kFunctions];
  std::atomic<std::uint64_t> log_end;
  LogEntry log[kLogCapacity];  // A ring.
  Gpu gpus[kMostGpus];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Maps the file; null if it is not there or is not one.
std::shared_ptr<Node> MapNode(const std::string& path);
// Makes it, all zero but the magic number; null if it cannot.
std::shared_ptr<Node> CreateNode(const std::string& path);

std::int64_t MonotonicNs();
inline std::uint64_t Range(std::uint64_t lower, std::uint32_t upper) { return lower << 32 | upper; }

}  // namespace perseus::fake_nvml
