#include "perseus/runtime/agent/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "perseus/base/file.h"
#include "perseus/runtime/access/child_descriptors.h"
#include "perseus/runtime/access/user_budget.h"
#include "perseus/runtime/agent/agent_report.h"
#include "perseus/runtime/agent/metrics_server.h"
#include "perseus/runtime/agent/socket_disposal.h"
#include "perseus/runtime/protocol/messages/messages.h"
#include "perseus/runtime/protocol/messages/unix_socket.h"

namespace perseus::agent {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using protocol::Refusal;

constexpr std::size_t kLeftForRoot = 16;
// Every user may connect. The rights of a user are checked later.
constexpr mode_t kSocketMode = 0666;
constexpr auto kTick = std::chrono::milliseconds(250);
constexpr Nanoseconds kReadSubordinateUsersEvery = 60 * kSecond;
constexpr auto kStoppingTick = std::chrono::milliseconds(10);
// The number of messages of one connection that are handled before the other connections have their
// turn.
constexpr int kMessagesPerTurn = 16;
// After this many malformed messages in a row, the agent closes the connection, because it does not
// expect a valid message any more.
constexpr int kMostMalformedInARow = 32;
// How long to wait before accepting again if no descriptors are left.
constexpr auto kAcceptPause = std::chrono::milliseconds(200);
constexpr const char* kFull =
    "the agent cannot watch another process (close connections, or raise its limit on open files)";

Nanoseconds NanosecondsOf(std::chrono::milliseconds time) { return time.count() * kMillisecond; }

// Returns how many connections are possible so that enough descriptors remain for leases, the state
// file and metrics. Without this limit, any user who may connect could use up all descriptors.
std::size_t RoomForConnections(std::size_t gpus) {
  constexpr std::size_t kOfConnection = 2;  // Its socket and the pidfd of its process.
  constexpr std::size_t kOfLeasedGpu = 3;   // The channel, the eventfd and its epoll descriptor.
  constexpr std::size_t kOfAllElse = 64;    // Metrics, and files that are open for a short time.
  rlimit limit{};
  std::error_code error;
  const std::filesystem::directory_iterator open_now("/proc/self/fd", error);
  if (error || getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
  const std::size_t taken = static_cast<std::size_t>(std::distance(begin(open_now), {})) +
                            gpus * kOfLeasedGpu + kOfAllElse;
  return limit.rlim_cur > taken + kOfConnection ? (limit.rlim_cur - taken) / kOfConnection : 1;
}

// Makes `to` own and watch the descriptor. Returns false if the kernel cannot watch more
// descriptors.
bool Watch(asio::posix::stream_descriptor& to, FileDescriptor&& descriptor) {
  error_code failed;
  to.assign(descriptor.get(), failed);
  if (failed) return false;
  descriptor.Release();
  return true;
}

// Whether the descriptor is really readable. A wait may end although nothing happened: Asio may
// assign pending events of a closed descriptor to a new descriptor with the same number. For
// sockets, reading detects this case. For pidfds, this function detects it.
bool IsReadable(int descriptor) {
  pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, 0) > 0;
}

}  // namespace

class Agent::Loop {
 public:
  Loop(AgentOptions options, spdlog::logger& log)
      : options_(std::move(options)),
        log_(log),
        signals_(context_, SIGTERM, SIGINT, SIGHUP),
        tick_(context_),
        listener_(context_),
        accept_pause_(context_) {}

  Result<void> Start() {
    // Listening comes first. It fails if another agent runs here. The GPUs of that agent must not
    // be touched.
    PERSEUS_ASSIGN_OR_RETURN(auto listening, protocol::Listen(options_.socket, kSocketMode));
    if (!Watch(listener_, std::move(listening))) {
      return FailAs(ErrorKind::kSystem, "cannot watch the socket {} (the system is out of memory)",
                    options_.socket.string());
    }
    host_ = options_.gpus.host;
    options_.gpus.socket = options_.socket;
    const std::size_t gpus = options_.gpus.devices.devices.size();
    auto manager = GpuManager::Open(
        std::move(options_.gpus),
        [this](std::function<void()> call) { asio::post(context_, std::move(call)); }, log_);
    if (!manager) return Fail(manager);
    manager_ = *std::move(manager);
    if (auto served = ServeMetrics(); !served && served.error().kind == ErrorKind::kInput) {
      return served;
    }
    ReadSubordinateUsers();
    options_.most_connections = std::min(options_.most_connections, RoomForConnections(gpus));
    return {};
  }

