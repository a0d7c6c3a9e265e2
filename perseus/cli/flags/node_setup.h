// Functions that the verbs of a node share: they open the node's GPUs, and make the log of the
// daemons.
#pragma once

#include <spdlog/logger.h>

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/standard_output.h"
#include "perseus/runtime/agent/doctor.h"
#include "perseus/runtime/agent/gpu_manager.h"

namespace perseus::cli {

inline constexpr const char* kAgentSocket = "/run/perseus/agent.sock";
inline constexpr const char* kAgentState = "/var/lib/perseus/agent.json";

// Opens the GPUs and logs them. `which` has the same meaning as in OpenDevices. `resting` lists
// default clocks, such as "GPU-1f…=210-1200", in MHz, or "GPU-1f…=default". Fails (kInput) if an
// entry has another form.
Result<agent::GpuManager::Setup> SetUpGpus(const std::string& which, const std::string& state,
                                           const std::vector<std::string>& resting,
                                           spdlog::logger& log);

// Raises the soft limit on open files to the hard limit, because every connection needs a
// descriptor. The usual soft limit of 1,024 is only for programs that use select(). If the limit
// cannot be raised, the program accepts fewer connections.
void RaiseLimitOnOpenFiles();

// Makes a log on `streams.err`. Under systemd, the log has no times, because the journal adds them.
spdlog::logger MakeLog(const Streams& streams, const std::string& level);

// The flags that `perseus doctor` and `perseus qualify` share. These verbs open the GPUs of a node
// directly, without an agent.
struct DirectFlags {
  std::string devices = "auto";
  std::string socket;  // Empty: PERSEUS_AGENT if that names a socket, or kAgentSocket.
  std::string state = kAgentState;
};

// Adds --devices, --socket and --state.
void AddDirectFlags(const FlagAdder& add, DirectFlags& flags);

std::vector<agent::Finding> ExamineNode(const DirectFlags& flags);

}  // namespace perseus::cli
