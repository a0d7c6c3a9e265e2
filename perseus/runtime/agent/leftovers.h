// Giving back what an agent left changed, without one: after it was killed and will not be started
// again.
#pragma once

#include <spdlog/logger.h>

#include <chrono>

#include "perseus/base/result.h"
#include "perseus/runtime/agent/gpu_manager.h"

namespace perseus::agent {

// Requires that no agent runs on this state. Fails (kSystem) if a GPU did not go back within
// `timeout`; what is saved of it stays, and it can be tried again. How many were given back.
Result<int> GiveBackLeftovers(GpuManager::Setup setup, std::chrono::milliseconds timeout,
                              spdlog::logger& log);

}  // namespace perseus::agent
