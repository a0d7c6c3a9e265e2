// What `perseus doctor` and `perseus qualify` share: they open the GPUs of a node directly, that
// is, without an agent.
#pragma once

#include <string>
#include <vector>

#include "perseus/cli/flags/agent_setup.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/runtime/agent/doctor.h"

namespace perseus::cli {

struct DirectFlags {
  std::string devices = "auto";
  std::string socket = kAgentSocket;
  std::string state = kAgentState;
};

// Adds --devices, --socket and --state.
void AddDirectFlags(const FlagAdder& add, DirectFlags& flags);

std::vector<agent::Finding> ExamineNode(const DirectFlags& flags);

}  // namespace perseus::cli
