// Finds out what works on this node, what does not work, and how to fix it. Changes nothing.
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
  std::string remedy;  // A command if one exists. Empty if nothing has to be done.
};

struct DoctorScene {
  std::filesystem::path root = "/";  // Contains proc/. Tests provide their own.
  std::filesystem::path socket;
  std::filesystem::path state;
  // The commands that the findings advise, with the flags that name this agent.
  std::string start_command = "systemctl restart perseus-agent";
  std::string list_command = "perseus gpu list";
  std::string restore_command = "perseus gpu restore";
};

// Checks rights, container, kernel, the agent, its state, and other programs that set clocks.
std::vector<Finding> ExamineNode(const DoctorScene& scene);
// Checks the driver and each GPU. `devices` is the result of OpenDevices.
std::vector<Finding> ExamineDevices(const Result<device::DeviceList>& devices);

}  // namespace perseus::agent
