// What a training job's processes do to the agent: all of them run in a process of their own, for
// as long as nobody kills them.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/runtime/protocol/clock_channel.h"
#include "perseus/runtime/protocol/messages.h"

namespace perseus::faults {

// What clients tell the campaign; in memory that they share.
struct Board {
  std::atomic<std::uint64_t> leases;      // Granted.
  std::atomic<std::uint64_t> landed;      // Clocks that the agent answered as set.
  std::atomic<std::uint64_t> messages;    // Malformed ones sent.
  std::atomic<std::uint64_t> refused;     // Connections and requests.
  std::atomic<std::uint64_t> lost;        // Leases that ended before their client wanted it.
  std::atomic<std::uint64_t> slowest_ns;  // From a proper client's request to its answer.
};
std::shared_ptr<Board> MakeBoard();

// A connection to the agent.
class Client {
 public:
  static std::optional<Client> Connect(const std::filesystem::path& socket);
  // Nothing: the agent is gone, or does not answer.
  std::optional<protocol::Reply> Ask(const protocol::Request& request);
  // Nothing: refused.
  std::optional<protocol::Lease> Acquire(const std::vector<std::string>& gpus,
                                         double heartbeat_s = 30);
  const protocol::Refused& refusal() const { return refusal_; }  // The last one.
  protocol::ClockPublisher& publisher() { return *publisher_; }
  int socket() const { return socket_.get(); }

 private:
  explicit Client(FileDescriptor socket) : socket_(std::move(socket)) {}
  FileDescriptor socket_;
  protocol::Refused refusal_;
  std::optional<protocol::ClockPublisher> publisher_;
};

struct ClientPlan {
  std::filesystem::path socket;
  std::vector<std::string> gpus;
  std::uint64_t seed = 0;
  std::shared_ptr<Board> board;
  double heartbeat_s = 30;
  std::optional<int> clock_mhz = std::nullopt;  // Hold: always this one; else random ones.
};

// Lease after lease, of some of the GPUs, with random clocks, ended in every way; survives agents.
int Churn(const ClientPlan& plan);
// One lease of all the GPUs, with clocks set all the time, for as long as it is let: ends with 1 if
// the lease does. Waits for GPUs that are not free yet.
int Hold(const ClientPlan& plan);
// One lease of one of the GPUs, whichever is free first; ends with 0 once a clock was set and the
// lease was released.
int WorkOnce(const ClientPlan& plan);
// So many malformed messages a second, over one connection after another.
int Babble(const ClientPlan& plan, int messages_a_second);
// Connects so often and says nothing.
int BeSilent(const ClientPlan& plan, int connections);

}  // namespace perseus::faults
