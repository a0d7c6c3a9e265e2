// Restores what an agent left changed, without an agent. Use it if an agent was killed and will not
// start again.
#pragma once

#include <spdlog/logger.h>

#include <chrono>
#include <filesystem>

#include "perseus/base/result.h"
#include "perseus/runtime/agent/gpu_manager.h"

namespace perseus::agent {

// Requires that no agent runs on this state. Returns how many GPUs were restored. Fails (kSystem)
// if a GPU could not be restored within `timeout`. Its saved settings remain, so it can be tried
// again.
Result<int> GiveBackLeftovers(GpuManager::Setup setup, std::chrono::milliseconds timeout,
                              spdlog::logger& log);

// Ends an agent that holds `state` and does not answer on `socket` within `answer_time`: kills it,
// and waits until it has ended, or never runs again (agent_lock.h). Fails (kInput) if the agent
// answers, because it restores its GPUs itself. Does nothing if no process holds `state`.
Result<void> EndUnresponsiveAgent(const std::filesystem::path& state,
                                  const std::filesystem::path& socket,
                                  std::chrono::milliseconds answer_time, spdlog::logger& log);

}  // namespace perseus::agent
