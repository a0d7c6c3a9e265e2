// A node of virtual GPUs. It has the same Device interface as real GPUs, with the physics of
// virtual_gpu.h. Several processes share the node: an agent sets clocks, ranks compute, and tests
// read:
//
//   perseus agent     OpenVirtualNode("box.toml")           the GPUs as devices
//   a training rank   VirtualNode::Open(...)->OpenWorker(2) computes on GPU 2
//   a test            VirtualNode::Open(...)->Look(2)       the exact state, beside the driver's
//
// A file describes the node (virtual_node_file.h has the format). The shared state is in a file
// beside it (virtual_node_memory.h). The first process creates it, and it survives the death of any
// process.
//
// Time is virtual. It starts at 0 when the state is created, and `rate` virtual seconds pass in one
// second of the clock of the node. That clock is CLOCK_MONOTONIC, or a virtual clock that several
// nodes may share (shared_clock.h). All times here and in Telemetry are virtual times of the node.
//
// Thread safety: all calls may come from several threads and processes at the same time.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/runtime/device/device.h"
#include "perseus/simulation/virtual_gpu/virtual_gpu.h"
#include "perseus/simulation/virtual_gpu/virtual_node_memory.h"

namespace perseus::virtual_gpu {

// The interface of a virtual GPU for a training rank, which computes on the GPU. On each GPU, only
// the process that has opened the worker computes. Other processes may set clocks and read.
//
//   auto worker = node->OpenWorker(0);
//   worker->SetRest(Rest::kBlocking);                 // Spin while waiting for neighbors.
//   worker->Begin(forward);                           // MakeInstructionTable(profile, ...)
//   const auto finished = worker->WaitUntilDone();    // Sleeps, at the node's rate.
//   worker->SetRest(Rest::kIdle);
//
// Enqueue loses no time between two instructions, even if this process is woken late:
//
//   worker->Enqueue(forward, input_arrives_at);       // Begins after the running one.
//
// When the worker is destroyed or its process dies, its instruction ends and the GPU is idle.
//
// Not thread-safe: only one thread at a time may use a worker. If a child is forked while a worker
// is open, the GPU stays claimed until the child ends, too.
class VirtualWorker {
 public:
  // VirtualNode::OpenWorker() calls it.
  VirtualWorker(std::shared_ptr<VirtualNodeMemory> memory, int gpu,
                std::unique_ptr<VirtualNodeMemory::Claim> claim);

  // Sets the state of the GPU while it runs no instruction. The initial state is idle.
  Result<void> SetRest(Rest rest);

  // Begins the instruction now, and returns the virtual time. Fails (kInput) if another one still
  // runs.
  Result<Nanoseconds> Begin(const InstructionTable& instruction);

  // Queues the instruction behind the running one. It begins at `not_before` (virtual time, may be
  // in the past) or later. Returns the number of its run (1, 2, ...). Fails (kInput) if another
  // instruction is already queued.
  Result<std::uint64_t> Enqueue(const InstructionTable& instruction, Nanoseconds not_before);

  // When this run of this worker began and ended. A time in the future assumes that no clock is set
  // until then. Virtual time, exact. Fails (kInput) if `run` is not among the latest four.
  Result<VirtualRun> RunOf(std::uint64_t run);

  // When the running instruction will end, if no clock is set until then. If none runs, when the
  // last one ended. Virtual time, exact. A process that waits for this time may be woken later.
  Result<Nanoseconds> FinishTime();

  // Sleeps until the running instruction has ended, even if its clock changes during the sleep.
  // Then returns FinishTime(). Returns at once if no instruction runs.
  Result<Nanoseconds> WaitUntilDone();

 private:
  std::shared_ptr<VirtualNodeMemory> memory_;
  int gpu_;
  std::unique_ptr<VirtualNodeMemory::Claim> claim_;
};

// The exact state of a virtual GPU.
struct VirtualGpuView {
  VirtualGpuReading reading;
  std::uint64_t writes = 0;  // Settings accepted so far.
  int worker_pid = 0;        // The process that computes on the GPU. 0: none.
};

class VirtualNode {
 public:
  // Opens the node. A null `clock` means the clock of the description. Tests pass a FakeClock.
  // Fails (kInput) with file and line if the description is wrong, or if the state belongs to
  // another description. Fails (kSystem) if a system call fails.
  static Result<VirtualNode> Open(const std::filesystem::path& description,
                                  std::shared_ptr<Clock> clock = nullptr);

  const VirtualNodeSpec& spec() const { return memory_->spec(); }
  const std::shared_ptr<Clock>& clock() const { return memory_->clock(); }
  Nanoseconds Now() const { return memory_->Now(); }
  // Conversions between the clock and this node's time, for messages between nodes.
  Nanoseconds ToVirtual(Nanoseconds real) const { return memory_->ToVirtual(real); }
  Nanoseconds ToReal(Nanoseconds time) const { return memory_->ToReal(time); }

  // The devices, sorted by UUID as text (GPU-virtual-box-10 comes before -2). They may outlive this
  // object.
  device::DeviceList Devices() const;

  // In the following calls, GPUs count from 0. They fail (kInput) for a GPU that does not exist.

  // Fails (kSystem) while another worker of this GPU is open.
  Result<VirtualWorker> OpenWorker(int gpu) const;
  Result<VirtualGpuView> Look(int gpu) const;
  // Limits the clock independently of the lock, as heat does on a straggler.
  Result<void> SetThrottle(int gpu, std::optional<int> clock_mhz) const;

 private:
  explicit VirtualNode(std::shared_ptr<VirtualNodeMemory> memory);
  Result<void> CheckGpu(int gpu) const;

  std::shared_ptr<VirtualNodeMemory> memory_;
};

// The node's GPUs as devices. Fails as VirtualNode::Open() does.
Result<device::DeviceList> OpenVirtualNode(const std::filesystem::path& description);

// "GPU-virtual-box-0".
std::string VirtualUuid(const VirtualNodeSpec& spec, int gpu);

}  // namespace perseus::virtual_gpu
