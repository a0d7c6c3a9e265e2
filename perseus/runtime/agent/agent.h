// The agent: the one process of a node that may touch a clock. This is its outside, the socket and
// the signals; gpu_manager.h is what it does.
//
// It takes datagrams from anyone who may open the socket and believes none of it: the kernel says
// who the peer is, each message is checked whole, and what one connection costs is bounded (so
// many messages a turn, so many bad ones in a row, so long in silence without a lease).
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
  mode_t socket_mode = 0666;    // Anyone may connect; what they may do is another question.
  std::string metrics_address;  // "127.0.0.1:9836"; empty: no metrics.
  std::string version;
  std::string hostname;
  std::chrono::milliseconds timeout{30'000};  // With GPUs that do not go back when it stops.
  std::chrono::milliseconds silence{60'000};  // A connection without a lease may say nothing.
  std::size_t most_connections = 1024;
  // Stops by itself when it had no client and nothing to give back for so long; nothing: never. It
  // begins to count when it starts, so whoever starts it has as long to connect.
  std::optional<std::chrono::milliseconds> exit_when_idle;
  // By which silence and idleness are measured.
  std::shared_ptr<Clock> clock = std::make_shared<RealClock>();
  GpuManager::Setup gpus;
};

class Agent {
 public:
  // Gives back what an earlier agent left, and listens. Fails as GpuManager::Open, wire::Listen and
  // MetricsServer::Listen do.
  static Result<std::unique_ptr<Agent>> Start(AgentOptions options, spdlog::logger& log);
  ~Agent();

  // Serves until SIGTERM, SIGINT, Stop() or for lack of clients, then gives all GPUs back and
  // returns. Fails (kSystem) if some did not go back in time; what is saved of them makes the next
  // agent try again. The destructor may then wait for a driver that does not answer: end the
  // process without it.
  Result<void> Run();
  // From any thread.
  void Stop();

  // 0 if there are no metrics.
  int metrics_port() const;

 private:
  class Loop;
  explicit Agent(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace perseus::agent
