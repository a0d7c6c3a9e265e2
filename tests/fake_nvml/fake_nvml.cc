#include "tests/fake_nvml/fake_nvml.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace perseus::fake_nvml {
namespace {

constexpr Function kChanges[] = {Function::kSetPowerLimit, Function::kSetSmClock,
                                 Function::kResetSmClock, Function::kSetMemoryClock,
                                 Function::kResetMemoryClock};

std::size_t IndexOf(Function function) { return static_cast<std::size_t>(function); }

std::uint32_t Unsigned(int value) { return static_cast<std::uint32_t>(value); }

void FillClocks(const std::vector<int>& clocks, std::uint32_t* to) {
  if (clocks.size() > kMostClocks) throw std::runtime_error("too many clocks for a fake GPU");
  std::transform(clocks.begin(), clocks.end(), to, Unsigned);
  std::sort(to, to + clocks.size());
}

void Fill(Gpu& gpu, const GpuSpec& spec, std::size_t index, std::size_t count) {
  std::snprintf(gpu.uuid, sizeof gpu.uuid, "GPU-%08zx-fa4e-0000-0000-%012zx", count - index,
                index * 0x1111);
  std::snprintf(gpu.name, sizeof gpu.name, "%s", spec.name.c_str());
  std::snprintf(gpu.bus_id, sizeof gpu.bus_id, "00000000:%02zX:00.0", index + 1);
  gpu.minor_number = static_cast<std::uint32_t>(index);
  gpu.sm_clock_count = static_cast<std::uint32_t>(spec.sm_clocks_mhz.size());
  FillClocks(spec.sm_clocks_mhz, gpu.sm_clocks_mhz);
  gpu.memory_clock_count = static_cast<std::uint32_t>(spec.memory_clocks_mhz.size());
  FillClocks(spec.memory_clocks_mhz, gpu.memory_clocks_mhz);
  gpu.default_power_limit_mw = Unsigned(spec.default_power_limit_mw);
  gpu.least_power_limit_mw = Unsigned(spec.least_power_limit_mw);
  gpu.most_power_limit_mw = Unsigned(spec.most_power_limit_mw);
  gpu.mig_instances = std::min(spec.mig_instances, kMostInstances);
  gpu.has_energy_counter = spec.has_energy_counter ? 1 : 0;
  gpu.has_power = spec.has_power ? 1 : 0;
  gpu.is_energy_running = spec.is_energy_running ? 1 : 0;
  gpu.power_mw = Unsigned(spec.power_mw);
  gpu.temperature_c = Unsigned(spec.temperature_c);
  gpu.is_persistent = spec.is_persistent ? 1 : 0;
}

std::optional<ClockRange> Unpack(std::uint64_t range) {
  if (range == 0) return std::nullopt;
  return ClockRange{static_cast<int>(range >> 32), static_cast<int>(range & 0xffffffff)};
}

}  // namespace

FakeNvml FakeNvml::Create(const std::string& path, const NodeSpec& spec) {
  if (spec.gpus.size() > kMostGpus) throw std::runtime_error("too many fake GPUs");
  std::shared_ptr<Node> node = CreateNode(path);
  if (!node) throw std::runtime_error("cannot create " + path);
  FakeNvml fake(path, node);
  node->gpu_count = static_cast<std::uint32_t>(spec.gpus.size());
  for (std::size_t i = 0; i < spec.gpus.size(); ++i) {
    Fill(node->gpus[i], spec.gpus[i], i, spec.gpus.size());
    fake.ResetHardware(node->gpus[i]);
  }
  std::snprintf(node->driver_version, sizeof node->driver_version, "%s",
                spec.driver_version.c_str());
  node->driver_generation = 1;
  node->is_driver_loaded = 1;
  return fake;
}

FakeNvml FakeNvml::Attach(const std::string& path) {
  std::shared_ptr<Node> node = MapNode(path);
  if (!node) throw std::runtime_error(path + " is no fake node of this build");
  return {path, std::move(node)};
}

void FakeNvml::UseInThisProcess() const { ::setenv("FAKE_NVML_FILE", path_.c_str(), 1); }

Gpu& FakeNvml::At(int gpu) const {
  if (gpu < 0 || gpu >= gpu_count()) throw std::out_of_range("no such fake GPU");
  return node_->gpus[gpu];
}

void FakeNvml::ResetHardware(Gpu& gpu) {
  gpu.sm_lock = 0;
  gpu.memory_lock = 0;
  gpu.power_limit_mw = gpu.default_power_limit_mw;
  gpu.energy_mj = 0;
  gpu.energy_since_ns = MonotonicNs();
}

std::string FakeNvml::Uuid(int gpu) const { return At(gpu).uuid; }

int FakeNvml::GpuOf(const std::string& uuid) const {
  for (int i = 0; i < gpu_count(); ++i) {
    if (uuid == At(i).uuid) return i;
  }
  return -1;
}

std::optional<ClockRange> FakeNvml::SmLock(int gpu) const { return Unpack(At(gpu).sm_lock); }
std::optional<ClockRange> FakeNvml::MemoryLock(int gpu) const {
  return Unpack(At(gpu).memory_lock);
}
int FakeNvml::PowerLimit(int gpu) const { return static_cast<int>(At(gpu).power_limit_mw); }

bool FakeNvml::IsAsShipped(int gpu) const {
  return !SmLock(gpu) && !MemoryLock(gpu) &&
         At(gpu).power_limit_mw == At(gpu).default_power_limit_mw;
}