  Result<void> Run() {
    signals_.async_wait([this](error_code error, int) {
      if (!error) BeginStop();
    });
    Accept();
    Tick();
    for (bool is_over = false; !is_over;) {
      try {
        context_.run();
        is_over = true;
      } catch (const std::exception& error) {
        // The GPUs are restored after any error.
        log_.critical("stopping because of: {} (please report this)", error.what());
        BeginStop();
      }
    }
    CloseAll();
    if (is_all_back_) return {};
    return FailAs(ErrorKind::kSystem,
                  "some GPUs were not restored within {:g} s (see the log; the next agent tries "
                  "again, or run perseus gpu restore)",
                  std::chrono::duration<double>(options_.timeout).count());
  }

  void Stop() {
    asio::post(context_, [this] { BeginStop(); });
  }

  int metrics_port() const { return metrics_ ? metrics_->port() : 0; }

 private:
  struct Connection {
    ConnectionId id = 0;
    asio::posix::stream_descriptor socket;
    asio::posix::stream_descriptor process;  // A pidfd: readable when the process has ended.
    asio::steady_timer pause;  // Runs while the user of the connection has spent the budget.
    Caller caller;
    int malformed_in_a_row = 0;
    Nanoseconds last_message_at = 0;
  };
  using ConnectionPtr = std::shared_ptr<Connection>;

  // The agent serves GPUs even if it cannot serve metrics, for example because another program uses
  // the port.
  Result<void> ServeMetrics() {
    if (options_.metrics_address.empty()) return {};
    auto server = MetricsServer::Listen(context_, options_.metrics_address, [this] {
      return FormatMetrics(Report(), options_.hostname);
    });
    if (server) {
      metrics_.emplace(*std::move(server));
      return {};
    }
    // The user has to fix the address, so another attempt would not help.
    if (server.error().kind == ErrorKind::kInput) return Fail(server);
    if (std::exchange(has_logged_metrics_failure_, true)) return Fail(server);
    log_.error("{} (the agent tries again)", server.error().Message());
    return Fail(server);
  }

  AgentReport Report() const {
    AgentReport report = manager_->Report();
    report.version = options_.version;
    report.connections = connections_.size();
    report.malformed = malformed_;
    report.refusals = refusals_;
    return report;
  }

  // ---- Connections ----

  void Accept() {
    listener_.async_wait(asio::posix::descriptor_base::wait_read, [this](error_code error) {
      if (error || is_stopping_) return;
      auto accepted = protocol::Accept(listener_.native_handle());
      if (accepted) {
        if (*accepted) Welcome(*std::move(accepted));
      } else {
        accept_pause_.expires_after(kAcceptPause);
        accept_pause_.async_wait([this](error_code canceled) {
          if (!canceled) Accept();
        });
        return;
      }
      Accept();
    });
  }

  // The socket of a refused connection is as untrusted as any other socket.
  void Welcome(FileDescriptor accepted) {
    if (const auto refused = Admit(accepted)) {
      ++refusals_;
      // If the client does not receive this refusal, it sees the connection end.
      static_cast<void>(protocol::Send(accepted.get(), protocol::Format(*refused)));
    }
    disposal_.Close(std::move(accepted));
  }

