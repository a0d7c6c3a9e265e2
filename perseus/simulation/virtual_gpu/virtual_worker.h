// The interface of a virtual GPU for a training rank, which computes on it. On each GPU, only the
// process that has opened the worker computes. Other processes may set clocks and read.
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
// Not thread-safe: only one thread at a time may use a worker. A child that is forked while a
// worker is open also keeps the GPU claimed until it ends.
#pragma once

#include <memory>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/simulation/virtual_gpu/virtual_gpu.h"
#include "perseus/simulation/virtual_gpu/virtual_node_memory.h"

namespace perseus::virtual_gpu {

class VirtualWorker {
 public:
  // VirtualNode::OpenWorker() calls it.
  VirtualWorker(std::shared_ptr<VirtualNodeMemory> memory, int gpu,
                std::unique_ptr<VirtualNodeMemory::Claim> claim);

  // What the GPU does while it runs no instruction. At first, it is idle.
  Result<void> SetRest(Rest rest);

  // Begins the instruction now, and returns the virtual time. Fails (kInput) if one still runs.
  Result<Nanoseconds> Begin(const InstructionTable& instruction);

  // Queues the instruction behind the running one. It begins at `not_before` (virtual time, may be
  // in the past) at the earliest. Returns the number of its run, from 1. Fails (kInput) if an
  // instruction is queued already.
  Result<std::uint64_t> Enqueue(const InstructionTable& instruction, Nanoseconds not_before);

  // When that run of this worker began and ended, or will if no clock is set until then. Virtual
  // time, exact. Fails (kInput) if it is not one of the latest four.
  Result<VirtualRun> RunOf(std::uint64_t run);

  // When the running instruction will end if no clock is set until then, or when the last one ended
  // if none runs. Virtual time, exact. A wait for it may end later, because the process is woken
  // late.
  Result<Nanoseconds> FinishTime();

  // Sleeps until the running instruction has ended, also if its clock changes meanwhile. Then
  // returns FinishTime(). Returns at once if none runs.
  Result<Nanoseconds> WaitUntilDone();

 private:
  std::shared_ptr<VirtualNodeMemory> memory_;
  int gpu_;
  std::unique_ptr<VirtualNodeMemory::Claim> claim_;
};

}  // namespace perseus::virtual_gpu
