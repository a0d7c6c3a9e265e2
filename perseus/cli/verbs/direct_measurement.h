// What `perseus doctor` and `perseus qualify` share: they open the GPUs of a node directly, that
// is, without an agent.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/flags/agent_setup.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"
#include "perseus/runtime/agent/doctor.h"
#include "perseus/runtime/qualifier/surroundings.h"

namespace perseus::cli {

struct DirectFlags {
  std::string devices = "auto";
  std::string socket = kAgentSocket;
  std::string state = kAgentState;
};

// Adds --devices, --socket and --state.
void AddDirectFlags(CLI::App& verb, DirectFlags& flags);

// Fails (kSystem) if an agent runs.
Result<void> RefuseBesideAgent(const DirectFlags& flags);

std::vector<agent::Finding> ExamineNode(const DirectFlags& flags);
nlohmann::ordered_json FindingsAsJson(const std::vector<agent::Finding>& findings);
// As tables, for people.
std::string FormatFacts(const hardware_facts::HardwareFacts& facts);

// What else is on these GPUs. It is known for NVIDIA GPUs; for others, the result is empty, and the
// driver's version is "unknown". Fails (kSystem) as qualifier::LookAround does.
Result<qualifier::Surroundings> LookAround(const DirectFlags& flags,
                                           const std::vector<device::Device*>& gpus);

}  // namespace perseus::cli