  // Takes the socket, or returns the reason for a refusal.
  std::optional<protocol::Refused> Admit(FileDescriptor& accepted) {
    const auto refuse = [](Refusal code, std::string message) {
      return protocol::Refused{code, std::move(message)};
    };
    if (connections_.size() >= options_.most_connections) {
      return refuse(
          Refusal::kUnavailable,
          "the agent has too many clients (close some, or raise its limit on open files)");
    }
    const auto peer = protocol::PeerOf(accepted.get());
    if (!peer) return refuse(Refusal::kNotAllowed, peer.error().Message());
    const uid_t account = subordinate_users_.AccountOf(peer->uid);
    if (IsOverQuota(account)) {
      return refuse(Refusal::kUnavailable, "too many clients of this user (close some)");
    }
    if (budget_.Take(account, UserBudget::kConnection, options_.clock->Now()) > 0) {
      return refuse(Refusal::kUnavailable,
                    "too many connections and requests of this user (try again in a second)");
    }
    auto caller = Identify(host_, *peer);
    if (!caller) return caller.error();
    caller->account = account;
    FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, caller->process.pid, 0)));
    // Linux before 5.3 has no pidfds. On later kernels, only a pidfd shows the end of the process.
    if (!process && errno != ENOSYS) return refuse(Refusal::kUnavailable, kFull);
    auto connection =
        std::make_shared<Connection>(Connection{.id = ++last_connection_,
                                                .socket = asio::posix::stream_descriptor(context_),
                                                .process = asio::posix::stream_descriptor(context_),
                                                .pause = asio::steady_timer(context_),
                                                .caller = *std::move(caller),
                                                .malformed_in_a_row = 0,
                                                .last_message_at = options_.clock->Now()});
    if ((process && !Watch(connection->process, std::move(process))) ||
        !Watch(connection->socket, std::move(accepted))) {
      return refuse(Refusal::kUnavailable, kFull);
    }
    connections_[connection->id] = connection;
    if (connection->process.is_open()) WatchProcess(connection);
    Listen(connection);
    return std::nullopt;
  }

  // No user gets more than a quarter of all connections, and some are reserved for root.
  bool IsOverQuota(uid_t account) const {
    if (account == 0) return false;
    const std::size_t most = options_.most_connections;
    const auto own =
        static_cast<std::size_t>(std::ranges::count_if(connections_, [account](const auto& other) {
          return other.second->caller.account == account;
        }));
    return own >= std::max<std::size_t>(most / 4, 1) ||
           connections_.size() + kLeftForRoot >= std::max(most, 2 * kLeftForRoot);
  }

  // Needed because a child may keep the connection open after the process that leased has died.
  void WatchProcess(const ConnectionPtr& connection) {
    connection->process.async_wait(asio::posix::descriptor_base::wait_read,
                                   [this, connection](error_code error) {
                                     if (error || !IsOpen(connection)) return;
                                     if (!IsReadable(connection->process.native_handle())) {
                                       return WatchProcess(connection);
                                     }
                                     manager_->EndOfProcess(connection->caller.process);
                                     Close(connection);
                                   });
  }

  void Listen(const ConnectionPtr& connection) {
    connection->socket.async_wait(asio::posix::descriptor_base::wait_read,
                                  [this, connection](error_code error) {
                                    if (!error) ReadMessages(connection);
                                  });
  }

  void ReadMessages(const ConnectionPtr& connection) {
    for (int i = 0; i < kMessagesPerTurn && IsOpen(connection); ++i) {
      if (!IsReadable(connection->socket.native_handle())) break;
      const Nanoseconds wait =
          budget_.Take(connection->caller.account, UserBudget::kMessage, options_.clock->Now());
      if (wait > 0) return PauseReading(connection, wait);
      auto received = protocol::Receive(connection->socket.native_handle());
      if (!received) {
        // The message is invalid, but the connection can still be used.
        Malformed(connection, received.error().Message());
        continue;
      }
      if (received->state == protocol::Received::kEnd) return Close(connection);
      if (received->state == protocol::Received::kNothing) break;
      if (received->state == protocol::Received::kDescriptors) {
        log_.warn("process {} of user {} sends descriptors, which no client does (closing)",
                  connection->caller.process.pid, connection->caller.uid);
        return Close(connection);
      }
      connection->last_message_at = options_.clock->Now();
      const auto request = protocol::ParseRequest(received->datagram.text);
      if (!request) {
        Malformed(connection, request.error().Message());
        continue;
      }
      connection->malformed_in_a_row = 0;
      std::visit([&](const auto& wanted) { Handle(connection, wanted); }, *request);
    }
    if (IsOpen(connection)) Listen(connection);
  }

  // During the pause, the client's messages fill its own socket's buffer.
  void PauseReading(const ConnectionPtr& connection, Nanoseconds wait) {
    connection->pause.expires_after(std::chrono::nanoseconds(wait));
    connection->pause.async_wait([this, connection](error_code error) {
      if (!error && IsOpen(connection)) ReadMessages(connection);
    });
  }

  void Malformed(const ConnectionPtr& connection, const std::string& message) {
    ++malformed_;
    Reply(connection, protocol::Refused{Refusal::kMalformed, message});
    if (++connection->malformed_in_a_row < kMostMalformedInARow) return;
    log_.warn("process {} of user {} sends invalid messages: {} (closing the connection)",
              connection->caller.process.pid, connection->caller.uid, message);
    Close(connection);
  }

  bool IsOpen(const ConnectionPtr& connection) const {
    return connections_.contains(connection->id);
  }

  void Close(const ConnectionPtr& connection) {
    if (connections_.erase(connection->id) == 0) return;
    error_code ignored;
    connection->pause.cancel();
    disposal_.Close(FileDescriptor(connection->socket.release()));
    connection->process.close(ignored);
    manager_->EndOfConnection(connection->id);
  }

  void CloseAll() {
    while (!connections_.empty()) {
      const ConnectionPtr connection = connections_.begin()->second;
      Close(connection);
    }
    disposal_.Tick();
  }

  void Reply(const ConnectionPtr& connection, const protocol::Reply& reply,
             const std::vector<int>& descriptors = {}) {
    if (!IsOpen(connection)) return;
    if (std::holds_alternative<protocol::Refused>(reply)) ++refusals_;
    const auto sent =
        protocol::Send(connection->socket.native_handle(), protocol::Format(reply), descriptors);
    // A client that does not read its replies is disconnected.
    if (!sent) Close(connection);
  }

  template <typename T>
  void ReplyDone(const ConnectionPtr& connection, const Answer<T>& answer) {
    if (answer) {
      Reply(connection, protocol::Done{});
    } else {
      Reply(connection, answer.error());
    }
  }

  // ---- Requests ----

  void Handle(const ConnectionPtr& connection, const protocol::Acquire& wanted) {
    const uid_t user = connection->caller.uid;
    if (budget_.Take(connection->caller.account, UserBudget::kAcquire, options_.clock->Now()) > 0) {
      return Reply(connection,
                   protocol::Refused{Refusal::kUnavailable,
                                     fmt::format("user {} requests leases too often (try again in "
                                                 "a second)",
                                                 user)});
    }
    manager_->Acquire(connection->caller, connection->id, wanted,
                      [this, connection](Answer<GpuManager::Granted> granted) {
                        if (!granted) return Reply(connection, granted.error());
                        Reply(connection, granted->lease, granted->channel->descriptors());
                      });
  }
  void Handle(const ConnectionPtr& connection, const protocol::Release& wanted) {
    ReplyDone(connection, manager_->Release(connection->id, wanted));
  }
  void Handle(const ConnectionPtr& connection, const protocol::Renew& wanted) {
    ReplyDone(connection, manager_->Renew(connection->id, wanted));
  }
  void Handle(const ConnectionPtr& connection, const protocol::DeclareSlowdown& wanted) {
    ReplyDone(connection, manager_->DeclareSlowdown(connection->id, wanted));
  }
  void Handle(const ConnectionPtr& connection, const protocol::List&) {
    const double cost = UserBudget::kListedGpu * static_cast<double>(manager_->gpu_count());
    if (budget_.Take(connection->caller.account, cost, options_.clock->Now()) > 0) {
      return Reply(connection,
                   protocol::Refused{Refusal::kUnavailable,
                                     fmt::format("user {} lists GPUs too often (try again in a "
                                                 "second)",
                                                 connection->caller.uid)});
    }
    Reply(connection, manager_->List());
  }
  void Handle(const ConnectionPtr& connection, const protocol::ReleaseGpu& wanted) {
    ReplyDone(connection, manager_->ReleaseGpu(connection->caller, wanted));
  }
  void Handle(const ConnectionPtr& connection, const protocol::Grant& wanted) {
    ReplyDone(connection, manager_->Grant(connection->caller, wanted));
  }
  void Handle(const ConnectionPtr& connection, const protocol::Revoke& wanted) {
    ReplyDone(connection, manager_->Revoke(connection->caller, wanted));
  }

  // ---- Time ----

  void Tick() {
    tick_.expires_after(is_stopping_ ? kStoppingTick : kTick);
    tick_.async_wait([this](error_code error) {
      if (error && !is_stopping_) return;
      manager_->Tick();
      disposal_.Tick();
      CloseSilent();
      ReadSubordinateUsers();
      if (!metrics_ && !is_stopping_) static_cast<void>(ServeMetrics());
      if (IsIdleForLong()) BeginStop();
      if (is_stopping_ && IsStopOver()) return context_.stop();
      Tick();
    });
  }

  // Without the file /etc/subuid, each user id is an account.
  void ReadSubordinateUsers() {
    const Nanoseconds now = options_.clock->Now();
    if (now < read_subordinate_users_at_) return;
    read_subordinate_users_at_ = now + kReadSubordinateUsersEvery;
    subordinate_users_ =
        SubordinateUsers::Parse(ReadFile(host_.root / "etc/subuid").value_or(std::string()));
  }

  void CloseSilent() {
    const Nanoseconds latest = options_.clock->Now() - NanosecondsOf(options_.silence);
    std::vector<ConnectionPtr> silent;
    for (const auto& [id, connection] : connections_) {
      if (connection->last_message_at < latest && !manager_->HasLease(id)) {
        silent.push_back(connection);
      }
    }
    for (const ConnectionPtr& connection : silent) Close(connection);
  }

  bool IsIdleForLong() {
    const Nanoseconds now = options_.clock->Now();
    if (!connections_.empty() || !manager_->IsAllBack()) last_busy_ = now;
    return options_.exit_when_idle && now - last_busy_ >= NanosecondsOf(*options_.exit_when_idle);
  }

  void BeginStop() {
    if (is_stopping_) return;
    log_.info("stopping: restoring all GPUs");
    is_stopping_ = true;
    stop_until_ = std::chrono::steady_clock::now() + options_.timeout;
    // Clients that connected but were not accepted yet may have sent descriptors, too.
    disposal_.Close(FileDescriptor(listener_.release()));
    manager_->EndAll();
    tick_.cancel();  // The next tick comes at once, and later ticks at kStoppingTick.
  }

  bool IsStopOver() {
    is_all_back_ = manager_->IsAllBack();
    return is_all_back_ || std::chrono::steady_clock::now() > stop_until_;
  }

  const LowDescriptors low_descriptors_;  // Constructed before any socket.
  AgentOptions options_;                  // The options without the GPUs, which the manager owns.
  Host host_;
  spdlog::logger& log_;
  asio::io_context context_{1};
  asio::signal_set signals_;
  asio::steady_timer tick_;
  asio::posix::stream_descriptor listener_;
  asio::steady_timer accept_pause_;
  UserBudget budget_;
  SubordinateUsers subordinate_users_;
  Nanoseconds read_subordinate_users_at_ = 0;  // The time of the next read.
  SocketDisposal disposal_;
  std::optional<MetricsServer> metrics_;
  bool has_logged_metrics_failure_ = false;
  ConnectionId last_connection_ = 0;
  std::map<ConnectionId, ConnectionPtr> connections_;
  std::uint64_t malformed_ = 0;
  std::uint64_t refusals_ = 0;
  bool is_stopping_ = false;
  bool is_all_back_ = false;
  std::chrono::steady_clock::time_point stop_until_;
  Nanoseconds last_busy_ = options_.clock->Now();
  std::unique_ptr<GpuManager> manager_;  // Destroyed first, because its threads post to context_.
};

Agent::Agent(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Agent::~Agent() = default;

Result<std::unique_ptr<Agent>> Agent::Start(AgentOptions options, spdlog::logger& log) {
  auto loop = std::make_unique<Loop>(std::move(options), log);
  PERSEUS_RETURN_IF_ERROR(loop->Start());
  return std::unique_ptr<Agent>(new Agent(std::move(loop)));
}

Result<void> Agent::Run() { return loop_->Run(); }
void Agent::Stop() { loop_->Stop(); }
int Agent::metrics_port() const { return loop_->metrics_port(); }

}  // namespace perseus::agent
