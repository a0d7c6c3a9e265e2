// Restores what an agent left changed, without an agent. Use it if an agent was killed and will not
// start again.
#pragma once

#include <spdlog/logger.h>

#include <chrono>
#include <filesystem>
#include <optional>

#include "perseus/base/result.h"
#include "perseus/runtime/access/owner.h"
#include "perseus/runtime/agent/gpu_manager.h"

namespace perseus::agent {

// Requires that no agent runs on this state. Returns how many GPUs were restored. Fails (kSystem)
// if a GPU could not be restored within `timeout`. The saved settings of this GPU remain, so the
// restore can be repeated.
Result<int> GiveBackLeftovers(GpuManager::Setup setup, std::chrono::milliseconds timeout,
                              spdlog::logger& log);

// Returns the agent that holds `state`, if this agent does not answer within `answer_time`. Returns
// nullopt if no process holds `state`. Asks the holder on the socket that it has recorded
// (agent_lock.h). If it has recorded none, asks on `socket`. Asks only if the holder itself listens
// on that socket, because no other socket shows whether the holder works. Fails (kInput) if the
// holder answers, because then the holder restores its GPUs itself. Fails (kSystem) if the holder
// cannot be asked.
Result<std::optional<ProcessId>> FindUnresponsiveAgent(const std::filesystem::path& state,
                                                       const std::filesystem::path& socket,
                                                       std::chrono::milliseconds answer_time);

// Kills the agent that FindUnresponsiveAgent has found. Waits until the agent has ended, or can
// never run again. Fails (kSystem) if the agent still holds `state` after the wait, or if this
// process may not kill the agent.
Result<void> EndUnresponsiveAgent(const std::filesystem::path& state, const ProcessId& agent,
                                  spdlog::logger& log);

}  // namespace perseus::agent
