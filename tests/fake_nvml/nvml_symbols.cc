// The fake NVML library: NVML's interface to the fake node. With FAKE_NVML_OLD, it lacks the
// functions that an old driver does not have.
//
// This file declares NVML's interface independently of perseus/runtime/device/nvml_api.h. So if
// nvml_api.h has a mistake, a test fails.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "perseus/base/mutex.h"
#include "tests/fake_nvml/node_file.h"

namespace {

using perseus::Mutex;
using perseus::MutexLock;
using namespace perseus::fake_nvml;

constexpr int kSuccess = 0;
constexpr int kUninitialized = 1;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr int kDriverNotLoaded = 9;
constexpr int kGpuIsLost = 15;

using NvmlHandle = void*;  // epoch << 16 | instance + 1 << 8 | index + 1.

struct Process {
  Mutex mutex;
  std::shared_ptr<Node> node PERSEUS_GUARDED_BY(mutex);
  int references PERSEUS_GUARDED_BY(mutex) = 0;
  // The number of initializations. Handles of an earlier initialization are invalid.
  std::uint64_t epoch PERSEUS_GUARDED_BY(mutex) = 0;
  std::uint64_t driver_generation PERSEUS_GUARDED_BY(mutex) = 0;
};
Process& TheProcess() {
  static Process process;
  return process;
}

// One call. The log contains the call from its beginning, so the log shows a kill during the call.
class Call {
 public:
  Call(std::shared_ptr<Node> node, Function function, std::uint32_t gpu, std::uint32_t first,
       std::uint32_t second)
      : node_(std::move(node)) {
    if (!node_) return;
    ++node_->calls[static_cast<std::size_t>(function)];
    const std::uint64_t position = node_->log_end.fetch_add(1);
    entry_ = &node_->log[position % kLogCapacity];
    sequence_ = position + 1;
    entry_->sequence = 0;
    entry_->function = static_cast<std::uint32_t>(function);
    entry_->gpu = gpu;
    entry_->first = first;
    entry_->second = second;
    entry_->pid = static_cast<std::int32_t>(::getpid());
    entry_->result = kInside;
    entry_->sequence = sequence_;
  }
  int Return(int code) {
    if (entry_ != nullptr && entry_->sequence == sequence_) entry_->result = code;
    return code;
  }

