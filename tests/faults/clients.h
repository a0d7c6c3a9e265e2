// Clients of the agent, as in training jobs. Each function below runs in its own process until it
// returns or is killed.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/runtime/protocol/clock_channel/clock_channel.h"
#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::faults {

// Counters of all clients. The clients share this memory with the campaign.
struct Board {
  std::atomic<std::uint64_t> leases;      // Leases that were granted.
  std::atomic<std::uint64_t> landed;      // Clocks that the agent confirmed as set.
  std::atomic<std::uint64_t> messages;    // Malformed messages, and silent connections.
  std::atomic<std::uint64_t> refused;     // Refused connections and requests.
  std::atomic<std::uint64_t> lost;        // Leases that ended before their client released them.
  std::atomic<std::uint64_t> slowest_ns;  // The longest time from a correct request to its answer.
};
std::shared_ptr<Board> MakeBoard();

// A connection to the agent.
class Client {
 public:
  static std::optional<Client> Connect(const std::filesystem::path& socket);
  // Returns nothing if the agent is gone or does not answer.
  std::optional<protocol::Reply> Send(const protocol::Request& request);
  // Returns nothing if the agent refuses.
  std::optional<protocol::Lease> Acquire(const std::vector<std::string>& gpus,
                                         double heartbeat_s = 30);
  const protocol::Refused& refusal() const { return refusal_; }  // The last refusal.
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
  std::optional<int> clock_mhz = std::nullopt;  // For Hold(): the only clock. Empty: random clocks.
  // The process becomes this user, in these further groups. Empty: the process keeps the campaign's
  // user.
  std::optional<uid_t> user = std::nullopt;
  std::vector<gid_t> groups = {};
};

// Gets one lease after another, each of some GPUs, and publishes random clocks. Ends each lease in
// a random way. If an agent dies, continues with the next agent.
int Churn(const ClientPlan& plan);
// Waits until all GPUs are free, gets one lease of them, and sets clocks all the time. Returns 1
// when the lease ends.
int Hold(const ClientPlan& plan);
// Gets one lease of any free GPU, sets a clock, releases the lease, and returns 0.
int WorkOnce(const ClientPlan& plan);
// Requests a lease of each GPU this number of times. Returns 0 if the agent refuses each request
// because the user has no right to the GPU.
int BeRefused(const ClientPlan& plan, int times);
// Sends this number of malformed messages per second, over one connection after another.
int SendMalformed(const ClientPlan& plan, int messages_per_second);
// Opens this number of connections and sends nothing.
int StaySilent(const ClientPlan& plan, int connections);
// Opens this number of descriptors, or fewer if the system allows only fewer. Then connects,
// requests leases and sends descriptors without a pause. Some of the descriptors are sockets whose
// last close waits.
int StormDescriptors(const ClientPlan& plan, int descriptors);
// Sends a message with these descriptors. Returns false if the kernel or the agent does not accept
// the message.
bool SendDescriptors(int socket, std::span<const int> descriptors);

}  // namespace perseus::faults
