// The connection to the node's agent: gets the lease, and notices when the lease is gone.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "perseus/base/result.h"
#include "perseus/runtime/client/clock_requester.h"
#include "perseus/runtime/client/live_sessions.h"
#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::client {

class AgentLink {
 public:
  struct Leased;
  // Fails with cause and remedy: no agent listens, it refuses, or it is not an agent. Waits at most
  // `timeout` for a reply. `live` lists the connection.
  static Result<Leased> Acquire(const std::filesystem::path& socket, const std::string& gpu,
                                const std::string& job, std::chrono::milliseconds timeout,
                                LiveSession& live);

  // Whether the agent closed the connection, or sent an unexpected message.
  bool IsLost() const;
  // Fails with kInput if the agent no longer knows the lease, and with kSystem if it does not
  // reply.
  Result<void> Renew();
  Result<void> DeclareSlowdown(double slowdown);

  // The descriptor of the channel's wake-ups. The publisher owns it.
  int wakeup() const { return wakeup_; }

 private:
  AgentLink(ListedDescriptor socket, std::string lease, int wakeup)
      : socket_(std::move(socket)), lease_(std::move(lease)), wakeup_(wakeup) {}
  Result<void> RequestDone(const protocol::Request& request);

  ListedDescriptor socket_;
  std::string lease_;
  int wakeup_ = -1;
};

struct AgentLink::Leased {
  AgentLink link;
  std::unique_ptr<Lease> lease;
};

// The longest time without a heartbeat before the agent ends the lease.
inline constexpr double kHeartbeatSeconds = 30;

}  // namespace perseus::client
