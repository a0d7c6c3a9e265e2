// The agent: the only process of a node that sets clocks. This file handles its socket and its
// signals. gpu_manager.h handles the GPUs and the leases.
//
// The agent accepts datagrams from every process that may open the socket, and trusts none of these
// processes. The kernel identifies the peer, and the agent checks each message completely. The cost
// of one connection is limited: messages per turn, malformed messages in a row, and silence without
// a lease.
#pragma once

#include <spdlog/logger.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/runtime/agent/agent_report.h"
#include "perseus/runtime/agent/gpu_manager.h"

namespace perseus::agent {

struct AgentOptions {
  std::filesystem::path socket;
  std::string metrics_address;  // Such as "127.0.0.1:9836". Empty: no metrics.
  std::string version;
  std::string hostname;
  std::chrono::milliseconds timeout{30'000};  // How long it tries to restore GPUs when it stops.
  std::chrono::milliseconds silence{60'000};  // A connection without a lease is closed after this.
  std::size_t most_connections = 1024;
  // The agent stops after this time without a client and without a GPU to restore. Empty: never.
  // The time begins when the agent starts, so a client that starts the agent has this time to
  // connect.
  std::optional<std::chrono::milliseconds> exit_when_idle;
  // The clock for silence and idle time.
  std::shared_ptr<Clock> clock = std::make_shared<RealClock>();
  GpuManager::Setup gpus;
};

class Agent {
 public:
  // Restores what an earlier agent left changed, and listens. Fails in the same cases as
  // GpuManager::Open, protocol::Listen and MetricsServer::Listen.
  static Result<std::unique_ptr<Agent>> Start(AgentOptions options, spdlog::logger& log);
  ~Agent();

  // Serves until SIGTERM, SIGINT or Stop(), or until no client is left. Then it restores all GPUs
  // and returns. Fails (kSystem) if some GPU was not restored in time; the next agent can then try
  // again with the saved state. After this failure, the destructor may wait for a driver that does
  // not respond. So end the process without the destructor.
  Result<void> Run();
  // Any thread may call it.
  void Stop();

  // 0: the agent serves no metrics.
  int metrics_port() const;

 private:
  class Loop;
  explicit Agent(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace perseus::agent
