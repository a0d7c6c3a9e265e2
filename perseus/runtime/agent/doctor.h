// What works on this node, what does not, and what fixes it. Nothing here changes anything;
// latency_check.h sets clocks.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"

namespace perseus::agent {

struct Finding {
  enum class Level { kGood, kNote, kProblem };
  Level level = Level::kGood;
  std::string what;    // "driver", "GPU-1f…", "agent"
  std::string detail;  // One line.
  std::string remedy;  // A command if one exists; empty if there is nothing to do.
};

struct DoctorScene {
  std::filesystem::path root = "/";  // Where proc/ is; tests build their own.
  std::filesystem::path socket;
  std::filesystem::path state;
};

// Rights, container, kernel, the agent, its state, other programs that set clocks.
std::vector<Finding> ExamineNode(const DoctorScene& scene);
// The driver and each GPU. `devices` is what OpenDevices returned.
std::vector<Finding> ExamineDevices(const Result<device::DeviceList>& devices);

}  // namespace perseus::agent
