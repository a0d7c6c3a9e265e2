// The side of a virtual GPU that a training rank sees: it computes there. One process at a time
// does so on each GPU, as the worker that it has opened; others may set clocks and look on.
//
//   auto worker = node->OpenWorker(0);
//   worker->SetRest(Rest::kBlocking);                 // Spin while waiting for neighbours.
//   worker->Begin(forward);                           // MakeInstructionTable(profile, ...)
//   const auto finished = worker->WaitUntilDone();    // Sleeps, at the node's rate.
//   worker->SetRest(Rest::kIdle);
//
// or, losing no time between two instructions however late this process is woken:
//
//   worker->Enqueue(forward, input_arrives_at);       // Begins behind the one that runs.
//
// When the worker is destroyed or its process dies, what it runs is given up and the GPU idles.
//
// Not thread safe: a worker belongs to one thread at a time. A child that is forked while a worker
// is open keeps the GPU claimed until it ends, too.
#pragma once

#include <memory>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/simulation/virtual_gpu/virtual_gpu.h"
#include "perseus/simulation/virtual_gpu/virtual_node_memory.h"

namespace perseus::virtual_gpu {

class VirtualWorker {
 public:
  // VirtualNode::OpenWorker() makes them.
  VirtualWorker(std::shared_ptr<VirtualNodeMemory> memory, int gpu,
                std::unique_ptr<VirtualNodeMemory::Claim> claim);

  // What the GPU does while it runs nothing; idle at first.
  Result<void> SetRest(Rest rest);

  // Begins now; when that is, in virtual time. Fails (kInput) if one is still running.
  Result<Nanoseconds> Begin(const InstructionTable& instruction);

  // Queues it behind the running one, if one runs; it begins no earlier than `not_before` (virtual
  // time; in the past: at once). The number of its run, from 1. Fails (kInput) if one is queued
  // already.
  Result<std::uint64_t> Enqueue(const InstructionTable& instruction, Nanoseconds not_before);

  // From when to when that run of this worker's went, or goes if no clock is set until then:
  // virtual time, exact. Fails (kInput) if it is none of the latest four.
  Result<VirtualRun> RunOf(std::uint64_t run);

  // When the running instruction will be done if no clock is set until then, and when the last one
  // was if none runs. Virtual time, exact: a wait ends later, by as much as a sleeper is woken
  // late.
  Result<Nanoseconds> FinishTime();

  // Sleeps until the running instruction is done, whatever is done to the clock in the meantime;
  // FinishTime() then. Returns at once if none runs.
  Result<Nanoseconds> WaitUntilDone();

 private:
  std::shared_ptr<VirtualNodeMemory> memory_;
  int gpu_;
  std::unique_ptr<VirtualNodeMemory::Claim> claim_;
};

}  // namespace perseus::virtual_gpu