void FakeNvml::LockSm(int gpu, ClockRange range) {
  At(gpu).sm_lock = Range(Unsigned(range.lower), Unsigned(range.upper));
}
void FakeNvml::SetPowerLimit(int gpu, int milliwatts) {
  At(gpu).power_limit_mw = Unsigned(milliwatts);
}
void FakeNvml::AddEnergy(int gpu, std::uint64_t millijoules) { At(gpu).energy_mj += millijoules; }
void FakeNvml::ResetEnergy(int gpu) { At(gpu).energy_mj = 0; }
void FakeNvml::SetPower(int gpu, int milliwatts) { At(gpu).power_mw = Unsigned(milliwatts); }
void FakeNvml::SetIdle(int gpu, bool is_idle) { At(gpu).is_idle = is_idle ? 1 : 0; }
void FakeNvml::SetPrograms(int gpu, const std::vector<int>& pids) {
  if (pids.size() > kMostPrograms) throw std::runtime_error("too many programs for a fake GPU");
  for (std::size_t i = 0; i < pids.size(); ++i) At(gpu).program_pids[i] = Unsigned(pids[i]);
  At(gpu).program_count = static_cast<std::uint32_t>(pids.size());
}
void FakeNvml::UseLongPrograms(int gpu, bool uses) { At(gpu).has_long_programs = uses ? 1 : 0; }

std::vector<LoggedCall> FakeNvml::Log(std::uint64_t from) const {
  std::vector<LoggedCall> calls;
  const std::uint64_t end = LogEnd();
  if (end > kLogCapacity) from = std::max(from, end - kLogCapacity);
  for (std::uint64_t i = from; i < end; ++i) {
    const LogEntry& entry = node_->log[i % kLogCapacity];
    if (entry.sequence != i + 1) continue;
    LoggedCall call{.function = static_cast<Function>(entry.function.load()),
                    .gpu = {},
                    .first = static_cast<int>(entry.first),
                    .second = static_cast<int>(entry.second),
                    .pid = entry.pid,
                    .result = {}};
    if (entry.gpu != kNoGpu) call.gpu = static_cast<int>(entry.gpu);
    if (entry.result != kInside) call.result = entry.result;
    if (entry.sequence == i + 1) calls.push_back(call);
  }
  return calls;
}

std::vector<LoggedCall> FakeNvml::Changes(std::uint64_t from) const {
  std::vector<LoggedCall> calls = Log(from);
  calls.erase(std::remove_if(calls.begin(), calls.end(),
                             [](const LoggedCall& call) {
                               return std::find(std::begin(kChanges), std::end(kChanges),
                                                call.function) == std::end(kChanges);
                             }),
              calls.end());
  return calls;
}

std::uint64_t FakeNvml::Calls(Function function) const { return node_->calls[IndexOf(function)]; }

void FakeNvml::Fail(int gpu, Function function, int code, int times) {
  const std::uint32_t fault = Unsigned(code) << 16 | (Unsigned(times) & 0xffff);
  if (gpu == kEveryGpu) {
    node_->faults[IndexOf(function)] = fault;
  } else {
    At(gpu).faults[IndexOf(function)] = fault;
  }
}

void FakeNvml::FailChanges(int gpu, int code) {
  for (const Function function : kChanges) Fail(gpu, function, code);
}

void FakeNvml::Heal() {
  for (auto& fault : node_->faults) fault = 0;
  for (int i = 0; i < gpu_count(); ++i) {
    Gpu& gpu = At(i);
    for (auto& fault : gpu.faults) fault = 0;
    for (auto& slow : gpu.slow_ms) slow = 0;
    gpu.ignores_changes = 0;
    gpu.hides_setting = 0;
    gpu.sm_cap_mhz = 0;
    gpu.cap_reasons = 0;
    gpu.stuck_sm_clock_mhz = 0;
    if (gpu.is_lost != 0) Find(i);
  }
}

void FakeNvml::Slow(int gpu, Function function, int milliseconds) {
  At(gpu).slow_ms[IndexOf(function)] = Unsigned(milliseconds);
}
void FakeNvml::IgnoreChanges(int gpu, bool ignores) { At(gpu).ignores_changes = ignores ? 1 : 0; }
void FakeNvml::HideSetting(int gpu, bool hides) { At(gpu).hides_setting = hides ? 1 : 0; }

void FakeNvml::Cap(int gpu, int sm_clock_mhz, std::uint64_t reasons) {
  At(gpu).cap_reasons = reasons;
  At(gpu).sm_cap_mhz = Unsigned(sm_clock_mhz);
}

void FakeNvml::StickSmClock(int gpu, int mhz) { At(gpu).stuck_sm_clock_mhz = Unsigned(mhz); }
void FakeNvml::Lose(int gpu) { At(gpu).is_lost = 1; }

void FakeNvml::Find(int gpu) {
  ResetHardware(At(gpu));
  At(gpu).is_lost = 0;
}

void FakeNvml::ReloadDriver() {
  UnloadDriver();
  LoadDriver();
}

void FakeNvml::UnloadDriver() {
  node_->is_driver_loaded = 0;
  ++node_->driver_generation;
  for (int i = 0; i < gpu_count(); ++i) ResetHardware(At(i));
}

void FakeNvml::LoadDriver() { node_->is_driver_loaded = 1; }

}  // namespace perseus::fake_nvml
