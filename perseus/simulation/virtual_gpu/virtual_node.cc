#include "perseus/simulation/virtual_gpu/virtual_node.h"

#include <algorithm>
#include <utility>

#include "perseus/simulation/virtual_gpu/shared_clock.h"
#include "perseus/simulation/virtual_gpu/virtual_device.h"

namespace perseus::virtual_gpu {

VirtualNode::VirtualNode(std::shared_ptr<VirtualNodeMemory> memory) : memory_(std::move(memory)) {}

Result<VirtualNode> VirtualNode::Open(const std::filesystem::path& description,
                                      std::shared_ptr<Clock> clock) {
  PERSEUS_ASSIGN_OR_RETURN(const auto spec, ReadVirtualNode(description));
  if (clock == nullptr && !spec.clock.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(clock, SharedClock::Open(spec.clock));
  }
  if (clock == nullptr) clock = std::make_shared<RealClock>();
  PERSEUS_ASSIGN_OR_RETURN(auto memory, VirtualNodeMemory::Open(spec, std::move(clock)));
  return VirtualNode(std::move(memory));
}

device::DeviceList VirtualNode::Devices() const {
  device::DeviceList list;
  list.clock = clock();
  for (int gpu = 0; gpu < spec().gpus; ++gpu)
    list.devices.push_back(MakeVirtualDevice(memory_, gpu));
  std::sort(list.devices.begin(), list.devices.end(),
            [](const auto& a, const auto& b) { return a->info().uuid < b->info().uuid; });
  return list;
}

Result<void> VirtualNode::CheckGpu(int gpu) const {
  if (gpu >= 0 && gpu < spec().gpus) return {};
  return Fail("{}: has no GPU {} (choose 0 to {})", spec().description.string(), gpu,
              spec().gpus - 1);
}

Result<VirtualWorker> VirtualNode::OpenWorker(int gpu) const {
  PERSEUS_RETURN_IF_ERROR(CheckGpu(gpu));
  PERSEUS_ASSIGN_OR_RETURN(auto claim, VirtualNodeMemory::ClaimGpu(memory_, gpu));
  return VirtualWorker(memory_, gpu, std::move(claim));
}

Result<VirtualGpuView> VirtualNode::Look(int gpu) const {
  PERSEUS_RETURN_IF_ERROR(CheckGpu(gpu));
  PERSEUS_ASSIGN_OR_RETURN(const auto snapshot, memory_->Read(gpu));
  const VirtualCell& cell = snapshot.cell;
  return VirtualGpuView{cell.gpu.ReadAt(snapshot.now), cell.writes, cell.worker};
}

Result<void> VirtualNode::SetThrottle(int gpu, std::optional<int> clock_mhz) const {
  PERSEUS_RETURN_IF_ERROR(CheckGpu(gpu));
  return memory_->Update(
      gpu, [&](VirtualCell& cell, Nanoseconds now) { cell.gpu.SetThrottle(clock_mhz, now); });
}

Result<device::DeviceList> OpenVirtualNode(const std::filesystem::path& description) {
  PERSEUS_ASSIGN_OR_RETURN(const auto node, VirtualNode::Open(description));
  return node.Devices();
}

std::string VirtualUuid(const VirtualNodeSpec& spec, int gpu) {
  return fmt::format("GPU-virtual-{}-{}", spec.name, gpu);
}

}  // namespace perseus::virtual_gpu
