#include "perseus/simulation/virtual_gpu/virtual_worker.h"

#include <utility>

namespace perseus::virtual_gpu {

VirtualWorker::VirtualWorker(std::shared_ptr<VirtualNodeMemory> memory, int gpu,
                             std::unique_ptr<VirtualNodeMemory::Claim> claim)
    : memory_(std::move(memory)), gpu_(gpu), claim_(std::move(claim)) {}

Result<void> VirtualWorker::SetRest(Rest rest) {
  return memory_->Update(gpu_,
                         [&](VirtualCell& cell, Nanoseconds now) { cell.gpu.SetRest(rest, now); });
}

Result<Nanoseconds> VirtualWorker::Begin(const InstructionTable& instruction) {
  bool was_running = false;
  Nanoseconds begun = 0;
  const auto updated = memory_->Update(gpu_, [&](VirtualCell& cell, Nanoseconds now) {
    cell.gpu.AdvanceTo(now);
    was_running = cell.gpu.is_running() || cell.gpu.has_queued();
    if (was_running) return;
    cell.gpu.Begin(instruction, now);
    begun = cell.gpu.at();
  });
  if (!updated) return Fail(updated);
  if (was_running) {
    return Fail("GPU {} of {} still runs an instruction (wait until it is done)", gpu_,
                memory_->spec().name);
  }
  return begun;
}

Result<std::uint64_t> VirtualWorker::Enqueue(const InstructionTable& instruction,
                                             Nanoseconds not_before) {
  std::uint64_t run = 0;
  const auto updated = memory_->Update(gpu_, [&](VirtualCell& cell, Nanoseconds now) {
    cell.gpu.AdvanceTo(now);
    if (!cell.gpu.has_queued()) run = cell.gpu.Enqueue(instruction, not_before, now);
  });
  if (!updated) return Fail(updated);
  if (run == 0) {
    return Fail(
        "GPU {} of {} already has an instruction in its queue, which holds one (wait until it "
        "begins)",
        gpu_, memory_->spec().name);
  }
  return run;
}

Result<VirtualRun> VirtualWorker::RunOf(std::uint64_t run) {
  PERSEUS_ASSIGN_OR_RETURN(const auto snapshot, memory_->Read(gpu_));
  const VirtualGpu& gpu = snapshot.cell.gpu;
  if (run == 0 || run > gpu.last_run() || run + VirtualGpu::kRunsRemembered <= gpu.last_run()) {
    return Fail("GPU {} of {} does not remember run {} (use one of the latest {})", gpu_,
                memory_->spec().name, run, VirtualGpu::kRunsRemembered);
  }
  return gpu.RunOf(run);
}

Result<Nanoseconds> VirtualWorker::FinishTime() {
  PERSEUS_ASSIGN_OR_RETURN(const auto snapshot, memory_->Read(gpu_));
  return snapshot.cell.gpu.FinishTime();
}

Result<Nanoseconds> VirtualWorker::WaitUntilDone() {
  for (;;) {
    PERSEUS_ASSIGN_OR_RETURN(const auto snapshot, memory_->Read(gpu_));
    const Nanoseconds finish = snapshot.cell.gpu.FinishTime();
    if (finish <= snapshot.now) return finish;
    memory_->WaitWhile(gpu_, snapshot.version, finish);
  }
}

}  // namespace perseus::virtual_gpu
