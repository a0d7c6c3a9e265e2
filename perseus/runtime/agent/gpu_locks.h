// A lock for each GPU, so that two agents with different states do not set the same GPU.
//
// Thread safety: a plain function.
#pragma once

#include <spdlog/logger.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"

namespace perseus::agent {

// Locks files in this directory, for as long as the result lives. Virtual GPUs are not locked,
// because several may have one name. Fails (kSystem) if another agent has a GPU. Where this process
// may not write to the directory, it logs a warning, and the GPUs are not locked.
Result<std::vector<FileDescriptor>> LockGpus(
    const std::filesystem::path& directory,
    const std::vector<std::unique_ptr<device::Device>>& devices, spdlog::logger& log);

}  // namespace perseus::agent