 private:
  std::shared_ptr<Node> node_;
  LogEntry* entry_ = nullptr;
  std::uint64_t sequence_ = 0;
};

// Returns the injected error code, or kSuccess if no fault is set. Reduces the remaining number of
// the fault.
int TakeFault(std::atomic<std::uint32_t>& fault) {
  std::uint32_t now = fault;
  while ((now & 0xffff) != 0) {
    const std::uint32_t left = (now & 0xffff) == 0xffff ? now : now - 1;
    if (fault.compare_exchange_weak(now, left)) return static_cast<int>(now >> 16);
  }
  return kSuccess;
}

// Waits for the time that the test sets. The test may change this time during the wait.
void DelayCall(const std::atomic<std::uint32_t>& milliseconds) {
  const std::timespec slice{.tv_sec = 0, .tv_nsec = 1'000'000};
  const std::int64_t begin = MonotonicNs();
  while (MonotonicNs() - begin < std::int64_t{milliseconds} * 1'000'000) {
    ::nanosleep(&slice, nullptr);
  }
}

// Waits as a call of the real library waits for its locks.
void DelaySerialCall(const Node& node, const std::atomic<std::uint32_t>& milliseconds) {
  static Mutex serial;
  if (node.is_serial == 0) return DelayCall(milliseconds);
  const MutexLock lock(serial);
  DelayCall(milliseconds);
}

struct Attached {
  std::shared_ptr<Node> node;
  std::uint64_t epoch = 0;
  bool is_usable = false;
};
Attached Attachment() {
  Process& process = TheProcess();
  const MutexLock lock(process.mutex);
  return {.node = process.node,
          .epoch = process.epoch,
          .is_usable = process.references > 0 && process.node->is_driver_loaded != 0 &&
                       process.node->driver_generation == process.driver_generation};
}

NvmlHandle MakeHandle(std::uint64_t epoch, std::uint64_t index, std::uint64_t instance = 0) {
  return std::bit_cast<NvmlHandle>(epoch << 16 | instance << 8 | (index + 1));
}

// Calls body(node, epoch), which returns an NVML code.
template <typename Body>
int OnNode(Function function, Body body) {
  const Attached attached = Attachment();
  Call call(attached.node, function, kNoGpu, 0, 0);
  if (!attached.is_usable) return call.Return(kUninitialized);
  const int fault = TakeFault(attached.node->faults[static_cast<std::size_t>(function)]);
  return call.Return(fault != kSuccess ? fault : body(*attached.node, attached.epoch));
}

// Calls body(gpu), which returns an NVML code. Handles of MIG instances support only kGetInfo.
template <typename Body>
int OnGpu(Function function, NvmlHandle handle, std::uint32_t first, std::uint32_t second,
          Body body) {
  const Attached attached = Attachment();
  const auto bits = std::bit_cast<std::uint64_t>(handle);
  const std::uint64_t index = (bits & 0xff) - 1;
  const bool is_known =
      attached.is_usable && (bits >> 16) == attached.epoch && index < attached.node->gpu_count;
  Call call(attached.node, function, is_known ? static_cast<std::uint32_t>(index) : kNoGpu, first,
            second);
  if (!attached.is_usable) return call.Return(kUninitialized);
  if (!is_known) return call.Return(kInvalidArgument);
  Gpu& gpu = attached.node->gpus[index];
  DelaySerialCall(*attached.node, gpu.slow_ms[static_cast<std::size_t>(function)]);
  if (gpu.is_lost != 0) return call.Return(kGpuIsLost);
  for (auto* faults : {attached.node->faults, gpu.faults}) {
    const int fault = TakeFault(faults[static_cast<std::size_t>(function)]);
    if (fault != kSuccess) return call.Return(fault);
  }
  return call.Return(body(gpu));
}

template <typename Body>
int OnGpu(Function function, NvmlHandle handle, Body body) {
  return OnGpu(function, handle, 0, 0, body);
}

int CopyText(const char* from, char* to, unsigned size) {
  if (std::strlen(from) + 1 > size) return kInsufficientSize;
  std::strcpy(to, from);
  return kSuccess;
}

// From high to low, as NVML lists clocks.
int CopyClocks(const std::uint32_t* clocks, std::uint32_t have, unsigned* count, unsigned* mhz) {
  if (have == 0) return kNotSupported;
  const unsigned room = mhz == nullptr ? 0 : *count;
  *count = have;
  if (room < have) return kInsufficientSize;
  std::reverse_copy(clocks, clocks + have, mhz);
  return kSuccess;
}

std::uint32_t TopOf(std::uint64_t lock, const std::uint32_t* clocks, std::uint32_t count) {
  if (lock != 0) return static_cast<std::uint32_t>(lock);
  return count == 0 ? 0 : clocks[count - 1];
}

struct ClockState {
  std::uint32_t sm_mhz;
  std::uint32_t memory_mhz;
  std::uint64_t reasons;
};
ClockState Clocks(const Gpu& gpu) {
  const std::uint64_t sm_lock = gpu.sm_lock;
  const std::uint64_t memory_lock = gpu.memory_lock;
  if (gpu.is_idle != 0) {
    return {gpu.sm_clocks_mhz[0], gpu.memory_clocks_mhz[0], 0x1};
  }
  ClockState state{TopOf(sm_lock, gpu.sm_clocks_mhz, gpu.sm_clock_count),
                   TopOf(memory_lock, gpu.memory_clocks_mhz, gpu.memory_clock_count), 0};
  if ((sm_lock != 0 || memory_lock != 0) && gpu.hides_setting == 0) state.reasons |= 0x2;
  if (const std::uint32_t cap = gpu.sm_cap_mhz; cap != 0 && cap < state.sm_mhz) {
    state.sm_mhz = cap;
    state.reasons |= gpu.cap_reasons;
  }
  if (const std::uint32_t stuck = gpu.stuck_sm_clock_mhz; stuck != 0) state.sm_mhz = stuck;
  return state;
}

int SetLock(Gpu& gpu, std::atomic<std::uint64_t>& lock, const std::uint32_t* clocks,
            std::uint32_t count, unsigned lower, unsigned upper) {
  if (count == 0) return kNotSupported;
  if (lower > upper || lower < clocks[0] || upper > clocks[count - 1]) return kInvalidArgument;
  if (gpu.ignores_changes == 0) lock = Range(lower, upper);
  return kSuccess;
}

// Writes the list of programs in entries of this size. The process is the first field of an entry.
int CopyPrograms(const Gpu& gpu, unsigned* count, void* entries) {
  const std::uint32_t have = gpu.program_count;
  const unsigned room = *count;
  *count = have;
  if (room < have) return kInsufficientSize;
  const std::size_t size = gpu.has_long_programs != 0 ? 32 : 24;
  std::memset(entries, 0, have * size);
  for (std::uint32_t i = 0; i < have; ++i) {
    const std::uint32_t pid = gpu.program_pids[i];
    std::memcpy(static_cast<char*>(entries) + i * size, &pid, sizeof pid);
  }
  return kSuccess;
}

int ResetLock(Gpu& gpu, std::atomic<std::uint64_t>& lock) {
  if (gpu.ignores_changes == 0) lock = 0;
  return kSuccess;
}

}  // namespace

