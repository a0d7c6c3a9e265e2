// The node that `perseus qualify` measures: its GPUs with their drivers, and kernels that run on
// them.
//
// Design. qualification.h measures only through this interface. So the same procedure runs on real
// GPUs and on simulated GPUs with known behavior. A test compares what the procedure finds with the
// values that the simulated node got.
//
//   qualification.h   what to measure, in which order
//   qualify_run.h     its parts, which write the facts, and what they share
//   estimates.h       estimates from samples (pure functions)
//   measured_node.h   this interface
//   cuda_node.h       real GPUs, with kernels by libcuda where it exists
//   tests/support/simulated_node.h   GPUs with behavior that the caller gives, in virtual time
//
// The SM clock is seen in the work of a kernel. The kernel runs all the time, and counts its
// iterations in memory that the host reads. So a sample needs no launch, and the measured latency
// is that of the GPU, not that of a driver's reading.
//
// Everything that has to happen at the same time (a switch of several GPUs, changes beside
// launches) is one call. So the simulated node needs no threads.
//
// Thread safety: one thread uses a node. The node may start threads inside a call.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/qualifier/estimates.h"

namespace perseus::qualifier {

enum class Load {
  kIdle,
  kCompute,  // Arithmetic on all SMs: its rate is proportional to the SM clock.
  kBlocked,  // A few blocks that spin on a flag, like a receive that waits for its sender.
};

// In the order of hardware_facts::InterferenceKinds().
enum class Operation {
  // The time from the launch of a small kernel until it has run.
  kLaunch,
  kKernel,      // A fixed amount of work of the kernel that computes.
  kCopy,        // A copy from a GPU to the next GPU.
  kCollective,  // An all-reduce of all GPUs.
};
inline constexpr Operation kAllOperations[] = {Operation::kLaunch, Operation::kKernel,
                                               Operation::kCopy, Operation::kCollective};
inline std::string_view NameOf(Operation operation) {
  return hardware_facts::InterferenceKinds()[static_cast<std::size_t>(operation)];
}

// The disturbance beside an operation, on all GPUs.
struct Disturbance {
  Nanoseconds change_period = 0;  // The time between changes of each GPU's clock. 0: no changes.
  // The two clocks alternate. If there are no changes, each clock applies for half of the time. The
  // clocks are close, so that the operation takes about the same time at both.
  int first_mhz = 0;
  int second_mhz = 0;
  double reads_per_s = 0;  // How often the telemetry of each GPU is read.
};

// The result of Time().
struct Timing {
  double mean_ns = 0;  // The mean time of the operation.
  // The number of clock changes per second of the whole node. A driver may make fewer changes than
  // the disturbance requested.
  double changes_per_s = 0;
};

// A request for a clock, and the work of the GPU before and after the request.
struct SwitchRecord {
  Nanoseconds call_begin = 0;
  Nanoseconds call_end = 0;
  std::vector<WorkSample> samples;
};

// The telemetry of each GPU.
using GpuReadings = std::vector<std::vector<device::Telemetry>>;
// The time between two readings of a GPU in MeasuredNode::Read.
inline constexpr Nanoseconds kBetweenReadings = 2 * kMillisecond;

class MeasuredNode {
 public:
  virtual ~MeasuredNode() = default;
  MeasuredNode() = default;
  MeasuredNode(const MeasuredNode&) = delete;
  MeasuredNode& operator=(const MeasuredNode&) = delete;

  int gpu_count() const { return static_cast<int>(devices_.size()); }
  device::Device& device(int gpu) const { return *devices_[static_cast<std::size_t>(gpu)]; }
  const std::vector<device::Device*>& devices() const { return devices_; }
  virtual Clock& clock() = 0;

  // Returns an empty text if the node can run this load or this operation. Otherwise, returns a
  // sentence with the reason.
  virtual std::string WhyNot(Load /*load*/) const { return ""; }
  virtual std::string WhyNot(Operation operation) const {
    const bool needs_two = operation == Operation::kCopy || operation == Operation::kCollective;
    return needs_two && gpu_count() < 2 ? "the node has only one GPU" : "";
  }

  // Starts the load on the GPU, and ends the previous load. Requires that WhyNot(load) is empty.
  virtual Result<void> Run(int gpu, Load load) = 0;

  // Starts the load on all GPUs.
  Result<void> RunOnAll(Load load) {
    for (int gpu = 0; gpu < gpu_count(); ++gpu) PERSEUS_RETURN_IF_ERROR(Run(gpu, load));
    return {};
  }
  // Requests the setting of the SM clock on all GPUs.
  device::DeviceResult<void> LockAll(const device::Setting& setting) {
    for (device::Device* device : devices_) {
      PERSEUS_RETURN_IF_ERROR(device->Apply(device::Control::kSmClock, setting));
    }
    return {};
  }
  device::DeviceResult<void> LockAll(int mhz) { return LockAll({mhz, mhz}); }

  // Requests the setting of the SM clock on the first `gpus` GPUs at the same moment. Records their
  // work from the time `before` ahead of the call until the time `after` following it. Without a
  // setting, the call only records. Returns one record for each GPU. Fails if the driver fails.
  virtual device::DeviceResult<std::vector<SwitchRecord>> Record(
      int gpus, const std::optional<device::Setting>& setting, Nanoseconds before,
      Nanoseconds after) = 0;

  // Reads the telemetry of all GPUs for `duration` from now on, each GPU about every
  // kBetweenReadings. Fails if the driver fails.
  virtual device::DeviceResult<GpuReadings> Read(Nanoseconds duration) = 0;

  // Repeats the operation for `duration`. Meanwhile, the GPUs run what the operation needs.
  // Afterwards, they are idle. Requires that WhyNot(operation) is empty.
  virtual Result<Timing> Time(Operation operation, const Disturbance& disturbance,
                              Nanoseconds duration) = 0;

 protected:
  std::vector<device::Device*> devices_;  // At least one.
};

// Waits on the node's clock.
inline void Sleep(Clock& clock, Nanoseconds duration) {
  const Nanoseconds until = clock.Now() + duration;
  while (clock.Now() < until) clock.WaitUntil(until);
}

}  // namespace perseus::qualifier
