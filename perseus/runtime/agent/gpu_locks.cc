#include "perseus/runtime/agent/gpu_locks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "perseus/runtime/agent/agent_lock.h"

namespace perseus::agent {

Result<std::vector<FileDescriptor>> LockGpus(
    const std::filesystem::path& directory,
    const std::vector<std::unique_ptr<device::Device>>& devices, spdlog::logger& log) {
  std::vector<FileDescriptor> locks;
  for (const auto& device : devices) {
    const device::DeviceInfo& info = device->info();
    if (info.backend == "virtual") continue;
    std::string name = fmt::format("gpu-{}.lock", info.uuid);
    std::ranges::replace(name, '/', '_');
    auto lock = LockFile(directory / name);
    if (!lock) {
      // A process that may not write there is usually not allowed to set clocks either.
      log.warn("cannot lock out other agents: {}", lock.error().message);
      return locks;
    }
    if (!*lock) {
      return FailAs(ErrorKind::kSystem,
                    "{}: another agent that is running uses this GPU (stop it first)", info.uuid);
    }
    locks.push_back(*std::move(lock));
  }
  return locks;
}

}  // namespace perseus::agent