extern "C" {

struct PciInfoOfVersion3 {
  char short_bus_id[16];
  unsigned numbers[5];
  char bus_id[32];
};

int nvmlInit_v2() {
  Process& process = TheProcess();
  const MutexLock lock(process.mutex);
  if (process.references == 0) {
    const char* const path = std::getenv("FAKE_NVML_FILE");
    std::shared_ptr<Node> node = path == nullptr ? nullptr : MapNode(path);
    if (!node) return kDriverNotLoaded;
    process.node = std::move(node);
  }
  Call call(process.node, Function::kInit, kNoGpu, 0, 0);
  Node& node = *process.node;
  const int fault = TakeFault(node.faults[static_cast<std::size_t>(Function::kInit)]);
  if (fault != kSuccess) return call.Return(fault);
  if (node.is_driver_loaded == 0) return call.Return(kDriverNotLoaded);
  if (process.references++ == 0) {
    ++process.epoch;
    process.driver_generation = node.driver_generation;
  }
  return call.Return(kSuccess);
}

int nvmlShutdown() {
  Process& process = TheProcess();
  const MutexLock lock(process.mutex);
  Call call(process.node, Function::kShutdown, kNoGpu, 0, 0);
  if (process.references == 0) return call.Return(kUninitialized);
  --process.references;
  return call.Return(kSuccess);
}

const char* nvmlErrorString(int code) {
  switch (code) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case 4:
      return "Insufficient Permissions";
    case kNotFound:
      return "Not Found";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    case kGpuIsLost:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return OnNode(Function::kGetDriverVersion, [&](Node& node, std::uint64_t) {
    return CopyText(node.driver_version, text, size);
  });
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  return OnNode(Function::kGetCount, [&](Node& node, std::uint64_t) {
    *count = node.gpu_count;
    return kSuccess;
  });
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, NvmlHandle* handle) {
  return OnNode(Function::kGetHandle, [&](Node& node, std::uint64_t epoch) {
    if (index >= node.gpu_count) return kInvalidArgument;
    if (node.gpus[index].is_lost != 0) return kGpuIsLost;
    *handle = MakeHandle(epoch, index);
    return kSuccess;
  });
}

int nvmlDeviceGetHandleByUUID(const char* uuid, NvmlHandle* handle) {
  return OnNode(Function::kGetHandle, [&](Node& node, std::uint64_t epoch) {
    for (std::uint32_t i = 0; i < node.gpu_count; ++i) {
      if (std::strcmp(node.gpus[i].uuid, uuid) != 0) continue;
      if (node.gpus[i].is_lost != 0) return kGpuIsLost;
      *handle = MakeHandle(epoch, i);
      return kSuccess;
    }
    return kNotFound;
  });
}

int nvmlDeviceGetUUID(NvmlHandle handle, char* text, unsigned size) {
  const std::uint64_t instance = std::bit_cast<std::uint64_t>(handle) >> 8 & 0xff;
  return OnGpu(Function::kGetInfo, handle, [&](Gpu& gpu) {
    if (instance == 0) return CopyText(gpu.uuid, text, size);
    // "MIG-" and the rest of the GPU's UUID, with the instance number as its last digit.
    std::string uuid = std::string("MIG-") + (gpu.uuid + 4);
    uuid.back() = static_cast<char>('0' + instance);
    return CopyText(uuid.c_str(), text, size);
  });
}

int nvmlDeviceGetName(NvmlHandle handle, char* text, unsigned size) {
  return OnGpu(Function::kGetInfo, handle,
               [&](Gpu& gpu) { return CopyText(gpu.name, text, size); });
}

int nvmlDeviceGetPciInfo_v3(NvmlHandle handle, PciInfoOfVersion3* info) {
  return OnGpu(Function::kGetInfo, handle, [&](Gpu& gpu) {
    *info = {};
    return CopyText(gpu.bus_id, info->bus_id, sizeof info->bus_id);
  });
}

int nvmlDeviceGetMinorNumber(NvmlHandle handle, unsigned* number) {
  return OnGpu(Function::kGetInfo, handle, [&](Gpu& gpu) {
    *number = gpu.minor_number;
    return kSuccess;
  });
}

int nvmlDeviceGetPersistenceMode(NvmlHandle handle, unsigned* mode) {
  return OnGpu(Function::kGetInfo, handle, [&](Gpu& gpu) {
    *mode = gpu.is_persistent;
    return kSuccess;
  });
}

int nvmlDeviceGetSupportedMemoryClocks(NvmlHandle handle, unsigned* count, unsigned* mhz) {
  return OnGpu(Function::kGetInfo, handle, [&](Gpu& gpu) {
    return CopyClocks(gpu.memory_clocks_mhz, gpu.memory_clock_count, count, mhz);
  });
}

int nvmlDeviceGetSupportedGraphicsClocks(NvmlHandle handle, unsigned memory_mhz, unsigned* count,
                                         unsigned* mhz) {
  return OnGpu(Function::kGetInfo, handle, [&](Gpu& gpu) {
    const std::uint32_t* const begin = gpu.memory_clocks_mhz;
    const std::uint32_t* const end = begin + gpu.memory_clock_count;
    if (std::find(begin, end, memory_mhz) == end) return kNotFound;
    // A low memory clock supports only low SM clocks.
    const bool is_top = memory_mhz == end[-1];
    return CopyClocks(gpu.sm_clocks_mhz, is_top ? gpu.sm_clock_count : 1, count, mhz);
  });
}

int nvmlDeviceGetClockInfo(NvmlHandle handle, unsigned type, unsigned* mhz) {
  return OnGpu(Function::kGetClock, handle, type, 0, [&](Gpu& gpu) {
    if (type != 1 && type != 2) return kInvalidArgument;
    *mhz = type == 1 ? Clocks(gpu).sm_mhz : Clocks(gpu).memory_mhz;
    return kSuccess;
  });
}

int nvmlDeviceGetCurrentClocksThrottleReasons(NvmlHandle handle, unsigned long long* reasons) {
  return OnGpu(Function::kGetReasons, handle, [&](Gpu& gpu) {
    *reasons = Clocks(gpu).reasons;
    return kSuccess;
  });
}

int nvmlDeviceGetPowerUsage(NvmlHandle handle, unsigned* milliwatts) {
  return OnGpu(Function::kGetPower, handle, [&](Gpu& gpu) {
    if (gpu.has_power == 0) return kNotSupported;
    *milliwatts = gpu.power_mw;
    return kSuccess;
  });
}

int nvmlDeviceGetTemperature(NvmlHandle handle, unsigned sensor, unsigned* celsius) {
  return OnGpu(Function::kGetTemperature, handle, sensor, 0, [&](Gpu& gpu) {
    if (sensor != 0) return kInvalidArgument;
    *celsius = gpu.temperature_c;
    return kSuccess;
  });
}

int nvmlDeviceGetPowerManagementLimit(NvmlHandle handle, unsigned* milliwatts) {
  return OnGpu(Function::kGetPowerLimit, handle, [&](Gpu& gpu) {
    if (gpu.default_power_limit_mw == 0) return kNotSupported;
    *milliwatts = gpu.power_limit_mw;
    return kSuccess;
  });
}

int nvmlDeviceGetPowerManagementDefaultLimit(NvmlHandle handle, unsigned* milliwatts) {
  return OnGpu(Function::kGetInfo, handle, [&](Gpu& gpu) {
    if (gpu.default_power_limit_mw == 0) return kNotSupported;
    *milliwatts = gpu.default_power_limit_mw;
    return kSuccess;
  });
}

int nvmlDeviceGetPowerManagementLimitConstraints(NvmlHandle handle, unsigned* least,
                                                 unsigned* most) {
  return OnGpu(Function::kGetInfo, handle, [&](Gpu& gpu) {
    if (gpu.default_power_limit_mw == 0) return kNotSupported;
    *least = gpu.least_power_limit_mw;
    *most = gpu.most_power_limit_mw;
    return kSuccess;
  });
}

int nvmlDeviceSetPowerManagementLimit(NvmlHandle handle, unsigned milliwatts) {
  return OnGpu(Function::kSetPowerLimit, handle, milliwatts, 0, [&](Gpu& gpu) {
    if (gpu.default_power_limit_mw == 0) return kNotSupported;
    if (milliwatts < gpu.least_power_limit_mw || milliwatts > gpu.most_power_limit_mw) {
      return kInvalidArgument;
    }
    if (gpu.ignores_changes == 0) gpu.power_limit_mw = milliwatts;
    return kSuccess;
  });
}

int nvmlDeviceSetGpuLockedClocks(NvmlHandle handle, unsigned lower, unsigned upper) {
  return OnGpu(Function::kSetSmClock, handle, lower, upper, [&](Gpu& gpu) {
    return SetLock(gpu, gpu.sm_lock, gpu.sm_clocks_mhz, gpu.sm_clock_count, lower, upper);
  });
}

int nvmlDeviceResetGpuLockedClocks(NvmlHandle handle) {
  return OnGpu(Function::kResetSmClock, handle,
               [&](Gpu& gpu) { return ResetLock(gpu, gpu.sm_lock); });
}

int nvmlDeviceGetComputeRunningProcesses_v2(NvmlHandle handle, unsigned* count, void* entries) {
  return OnGpu(Function::kGetPrograms, handle,
               [&](Gpu& gpu) { return CopyPrograms(gpu, count, entries); });
}

#ifndef FAKE_NVML_OLD

int nvmlDeviceGetComputeRunningProcesses_v3(NvmlHandle handle, unsigned* count, void* entries) {
  return nvmlDeviceGetComputeRunningProcesses_v2(handle, count, entries);
}

int nvmlDeviceGetCurrentClocksEventReasons(NvmlHandle handle, unsigned long long* reasons) {
  return nvmlDeviceGetCurrentClocksThrottleReasons(handle, reasons);
}

int nvmlDeviceGetMigMode(NvmlHandle handle, unsigned* now, unsigned* after_reset) {
  return OnGpu(Function::kGetInfo, handle, [&](Gpu& gpu) {
    if (gpu.mig_instances < 0) return kNotSupported;
    *now = *after_reset = gpu.mig_instances > 0 ? 1 : 0;
    return kSuccess;
  });
}

int nvmlDeviceGetMaxMigDeviceCount(NvmlHandle handle, unsigned* count) {
  return OnGpu(Function::kGetInfo, handle, [&](Gpu&) {
    *count = kMostInstances;
    return kSuccess;
  });
}

int nvmlDeviceGetMigDeviceHandleByIndex(NvmlHandle handle, unsigned index, NvmlHandle* instance) {
  return OnGpu(Function::kGetHandle, handle, index, 0, [&](Gpu& gpu) {
    if (gpu.mig_instances <= static_cast<int>(index)) return kNotFound;
    const auto bits = std::bit_cast<std::uint64_t>(handle);
    *instance = MakeHandle(bits >> 16, (bits & 0xff) - 1, index + 1);
    return kSuccess;
  });
}

int nvmlDeviceGetTotalEnergyConsumption(NvmlHandle handle, unsigned long long* millijoules) {
  return OnGpu(Function::kGetEnergy, handle, [&](Gpu& gpu) {
    if (gpu.has_energy_counter == 0) return kNotSupported;
    *millijoules = gpu.energy_mj;
    if (gpu.is_energy_running != 0) {
      // As on an H100, the counter changes ten times a second.
      constexpr std::int64_t kPeriodNs = 100'000'000;
      const std::int64_t periods = (MonotonicNs() - gpu.energy_since_ns) / kPeriodNs;
      *millijoules += static_cast<std::uint64_t>(periods) * gpu.power_mw / 10;
    }
    return kSuccess;
  });
}

int nvmlDeviceSetMemoryLockedClocks(NvmlHandle handle, unsigned lower, unsigned upper) {
  return OnGpu(Function::kSetMemoryClock, handle, lower, upper, [&](Gpu& gpu) {
    return SetLock(gpu, gpu.memory_lock, gpu.memory_clocks_mhz, gpu.memory_clock_count, lower,
                   upper);
  });
}

int nvmlDeviceResetMemoryLockedClocks(NvmlHandle handle) {
  return OnGpu(Function::kResetMemoryClock, handle,
               [&](Gpu& gpu) { return ResetLock(gpu, gpu.memory_lock); });
}

#endif

}  // extern "C"
