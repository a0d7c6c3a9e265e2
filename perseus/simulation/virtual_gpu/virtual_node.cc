#include "perseus/simulation/virtual_gpu/virtual_node.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "perseus/runtime/device/device.h"
#include "perseus/simulation/virtual_gpu/shared_clock.h"
#include "perseus/simulation/virtual_gpu/virtual_node_memory.h"

namespace perseus::virtual_gpu {
namespace {

tl::unexpected<device::DeviceError> Failed(const Error& error) {
  return tl::unexpected<device::DeviceError>({device::DeviceErrorKind::kFailed, error});
}

std::vector<int> ToVector(const ClockList& clocks) {
  return {clocks.mhz.begin(), clocks.mhz.begin() + clocks.count};
}

device::DeviceInfo InfoOf(const VirtualNodeSpec& spec, int gpu) {
  device::DeviceInfo info;
  info.uuid = VirtualUuid(spec, gpu);
  info.name = spec.gpu_name;
  info.backend = "virtual";
  info.device_file = DeviceFileOf(spec, gpu);
  info.index = gpu;
  info.sm_clocks_mhz = ToVector(spec.gpu.sm_clocks);
  info.memory_clocks_mhz = ToVector(spec.gpu.memory_clocks);
  info.default_power_limit_mw = spec.gpu.default_power_limit_mw;
  info.least_power_limit_mw = spec.gpu.least_power_limit_mw;
  info.most_power_limit_mw = spec.gpu.most_power_limit_mw;
  return info;
}

std::optional<device::Setting> SettingOf(const VirtualGpuReading& reading,
                                         device::Control control) {
  switch (control) {
    case device::Control::kSmClock:
      return reading.requested_lock;
    case device::Control::kMemoryClock:
      return reading.memory_lock;
    case device::Control::kPowerLimit:
      return reading.power_limit;
  }
  return std::nullopt;
}

// A GPU of a virtual node as a Device: what its driver reports.
class VirtualDevice final : public device::Device {
 public:
  VirtualDevice(std::shared_ptr<VirtualNodeMemory> memory, int gpu)
      : memory_(std::move(memory)), gpu_(gpu), info_(InfoOf(memory_->spec(), gpu)) {}

  const device::DeviceInfo& info() const override { return info_; }
  device::DeviceResult<device::Telemetry> Read() override {
    const auto reading = ReadGpu();
    if (!reading) return tl::unexpected<device::DeviceError>(reading.error());
    device::Telemetry telemetry;
    telemetry.at = reading->at;
    telemetry.power_w = reading->published_power_w;
    telemetry.energy_j = reading->published_energy_j;
    telemetry.temperature_c = static_cast<int>(std::lround(reading->temperature_c));
    telemetry.sm_clock_mhz = reading->sm_clock_mhz;
    if (reading->memory_clock_mhz > 0) telemetry.memory_clock_mhz = reading->memory_clock_mhz;
    telemetry.limits = reading->limits;
    return telemetry;
  }

  device::DeviceResult<device::SettingReading> ReadSetting(device::Control control) override {
    const auto reading = ReadGpu();
    if (!reading) return tl::unexpected<device::DeviceError>(reading.error());
    return device::SettingReading{true, SettingOf(*reading, control), ""};
  }

  device::DeviceResult<void> Apply(device::Control control,
                                   const std::optional<device::Setting>& setting) override {
    if (auto checked = Check(control, setting); !checked) return checked;
    const auto updated = memory_->Update(gpu_, [&](VirtualCell& cell, Nanoseconds now) {
      ++cell.writes;
      switch (control) {
        case device::Control::kSmClock:
          cell.gpu.RequestLock(setting, now);
          return;
        case device::Control::kMemoryClock:
          cell.gpu.SetMemoryLock(setting, now);
          return;
        case device::Control::kPowerLimit:
          cell.gpu.SetPowerLimit(setting, now);
          return;
      }
    });
    if (!updated) return Failed(updated.error());
    return {};
  }

  device::DeviceResult<device::Effect> ReadEffect(
      device::Control control, const std::optional<device::Setting>& setting) override {
    const auto reading = ReadGpu();
    if (!reading) return tl::unexpected<device::DeviceError>(reading.error());
    device::Effect effect{device::EffectState::kPending, reading->sm_clock_mhz, reading->limits};
    if (control != device::Control::kSmClock) {
      if (SettingOf(*reading, control) == setting) effect.state = device::EffectState::kInEffect;
      return effect;
    }
    // The clock of an idle GPU shows nothing, and a request that has not yet taken effect is not in
    // effect.
    if (reading->limits.Has(device::ClockLimit::kIdle) || reading->lock != setting) return effect;
    const int wanted_mhz = setting ? setting->upper : info_.sm_clocks_mhz.back();
    effect.state = reading->sm_clock_mhz < wanted_mhz ? device::EffectState::kLimited
                                                      : device::EffectState::kInEffect;
    return effect;
  }

 private:
  device::DeviceResult<VirtualGpuReading> ReadGpu() {
    const auto snapshot = memory_->Read(gpu_);
    if (!snapshot) return Failed(snapshot.error());
    return snapshot->cell.gpu.ReadAt(snapshot->now);
  }

  device::DeviceResult<void> Check(device::Control control,
                                   const std::optional<device::Setting>& setting) const {
    const VirtualGpuModel& model = memory_->spec().gpu;
    const ClockList& clocks =
        control == device::Control::kMemoryClock ? model.memory_clocks : model.sm_clocks;
    const bool is_limit = control == device::Control::kPowerLimit;
    if (is_limit ? model.default_power_limit_mw == 0 : clocks.count == 0) {
      return device::DeviceFail(device::DeviceErrorKind::kNotSupported, "{} has no {} to set",
                                info_.uuid, device::NameOf(control));
    }
    if (!setting) return {};
    const bool is_known = is_limit ? setting->lower == setting->upper &&
                                         setting->lower >= model.least_power_limit_mw &&
                                         setting->upper <= model.most_power_limit_mw
                                   : setting->lower <= setting->upper &&
                                         clocks.Has(setting->lower) && clocks.Has(setting->upper);
    if (is_known) return {};
    const std::string choice =
        is_limit ? fmt::format("{:g} to {:g} W", model.least_power_limit_mw / kMilliwattsPerWatt,
                               model.most_power_limit_mw / kMilliwattsPerWatt)
                 : fmt::format("a listed clock, {} to {} MHz", clocks.lowest(), clocks.highest());
    return device::DeviceFail(device::DeviceErrorKind::kInvalid, "{} cannot have {} {} (choose {})",
                              info_.uuid, device::NameOf(control),
                              device::Describe(control, setting), choice);
  }

  std::shared_ptr<VirtualNodeMemory> memory_;
  int gpu_;
  device::DeviceInfo info_;
};

}  // namespace

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
    list.devices.push_back(std::make_unique<VirtualDevice>(memory_, gpu));
  std::sort(list.devices.begin(), list.devices.end(),
            [](const auto& a, const auto& b) { return a->info().uuid < b->info().uuid; });
  return list;
}

Result<void> VirtualNode::CheckGpu(int gpu) const {
  if (gpu >= 0 && gpu < spec().gpus) return {};
  return Fail(InFile(spec().description.string()), "has no GPU {} (choose 0 to {})", gpu,
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
