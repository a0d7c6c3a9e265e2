#include "perseus/runtime/device/nvml_devices.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "perseus/runtime/device/nvml_device.h"

namespace perseus::device {
namespace {

// The text that `function` writes into a buffer. Empty if it fails.
std::string Text(int (*function)(nvml::Handle, char*, unsigned), nvml::Handle handle) {
  char text[nvml::kLongestText + 1] = {};
  return function(handle, text, nvml::kLongestText) == nvml::kSuccess ? text : std::string();
}

// A number, or nothing if the function does not exist or fails.
std::optional<int> Number(int (*function)(nvml::Handle, unsigned*), nvml::Handle handle) {
  unsigned value = 0;
  if (function == nullptr || function(handle, &value) != nvml::kSuccess) return std::nullopt;
  return static_cast<int>(value);
}

// A sorted list. The first query asks the driver for its length.
template <typename Query>
std::vector<int> AscendingList(Query query) {
  unsigned count = 0;
  const int code = query(&count, nullptr);
  if ((code != nvml::kSuccess && code != nvml::kInsufficientSize) || count == 0) return {};
  std::vector<unsigned> clocks(count);
  if (query(&count, clocks.data()) != nvml::kSuccess) return {};
  clocks.resize(std::min<std::size_t>(count, clocks.size()));
  std::vector<int> ascending(clocks.begin(), clocks.end());
  std::sort(ascending.begin(), ascending.end());
  ascending.erase(std::unique(ascending.begin(), ascending.end()), ascending.end());
  return ascending;
}

void ReadClockLists(const nvml::Functions& nvml, nvml::Handle handle, DeviceInfo& info) {
  if (nvml.GetSupportedMemoryClocks == nullptr || nvml.GetSupportedGraphicsClocks == nullptr) {
    return;
  }
  info.memory_clocks_mhz = AscendingList([&](unsigned* count, unsigned* mhz) {
    return nvml.GetSupportedMemoryClocks(handle, count, mhz);
  });
  if (info.memory_clocks_mhz.empty()) return;
  // SM clocks are listed for each memory clock. Training runs at the highest memory clock.
  const auto memory_mhz = static_cast<unsigned>(info.memory_clocks_mhz.back());
  info.sm_clocks_mhz = AscendingList([&](unsigned* count, unsigned* mhz) {
    return nvml.GetSupportedGraphicsClocks(handle, memory_mhz, count, mhz);
  });
}

void ReadPowerLimits(const nvml::Functions& nvml, nvml::Handle handle, DeviceInfo& info) {
  unsigned least = 0;
  unsigned most = 0;
  const std::optional<int> usual = Number(nvml.GetPowerManagementDefaultLimit, handle);
  if (!usual || nvml.GetPowerManagementLimitConstraints == nullptr ||
      nvml.SetPowerManagementLimit == nullptr ||
      nvml.GetPowerManagementLimitConstraints(handle, &least, &most) != nvml::kSuccess) {
    return;
  }
  info.default_power_limit_mw = *usual;
  info.least_power_limit_mw = static_cast<int>(least);
  info.most_power_limit_mw = static_cast<int>(most);
}

DeviceInfo ReadInfo(const nvml::Functions& nvml, nvml::Handle handle, std::string uuid) {
  DeviceInfo info;
  info.uuid = std::move(uuid);
  info.name = Text(nvml.GetName, handle);
  info.backend = "nvml";
  nvml::PciInfo pci = {};
  if (nvml.GetPciInfo != nullptr && nvml.GetPciInfo(handle, &pci) == nvml::kSuccess) {
    pci.bus_id[sizeof pci.bus_id - 1] = '\0';
    info.pci_bus_id = pci.bus_id;
  }
  info.minor_number = Number(nvml.GetMinorNumber, handle);
  if (info.minor_number) info.device_file = fmt::format("/dev/nvidia{}", *info.minor_number);
  if (const std::optional<int> mode = Number(nvml.GetPersistenceMode, handle)) {
    info.is_persistent = *mode == static_cast<int>(nvml::kEnabled);
  }
  ReadClockLists(nvml, handle, info);
  ReadPowerLimits(nvml, handle, info);
  if (nvml.SetGpuLockedClocks == nullptr || nvml.ResetGpuLockedClocks == nullptr) {
    info.measure_only = "its driver cannot lock clocks (install version 450 or later)";
  } else if (info.sm_clocks_mhz.empty()) {
    info.measure_only =
        "its driver lists no clocks that can be set (it is a virtual GPU, or too old)";
  }
  return info;
}

bool IsInMigMode(const nvml::Functions& nvml, nvml::Handle handle) {
  unsigned now = 0;
  unsigned after_reset = 0;
  return nvml.GetMigMode != nullptr &&
         nvml.GetMigMode(handle, &now, &after_reset) == nvml::kSuccess && now == nvml::kEnabled;
}

// Refuses the GPU and each of its instances, because a user may name either.
void RefuseMig(const nvml::Functions& nvml, nvml::Handle gpu, const std::string& uuid,
               std::vector<RefusedDevice>& refused) {
  refused.push_back(
      {fmt::format("{} ({})", uuid, Text(nvml.GetName, gpu)),
       fmt::format(
           "it is in MIG mode: its instances share one clock, so setting it for one of them "
           "slows the others (turn it off: nvidia-smi -i {} -mig 0)",
           uuid)});
  const int most = Number(nvml.GetMaxMigDeviceCount, gpu).value_or(0);
  if (nvml.GetMigDeviceHandleByIndex == nullptr) return;
  for (unsigned i = 0; i < static_cast<unsigned>(most); ++i) {
    nvml::Handle instance = nullptr;
    // Some indices may be unused.
    if (nvml.GetMigDeviceHandleByIndex(gpu, i, &instance) != nvml::kSuccess) continue;
    refused.push_back({Text(nvml.GetUUID, instance),
                       fmt::format("it is a MIG instance of {}, without a clock of its own (use "
                                   "whole GPUs: nvidia-smi -i {} -mig 0)",
                                   uuid, uuid)});
  }
}

}  // namespace

Result<DeviceList> OpenNvmlDevices(std::string_view file, DeviceClock clock) {
  PERSEUS_ASSIGN_OR_RETURN(std::shared_ptr<NvmlLibrary> library,
                           NvmlLibrary::Open(file, std::move(clock)));
  const DeviceResult<NvmlLibrary::Visit> visit = library->Enter();
  if (!visit) return FailAs(ErrorKind::kSystem, "{}", visit.error().message);
  const nvml::Functions& nvml = visit->nvml();
  unsigned count = 0;
  if (const int code = nvml.GetCount(&count); code != nvml::kSuccess) {
    return FailAs(ErrorKind::kSystem,
                  "NVML cannot count the GPUs: {} (see whether nvidia-smi works)",
                  library->Describe(code));
  }
  DeviceList list;
  for (unsigned i = 0; i < count; ++i) {
    nvml::Handle handle = nullptr;
    const int code = nvml.GetHandleByIndex(i, &handle);
    std::string uuid = code == nvml::kSuccess ? Text(nvml.GetUUID, handle) : std::string();
    if (uuid.empty()) {
      list.refused.push_back(
          {fmt::format("NVML's GPU {}", i),
           fmt::format(
               "{} (see dmesg; reset it with nvidia-smi --gpu-reset, or reboot)",
               code == nvml::kSuccess ? "it does not report its UUID" : library->Describe(code))});
    } else if (IsInMigMode(nvml, handle)) {
      RefuseMig(nvml, handle, uuid, list.refused);
    } else {
      DeviceInfo info = ReadInfo(nvml, handle, std::move(uuid));
      info.index = static_cast<int>(i);
      list.devices.push_back(std::make_unique<NvmlDevice>(library, std::move(info)));
    }
  }
  std::sort(list.devices.begin(), list.devices.end(),
            [](const auto& a, const auto& b) { return a->info().uuid < b->info().uuid; });
  return list;
}

}  // namespace perseus::device
