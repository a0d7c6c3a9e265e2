// A node of virtual GPUs: the same Device interface as real ones, with the physics of
// virtual_gpu.h, shared between processes. An agent sets clocks, ranks compute, somebody looks on:
//
//   perseus agent     OpenVirtualNode("box.toml")           the GPUs as devices
//   a training rank   VirtualNode::Open(...)->OpenWorker(2) computes on GPU 2 (virtual_worker.h)
//   a test            VirtualNode::Open(...)->Look(2)       what is true, beside what a driver
//   tells
//
// The file describes the node (virtual_node_file.h has the format); beside it lies the state that
// all share (virtual_node_memory.h: made by whoever comes first, survives any process's death).
//
// Time is virtual: `rate` virtual seconds a second of the node's clock, from 0 when the state was
// made. That clock is CLOCK_MONOTONIC, or a virtual one that several nodes may share
// (shared_clock.h). All times here and in Telemetry are the node's.
//
// Thread safety: all calls may come from several threads and processes at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"
#include "perseus/simulation/virtual_gpu/virtual_gpu.h"
#include "perseus/simulation/virtual_gpu/virtual_node_memory.h"
#include "perseus/simulation/virtual_gpu/virtual_worker.h"

namespace perseus::virtual_gpu {

// What a virtual GPU is, does and was told, by itself.
struct VirtualGpuView {
  VirtualGpuReading reading;
  VirtualFaults faults;
  std::uint64_t writes = 0;  // Settings accepted so far.
  int worker_pid = 0;        // Who computes there; 0: nobody.
};

class VirtualNode {
 public:
  // `clock`: null for the one that the description names; tests pass a FakeClock. Fails (kInput)
  // with file and line for what is wrong in the description, and if the state is of another one;
  // kSystem if the machine refuses.
  static Result<VirtualNode> Open(const std::filesystem::path& description,
                                  std::shared_ptr<Clock> clock = nullptr);

  const VirtualNodeSpec& spec() const { return memory_->spec(); }
  const std::shared_ptr<Clock>& clock() const { return memory_->clock(); }
  Nanoseconds Now() const { return memory_->Now(); }
  // Between the clock and this node's time, so that one node's moments can be told another.
  Nanoseconds ToVirtual(Nanoseconds real) const { return memory_->ToVirtual(real); }
  Nanoseconds ToReal(Nanoseconds time) const { return memory_->ToReal(time); }

  // In the order of UUIDs (text: GPU-virtual-box-10 comes before -2). Each lives as long as it
  // likes.
  device::DeviceList Devices() const;

  // From here on GPUs count from 0. A number that is none is an error (kInput).

  // Fails (kSystem) while another worker is open on it.
  Result<VirtualWorker> OpenWorker(int gpu) const;
  Result<VirtualGpuView> Look(int gpu) const;
  // Holds the clock to this one at most, whatever the lock: what heat does to a straggler.
  Result<void> SetThrottle(int gpu, std::optional<int> clock_mhz) const;
  // Replaces all of them. A driver that goes away forgets every setting.
  Result<void> SetFaults(int gpu, const VirtualFaults& faults) const;

 private:
  explicit VirtualNode(std::shared_ptr<VirtualNodeMemory> memory);
  Result<void> CheckGpu(int gpu) const;

  std::shared_ptr<VirtualNodeMemory> memory_;
};

// The node's GPUs as devices. Errors as VirtualNode::Open().
Result<device::DeviceList> OpenVirtualNode(const std::filesystem::path& description);

// "GPU-virtual-box-0".
std::string VirtualUuid(const VirtualNodeSpec& spec, int gpu);

}  // namespace perseus::virtual_gpu
