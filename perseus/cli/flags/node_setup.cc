#include "perseus/cli/flags/node_setup.h"

#include <fmt/core.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/resource.h>

#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "perseus/base/environment.h"
#include "perseus/base/host.h"
#include "perseus/base/number.h"
#include "perseus/runtime/device/open_devices.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"

namespace perseus::cli {
namespace {

// Parses a text such as "GPU-1f…=210-1200", in MHz, or "GPU-1f…=default".
Result<agent::GpuManager::Setup::Resting> ParseResting(const std::string& text) {
  const auto bad = [&] {
    return Fail(
        "--rest {} is not a GPU and its clocks (write GPU-...=210-1200, in MHz, or "
        "GPU-...=default)",
        text);
  };
  const std::size_t equals = text.find('=');
  if (equals != 0 && equals != std::string::npos && text.substr(equals + 1) == "default") {
    return agent::GpuManager::Setup::Resting{text.substr(0, equals), device::Control::kSmClock,
                                             std::nullopt};
  }
  const std::size_t dash = text.find('-', equals == std::string::npos ? 0 : equals);
  if (equals == std::string::npos || equals == 0 || dash == std::string::npos) return bad();
  const std::string_view clocks = std::string_view(text).substr(equals + 1);
  const auto lower = ParseNumber<int>(clocks.substr(0, dash - equals - 1));
  const auto upper = ParseNumber<int>(clocks.substr(dash - equals));
  if (!lower || !upper || *lower < 1 || *upper < *lower) return bad();
  return agent::GpuManager::Setup::Resting{text.substr(0, equals), device::Control::kSmClock,
                                           device::Setting{*lower, *upper}};
}

// Returns the flag with its value, such as " --socket FILE". Returns an empty text for the default
// value `usual`.
std::string GivenFlag(std::string_view flag, const std::string& value, std::string_view usual) {
  return value == usual ? "" : fmt::format(" {} {}", flag, value);
}

}  // namespace

Result<agent::GpuManager::Setup> SetUpGpus(const std::string& which, const std::string& state,
                                           const std::vector<std::string>& resting,
                                           spdlog::logger& log) {
  agent::GpuManager::Setup setup;
  for (const std::string& text : resting) {
    PERSEUS_ASSIGN_OR_RETURN(auto parsed, ParseResting(text));
    setup.resting.push_back(std::move(parsed));
  }
  PERSEUS_ASSIGN_OR_RETURN(auto boot_id, BootId());
  PERSEUS_ASSIGN_OR_RETURN(auto devices, device::OpenDevices(which, virtual_gpu::OpenVirtualNode));
  for (const auto& device : devices.devices) {
    const device::DeviceInfo& info = device->info();
    log.info("{} {} ({}){}", info.uuid, info.name, info.backend,
             info.measure_only.empty() ? "" : ", only measured: " + info.measure_only);
  }
  for (const device::RefusedDevice& refused : devices.refused) {
    log.warn("{} is not used: {}", refused.what, refused.why);
  }
  setup.devices = std::move(devices);
  setup.state = state;
  setup.boot_id = std::move(boot_id);
  setup.host = agent::ThisHost();
  setup.lock_directory = std::filesystem::path(kAgentSocket).parent_path();
  return setup;
}

spdlog::logger MakeLog(const Streams& streams, const std::string& level) {
  spdlog::logger log(
      "perseus", std::make_shared<spdlog::sinks::stdout_sink_base<spdlog::details::console_mutex>>(
                     streams.err));
  log.set_level(spdlog::level::from_str(level));
  const bool has_journal = std::getenv("JOURNAL_STREAM") != nullptr;
  log.set_pattern(has_journal ? "%l: %v" : "%Y-%m-%dT%T.%eZ %l: %v",
                  spdlog::pattern_time_type::utc);
  return log;
}

void RaiseLimitOnOpenFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));
}

void AddDirectFlags(const FlagAdder& add, DirectFlags& flags) {
  add("--devices", flags.devices, "WHICH", "The same as for perseus agent (default: auto)");
  add("--socket", flags.socket, "FILE",
      fmt::format("The agent's socket (default: PERSEUS_AGENT, or {})", kAgentSocket));
  add("--state", flags.state, "FILE", fmt::format("The agent's state (default: {})", kAgentState));
}

std::vector<agent::Finding> ExamineNode(const DirectFlags& flags) {
  std::string socket = flags.socket.empty() ? EnvironmentOr("PERSEUS_AGENT") : flags.socket;
  if (socket.empty() || socket == "own" || socket == "off") socket = kAgentSocket;
  const std::string its_socket = GivenFlag("--socket", socket, kAgentSocket);
  const std::string its_flags = GivenFlag("--devices", flags.devices, DirectFlags().devices) +
                                its_socket + GivenFlag("--state", flags.state, kAgentState);
  agent::DoctorScene scene{.root = "/",
                           .socket = socket,
                           .state = flags.state,
                           .list_command = "perseus gpu list" + its_socket,
                           .restore_command = "perseus gpu restore" + its_flags};
  // The unit perseus-agent has the default socket.
  if (!its_socket.empty()) scene.start_command = "perseus agent" + its_flags;
  return agent::ExamineNode(scene);
}

}  // namespace perseus::cli
