#include "perseus/runtime/qualifier/surroundings.h"

#include <fmt/core.h>

#include <array>

#include "perseus/runtime/device/nvml_api.h"

namespace perseus::qualifier {
namespace {

namespace nvml = device::nvml;

constexpr std::size_t kMostListed = 16;

void LookAtPrograms(const nvml::Functions& f, nvml::Handle handle, const std::string& uuid,
                    Surroundings& found) {
  if (f.GetComputeRunningProcesses == nullptr) {
    found.limits.push_back(fmt::format(
        "Whether other programs use {} is unknown: the driver has no such list.", uuid));
    return;
  }
  // The array has twice the size, because some drivers use longer entries (nvml_api.h).
  std::array<nvml::ProcessInfo, 2 * kMostListed> processes{};
  auto count = static_cast<unsigned>(kMostListed);
  const int code = f.GetComputeRunningProcesses(handle, &count, processes.data());
  if (code == nvml::kInsufficientSize) {
    found.programs.push_back(fmt::format("{} processes run on {}", count, uuid));
  } else if (code != nvml::kSuccess) {
    found.limits.push_back(
        fmt::format("Whether other programs use {} is unknown: {} (NVML error {}).", uuid,
                    f.ErrorString(code), code));
  } else if (count == 1) {
    found.programs.push_back(fmt::format("process {} runs on {}", processes[0].pid, uuid));
  } else if (count > 1) {
    found.programs.push_back(fmt::format("{} processes run on {}, process {} for example", count,
                                         uuid, processes[0].pid));
  }
}

}  // namespace

Result<Surroundings> LookAround(std::string_view nvml_file, const std::vector<std::string>& uuids) {
  PERSEUS_ASSIGN_OR_RETURN(const nvml::Functions f, nvml::Load(nvml_file));
  if (const int code = f.Init(); code != nvml::kSuccess) {
    return FailAs(ErrorKind::kSystem, "cannot start NVML: {}, NVML error {}", f.ErrorString(code),
                  code);
  }
  Surroundings found;
  std::array<char, nvml::kLongestText> version{};
  if (f.SystemGetDriverVersion != nullptr &&
      f.SystemGetDriverVersion(version.data(), version.size()) == nvml::kSuccess) {
    found.driver_version = version.data();
  }
  if (found.driver_version.empty()) found.driver_version = "unknown";
  for (const std::string& uuid : uuids) {
    nvml::Handle handle = nullptr;
    if (f.GetHandleByUUID(uuid.c_str(), &handle) != nvml::kSuccess) continue;
    LookAtPrograms(f, handle, uuid, found);
  }
  f.Shutdown();
  return found;
}

}  // namespace perseus::qualifier
