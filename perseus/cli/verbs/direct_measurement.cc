#include "perseus/cli/verbs/direct_measurement.h"

#include <fmt/format.h>

#include <string_view>

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

}  // namespace perseus::cli
