#include "perseus/cli/verbs/direct_measurement.h"

#include <fmt/format.h>

#include <string_view>

#include "perseus/runtime/protocol/messages/unix_socket.h"

namespace perseus::cli {
namespace {

// Such as " --socket FILE"; empty for the default.
std::string GivenFlag(std::string_view flag, const std::string& value, std::string_view usual) {
  return value == usual ? "" : fmt::format(" {} {}", flag, value);
}

}  // namespace

void AddDirectFlags(const FlagAdder& add, DirectFlags& flags) {
  add("--devices", flags.devices, "WHICH", "The same as for perseus agent (default: auto)");
  add("--socket", flags.socket, "FILE",
      fmt::format("The agent's socket (default: {})", kAgentSocket));
  add("--state", flags.state, "FILE", fmt::format("The agent's state (default: {})", kAgentState));
}

Result<void> RefuseBesideAgent(const DirectFlags& flags) {
  if (!protocol::Connect(flags.socket)) return {};
  return FailAs(ErrorKind::kSystem,
                "an agent runs on {}, and only it may set clocks (stop it to measure)",
                flags.socket);
}

std::vector<agent::Finding> ExamineNode(const DirectFlags& flags) {
  const std::string socket = GivenFlag("--socket", flags.socket, kAgentSocket);
  return agent::ExamineNode(
      {.root = "/",
       .socket = flags.socket,
       .state = flags.state,
       .list_command = "perseus gpu list" + socket,
       .restore_command = "perseus gpu restore" +
                          GivenFlag("--devices", flags.devices, DirectFlags().devices) + socket +
                          GivenFlag("--state", flags.state, kAgentState)});
}

nlohmann::ordered_json FindingsAsJson(const std::vector<agent::Finding>& findings) {
  auto list = nlohmann::ordered_json::array();
  for (const agent::Finding& finding : findings) {
    constexpr const char* kLevels[] = {"ok", "note", "problem"};
    list.push_back({{"level", kLevels[static_cast<std::size_t>(finding.level)]},
                    {"what", finding.what},
                    {"detail", finding.detail},
                    {"remedy", finding.remedy}});
  }
  return list;
}

Result<qualifier::Surroundings> LookAround(const DirectFlags& flags,
                                           const std::vector<device::Device*>& gpus) {
  constexpr std::string_view kNvml = "nvml:";
  std::vector<std::string> uuids;
  for (const device::Device* gpu : gpus) {
    if (gpu->info().backend == "nvml") uuids.push_back(gpu->info().uuid);
  }
  if (uuids.empty()) {
    return qualifier::Surroundings{.driver_version = "unknown", .programs = {}, .limits = {}};
  }
  std::string_view file;
  if (flags.devices.starts_with(kNvml)) {
    file = std::string_view(flags.devices).substr(kNvml.size());
  }
  return qualifier::LookAround(file, uuids);
}

}  // namespace perseus::cli
