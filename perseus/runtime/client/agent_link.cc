#include "perseus/runtime/client/agent_link.h"

#include <poll.h>

#include <utility>
#include <variant>
#include <vector>

#include "perseus/runtime/protocol/messages/unix_socket.h"

namespace perseus::client {
namespace {

constexpr std::chrono::milliseconds kAgentLinkTimeout{1000};

struct Answered {
  protocol::Reply reply;
  std::vector<FileDescriptor> descriptors;
};
Result<Answered> SendAndReceive(int socket, const protocol::Request& request,
                                std::chrono::milliseconds timeout) {
  PERSEUS_ASSIGN_OR_RETURN(auto answer,
                           protocol::SendRequest(socket, protocol::Format(request), timeout));
  auto reply = protocol::ParseReply(answer.text);
  if (!reply) return FailAs(ErrorKind::kSystem, "the agent's answer: {}", reply.error().message);
  return Answered{*std::move(reply), std::move(answer.descriptors)};
}

}  // namespace

Result<AgentLink::Leased> AgentLink::Acquire(const std::filesystem::path& path,
                                             const std::string& gpu, const std::string& job,
                                             std::chrono::milliseconds timeout, LiveSession& live) {
  PERSEUS_ASSIGN_OR_RETURN(auto connection, protocol::Connect(path));
  // Before the request: a child that has a copy would hold the lease.
  ListedDescriptor socket(std::move(connection), live.socket);
  auto answered =
      SendAndReceive(socket.get(), protocol::Acquire{{gpu}, job, kHeartbeatSeconds}, timeout);
  if (!answered) return Fail(answered);
  std::vector<FileDescriptor>& descriptors = answered->descriptors;
  if (const auto* refused = std::get_if<protocol::Refused>(&answered->reply)) {
    return Fail("the agent refuses: {}", refused->message);
  }
  const auto* granted = std::get_if<protocol::Lease>(&answered->reply);
  if (granted == nullptr || granted->sm_clocks_mhz.size() != 1 || descriptors.size() != 2) {
    return Fail(
        "the agent at {} does not reply with a lease (install the same version of agent and "
        "client)",
        path.string());
  }
  const int wakeup = descriptors[1].get();
  PERSEUS_ASSIGN_OR_RETURN(auto publisher,
                           protocol::ClockPublisher::Attach(std::move(descriptors)));
  auto lease = std::make_unique<Lease>(
      Lease{granted->id, granted->sm_clocks_mhz.front(), std::move(publisher)});
  return Leased{AgentLink(std::move(socket), granted->id, wakeup), std::move(lease)};
}

bool AgentLink::IsLost() const {
  pollfd wanted{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&wanted, 1, 0) != 0;
}

Result<void> AgentLink::RequestDone(const protocol::Request& request) {
  const auto answered = SendAndReceive(socket_.get(), request, kAgentLinkTimeout);
  if (!answered) return FailAs(ErrorKind::kSystem, "{}", answered.error().message);
  if (const auto* refused = std::get_if<protocol::Refused>(&answered->reply)) {
    return Fail("{}", refused->message);
  }
  return {};
}

Result<void> AgentLink::Renew() { return RequestDone(protocol::Renew{lease_}); }
Result<void> AgentLink::DeclareSlowdown(double slowdown) {
  return RequestDone(protocol::DeclareSlowdown{lease_, slowdown});
}

}  // namespace perseus::client
