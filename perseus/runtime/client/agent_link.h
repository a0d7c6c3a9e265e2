// The connection to the node's agent: gets the lease, and notices when it is gone.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/runtime/client/clock_requester.h"
#include "perseus/runtime/protocol/messages.h"

namespace perseus::client {

class AgentLink {
 public:
  struct Leased;
  // Fails with cause and remedy: nobody there, refused, not an agent. Waits at most `timeout` for
  // an answer.
  static Result<Leased> Acquire(const std::filesystem::path& socket, const std::string& gpu,
                                const std::string& job, std::chrono::milliseconds timeout);

  // The agent has closed it, or said something that nobody asked for.
  bool IsLost() const;
  // Whether the lease still stands; kInput if the agent says that it does not, kSystem if it says
  // nothing.
  Result<void> Renew();
  Result<void> DeclareSlowdown(double slowdown);

  int socket() const { return socket_.get(); }
  // Of the channel's wake-ups, which is the publisher's.
  int wakeup() const { return wakeup_; }

 private:
  AgentLink(FileDescriptor socket, std::string lease, int wakeup)
      : socket_(std::move(socket)), lease_(std::move(lease)), wakeup_(wakeup) {}
  Result<void> RequestDone(const protocol::Request& request);

  FileDescriptor socket_;
  std::string lease_;
  int wakeup_ = -1;
};

struct AgentLink::Leased {
  AgentLink link;
  std::unique_ptr<Lease> lease;
};

// How often the agent wants to hear of a lease's owner.
inline constexpr double kHeartbeatSeconds = 30;

}  // namespace perseus::client
