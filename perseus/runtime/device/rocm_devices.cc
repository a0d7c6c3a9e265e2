#include "perseus/runtime/device/rocm_devices.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "perseus/runtime/device/rocm_device.h"

namespace perseus::device {
namespace {

// The driver accepts every whole MHz. A planner needs a shorter list.
constexpr int kClockStepMhz = 50;

// Such as "0000:c1:00.0", from rsmi_dev_pci_id_get.
std::string BusId(const rocm::Functions& rocm, std::uint32_t gpu) {
  std::uint64_t id = 0;
  if (rocm.GetPciId == nullptr || rocm.GetPciId(gpu, &id) != rocm::kSuccess) return {};
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", id >> 32, id >> 8 & 0xff, id >> 3 & 0x1f,
                     id & 0x7);
}

// "/dev/dri/renderD128"; empty if the kernel names none.
std::filesystem::path RenderNode(const std::string& bus_id) {
  std::error_code error;
  const std::filesystem::path nodes = "/sys/bus/pci/devices/" + bus_id + "/drm";
  for (std::filesystem::directory_iterator node(nodes, error);
       !error && node != std::filesystem::directory_iterator(); node.increment(error)) {
    const std::string name = node->path().filename();
    if (name.starts_with("renderD")) return "/dev/dri/" + name;
  }
  return {};
}

// Empty if clocks can be set; else why not.
std::string ReadClocks(const rocm::Functions& rocm, std::uint32_t gpu, DeviceInfo& info) {
  if (rocm.SetClockRange == nullptr || rocm.SetLevel == nullptr || rocm.GetLevel == nullptr) {
    return "the installed ROCm SMI cannot set a range of clocks (install another release)";
  }
  rocm::StructBuffer bytes = {};
  if (rocm.GetOverdrive == nullptr || rocm.GetOverdrive(gpu, &bytes) != rocm::kSuccess) {
    return "its driver has performance levels only, and no range of clocks (if amdgpu has "
           "overdrive, boot with amdgpu.ppfeaturemask=0xffffffff)";
  }
  const std::optional<rocm::OverdriveRanges> ranges = rocm::ParseOverdrive(bytes);
  if (!ranges) return "its driver does not report which clocks it accepts";
  for (int mhz = ranges->sm_limits.upper_mhz; mhz > ranges->sm_limits.lower_mhz;
       mhz -= kClockStepMhz) {
    info.sm_clocks_mhz.push_back(mhz);
  }
  info.sm_clocks_mhz.push_back(ranges->sm_limits.lower_mhz);
  std::reverse(info.sm_clocks_mhz.begin(), info.sm_clocks_mhz.end());
  return {};
}

void ReadPowerLimits(const rocm::Functions& rocm, std::uint32_t gpu, DeviceInfo& info) {
  std::uint64_t usual = 0;
  std::uint64_t most = 0;
  std::uint64_t least = 0;
  if (rocm.GetDefaultPowerCap == nullptr || rocm.GetPowerCapRange == nullptr ||
      rocm.GetPowerCap == nullptr || rocm.SetPowerCap == nullptr ||
      rocm.GetDefaultPowerCap(gpu, &usual) != rocm::kSuccess ||
      rocm.GetPowerCapRange(gpu, 0, &most, &least) != rocm::kSuccess) {
    return;
  }
  info.default_power_limit_mw = static_cast<int>(usual / 1000);
  info.least_power_limit_mw = static_cast<int>(least / 1000);
  info.most_power_limit_mw = static_cast<int>(most / 1000);
}

DeviceInfo ReadInfo(const rocm::Functions& rocm, std::uint32_t gpu, std::string uuid) {
  DeviceInfo info;
  info.uuid = std::move(uuid);
  char name[256] = {};
  if (rocm.GetName != nullptr && rocm.GetName(gpu, name, sizeof name - 1) == rocm::kSuccess) {
    info.name = name;
  }
  info.backend = "rocm";
  info.pci_bus_id = BusId(rocm, gpu);
  if (!info.pci_bus_id.empty()) info.device_file = RenderNode(info.pci_bus_id);
  info.measure_only = ReadClocks(rocm, gpu, info);
  ReadPowerLimits(rocm, gpu, info);
  return info;
}

}  // namespace

Result<DeviceList> OpenRocmDevices(std::string_view file, DeviceClock clock) {
  PERSEUS_ASSIGN_OR_RETURN(rocm::Api api, rocm::Load(file));
  const auto library = std::make_shared<RocmLibrary>(std::move(api), std::move(clock));
  const rocm::Functions& rocm = library->api.functions;
  std::uint32_t count = 0;
  rocm::Code code = rocm.Init(0);
  if (code == rocm::kSuccess) {
    library->is_initialized = true;
    library->generation = 1;
    code = rocm.CountDevices(&count);
  }
  if (code != rocm::kSuccess) {
    return FailAs(ErrorKind::kSystem,
                  "cannot start ROCm SMI: error {} (check whether rocm-smi works; load the kernel "
                  "module: modprobe amdgpu)",
                  static_cast<std::uint32_t>(code));
  }
  DeviceList list;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::string uuid = RocmUuid(rocm, i);
    if (uuid.empty()) {
      list.refused.push_back({fmt::format("ROCm SMI's GPU {}", i),
                              "it reports neither a unique id nor a PCI id (update the amdgpu "
                              "driver)"});
      continue;
    }
    DeviceInfo info = ReadInfo(rocm, i, std::move(uuid));
    info.index = static_cast<int>(i);
    list.devices.push_back(std::make_unique<RocmDevice>(library, std::move(info)));
  }
  std::sort(list.devices.begin(), list.devices.end(),
            [](const auto& a, const auto& b) { return a->info().uuid < b->info().uuid; });
  return list;
}

}  // namespace perseus::device
