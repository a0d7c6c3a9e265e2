// What `perseus agent` and `perseus gpu restore` have in common: how they come to their GPUs.
#pragma once

#include <spdlog/logger.h>

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/runtime/agent/gpu_manager.h"

namespace perseus::cli {

inline constexpr const char* kAgentSocket = "/run/perseus/agent.sock";
inline constexpr const char* kAgentState = "/var/lib/perseus/agent.json";

// `which`: see OpenDevices. `resting`: "GPU-1f…=210-1200", in MHz. Says on `log` what GPUs there
// are.
Result<agent::GpuManager::Setup> SetUpGpus(const std::string& which, const std::string& state,
                                           const std::vector<std::string>& resting,
                                           spdlog::logger& log);

// Connections take descriptors, and the soft limit of 1,024 is for programs that use select().
// Where it cannot be raised, fewer connections are taken.
void RaiseLimitOnOpenFiles();

// To standard error; without the time where systemd's journal writes it.
spdlog::logger MakeLog(const std::string& level);

}  // namespace perseus::cli
