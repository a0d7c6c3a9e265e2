// What the Device interface does not show about a node: the version of the driver, and other
// programs on the GPUs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::qualifier {

struct Surroundings {
  std::string driver_version;  // "unknown" if the driver does not report it.
  // Such as "process 4242 runs on GPU-1f…". A GPU with programs cannot be measured.
  std::vector<std::string> programs;
  std::vector<std::string> limits;  // Sentences for the `limits` of the facts.
};

// Reads the surroundings from NVML. `nvml_file` has the same meaning as for OpenNvmlDevices. Fails
// (kSystem) if NVML cannot be loaded or started.
Result<Surroundings> LookAround(std::string_view nvml_file, const std::vector<std::string>& uuids);

}  // namespace perseus::qualifier
