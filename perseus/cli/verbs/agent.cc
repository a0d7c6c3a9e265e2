// `perseus agent`: the daemon of a node.

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <utility>

#include "perseus/base/host.h"
#include "perseus/cli/flags/node_setup.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"
#include "perseus/runtime/agent/agent.h"
#include "perseus/runtime/agent/privileges.h"

namespace perseus::cli {
namespace {

constexpr const char* kAgentAbout =
    "Run the agent of this node: the only process that sets GPU clocks. Training processes\n"
    "lease their GPUs from it. When a lease ends, the agent restores the GPU. Needs permission\n"
    "to set clocks (root, or CAP_SYS_ADMIN; see docs/agent.md). Ends with SIGTERM.";
constexpr const char* kAgentExamples =
    "  perseus agent                            # as root: all GPUs of the driver\n"
    "  perseus agent --devices virtual:node.toml --socket agent.sock \\\n"
    "      --state agent.json\n"
    "  perseus agent --rest GPU-1f…=210-1200    # if another program locked its\n"
    "                                           # clocks: restore 210 to 1200 MHz";

struct AgentFlags {
  std::string devices = "auto";
  std::string socket = kAgentSocket;
  std::string state = kAgentState;
  std::string metrics = "127.0.0.1:9836";
  std::vector<std::string> resting;
  double timeout_s = 30;
  std::optional<double> exit_when_idle_s;
  std::string when_overridden = "yield";
  std::optional<double> most_changes_per_s;
  std::string facts;
  std::string log_level = "info";
};

constexpr NumberRange kChangesPerSecond{0.001, 1'000'000, "per second"};

// Returns the limit on clock changes, or 0 without a limit. The flag overrides the file.
Result<double> MostChanges(const AgentFlags& flags) {
  if (flags.facts.empty()) return flags.most_changes_per_s.value_or(0);
  PERSEUS_ASSIGN_OR_RETURN(const auto facts, hardware_facts::Read(flags.facts));
  if (flags.most_changes_per_s) return *flags.most_changes_per_s;
  if (!facts.max_changes_per_s) {
    return Fail(
        InFile(flags.facts),
        "it has no max_changes_per_s, so it sets no limit (measure it with perseus qualify, or "
        "give the limit with --max-changes)");
  }
  const double most = facts.max_changes_per_s->value;
  if (most < kChangesPerSecond.least) {
    return Fail(
        InFile(flags.facts),
        "max_changes_per_s is {}, because no tried rate was shown to be harmless (measure "
        "again with a longer perseus qualify --duration, or give a limit of at least {} with "
        "--max-changes)",
        most, kChangesPerSecond.least);
  }
  return most;
}

Result<void> RunAgent(const Streams& streams, const AgentFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const double most_changes_per_s, MostChanges(flags));
  RaiseLimitOnOpenFiles();
  // The agent must not end when nobody reads its log any more.
  std::signal(SIGPIPE, SIG_IGN);
  // Drop the capabilities before threads start, because threads inherit them.
  if (auto kept = agent::KeepOnlyNeededCapabilities(); !kept) return kept;
  spdlog::logger log = MakeLog(streams, flags.log_level);
  PERSEUS_ASSIGN_OR_RETURN(auto gpus, SetUpGpus(flags.devices, flags.state, flags.resting, log));
  agent::AgentOptions options;
  options.gpus = std::move(gpus);
  options.gpus.when_overridden = flags.when_overridden == "insist" ? agent::WhenOverridden::kInsist
                                                                   : agent::WhenOverridden::kYield;
  options.gpus.most_changes_per_s = most_changes_per_s;
  options.socket = flags.socket;
  // Ignored: if this fails, listening on the socket fails with a clear message.
  std::error_code ignored;
  std::filesystem::create_directories(options.socket.parent_path(), ignored);
  options.metrics_address = flags.metrics == "off" ? "" : flags.metrics;
  options.version = PERSEUS_VERSION;
  options.hostname = HostName();
  options.timeout =
      std::chrono::milliseconds(static_cast<int>(flags.timeout_s * kMillisecondsPerSecond));
  if (flags.exit_when_idle_s) {
    options.exit_when_idle = std::chrono::milliseconds(
        static_cast<int>(*flags.exit_when_idle_s * kMillisecondsPerSecond));
  }

  PERSEUS_ASSIGN_OR_RETURN(auto agent, agent::Agent::Start(std::move(options), log));
  std::string metrics;
  if (const int port = agent->metrics_port(); port != 0) {
    metrics =
        fmt::format(", metrics on {}:{}", flags.metrics.substr(0, flags.metrics.rfind(':')), port);
  }
  log.info("listening on {}{}", flags.socket, metrics);
  if (most_changes_per_s > 0) log.info("at most {} clock changes per second", most_changes_per_s);
  auto run = agent->Run();
  if (!run) {
    log.critical("{}", run.error().Message());
    log.flush();
    // If the driver does not respond, destructors would wait forever.
    std::_Exit(1);
  }
  log.info("all GPUs are restored");
  return run;
}

}  // namespace

Verb AddAgentVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<AgentFlags>(program, "agent", kAgentAbout, kAgentExamples);
  add("--devices", flags->devices, "WHICH",
      "auto, nvml, rocm, or virtual:FILE (default: auto; nvml:FILE and rocm:FILE give the path of "
      "the library)");
  add("--socket", flags->socket, "FILE",
      fmt::format("Where clients connect (default: {})", kAgentSocket));
  add("--state", flags->state, "FILE",
      fmt::format("The file that records the original settings of each GPU (default: {})",
                  kAgentState));
  add("--metrics", flags->metrics, "ADDRESS",
      "The address of /metrics for Prometheus, or off (default: 127.0.0.1:9836)");
  add("--rest", flags->resting, "GPU=MIN-MAX",
      "The SM clocks to restore if the driver cannot report them; saved in --state, until "
      "GPU=default removes them; repeatable");
  add("--restore-timeout", flags->timeout_s, "SECONDS",
      "How long to try to restore GPUs at shutdown (default: 30)",
      NumberIn({0, 3600, "in seconds"}));
  add("--exit-when-idle", flags->exit_when_idle_s, "SECONDS",
      "Stop after this time without a client, with every GPU restored (default: never)",
      NumberIn({0, 86'400, "in seconds"}));
  add("--when-overridden", flags->when_overridden, "WHAT",
      "If another program locks the clock of a leased GPU: yield (set no clock until it is "
      "unlocked) or insist (set it again) (default: yield)",
      OneOf({"yield", "insist"}));
  add("--max-changes", flags->most_changes_per_s, "N",
      "The most clock changes per second, of all GPUs together (default: that of --facts, or no "
      "limit)",
      NumberIn(kChangesPerSecond));
  add("--facts", flags->facts, "FILE",
      "The hardware facts of this node, which have the limit on clock changes (perseus qualify "
      "writes them)",
      InputFile());
  AddLogLevel(add, flags->log_level);
  return {verb, [flags = flags](const Streams& streams) { return RunAgent(streams, *flags); }};
}

}  // namespace perseus::cli
