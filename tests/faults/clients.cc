#include "tests/faults/clients.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>
#include <variant>

#include "perseus/base/clock.h"
#include "perseus/base/random.h"
#include "perseus/base/units.h"
#include "perseus/runtime/protocol/messages/unix_socket.h"
#include "tests/faults/process.h"

namespace perseus::faults {
namespace {

constexpr std::chrono::seconds kConnectTimeout{30};
constexpr std::size_t kMostInAMessage = 253;  // SCM_MAX_FD of the kernel.

Nanoseconds Now() { return RealClock().Now(); }

template <typename List>
const auto& AnyOf(const List& list, SplitMix64& random) {
  return list[random() % std::size(list)];
}

std::vector<std::string> SomeOf(std::vector<std::string> gpus, SplitMix64& random) {
  for (std::size_t i = gpus.size(); i > 1; --i) std::swap(gpus[i - 1], gpus[random() % i]);
  gpus.resize(1 + random() % gpus.size());
  return gpus;
}

bool IsSet(const protocol::ClockAnswer& answer) {
  return answer.outcome == protocol::ClockOutcome::kAccepted ||
         answer.outcome == protocol::ClockOutcome::kInEffect ||
         answer.outcome == protocol::ClockOutcome::kLimited ||
         answer.outcome == protocol::ClockOutcome::kAtPowerLimit;
}

void Raise(std::atomic<std::uint64_t>& most, std::uint64_t value) {
  std::uint64_t now = most;
  while (now < value && !most.compare_exchange_weak(now, value)) {
  }
}

// Publishes a clock and waits for the answer. Returns false if no answer arrives.
bool Switch(Client& client, int gpu, int clock_mhz, Board& board) {
  const Nanoseconds begin = Now();
  const std::uint32_t sequence = client.publisher().Publish(gpu, clock_mhz);
  while (client.publisher().answer(gpu).sequence != sequence) {
    if (Now() - begin > 60 * kSecond) return false;
    SleepMicroseconds(50);
  }
  Raise(board.slowest_ns, static_cast<std::uint64_t>(Now() - begin));
  if (IsSet(client.publisher().answer(gpu))) ++board.landed;
  return true;
}

// Publishes clocks as in training. Some clocks are invalid, and 0 requests no clock.
void Train(Client& client, const protocol::Lease& lease, SplitMix64& random, Board& board) {
  const auto count = static_cast<int>(lease.gpus.size());
  for (std::uint64_t left = 1 + random() % 40; left > 0; --left) {
    const int gpu = static_cast<int>(random() % static_cast<std::uint64_t>(count));
    const std::vector<int>& clocks = lease.sm_clocks_mhz[static_cast<std::size_t>(gpu)];
    const std::uint64_t dice = random() % 20;
    client.publisher().Publish(gpu, dice == 0 ? 0 : dice == 1 ? 777 : AnyOf(clocks, random));
    if (random() % 2 == 0) SleepMicroseconds(static_cast<std::int64_t>(random() % 500));
  }
  for (int gpu = 0; gpu < count; ++gpu) {
    if (IsSet(client.publisher().answer(gpu))) ++board.landed;
  }
}

// Returns a message that the agent must refuse.
std::string Nonsense(SplitMix64& random) {
  static constexpr std::array<std::string_view, 8> kTexts = {
      "{\"perseus\":1,\"acquire\":{\"gpus\":[],\"job\":\"x\"}}",
      "{\"perseus\":1,\"acquire\":{\"gpus\":[\"GPU-1\",\"GPU-1\"],\"job\":\"x\"}}",
      "{\"perseus\":2,\"list\":{}}",
      "{\"perseus\":1,\"list\":{},\"list\":{}}",
      "{\"perseus\":1,\"release\":{\"lease\":7}}",
      "{\"perseus\":1,\"renew\":{\"lease\":\"\\u0000\\ud800\"}}",
      "{\"perseus\":1,\"declare_slowdown\":{\"lease\":\"1\",\"slowdown\":1e400}}",
      "{\"perseus\":1"};
  switch (random() % 4) {
    case 0:
      return std::string(AnyOf(kTexts, random));
    case 1:  // Deeply nested.
      return std::string(1 + random() % 3000, random() % 2 == 0 ? '[' : '{');
    case 2: {  // Truncated, and one byte changed.
      std::string text(AnyOf(kTexts, random));
      text[random() % text.size()] = static_cast<char>(random());
      return text.substr(0, 1 + random() % text.size());
    }
    default: {
      std::string text(1 + random() % 200, ' ');
      for (char& byte : text) byte = static_cast<char>(random());
      return text;
    }
  }
}

// Sends data that a correct client never sends: a message that is too long, or a descriptor.
void SendForbidden(int socket, SplitMix64& random) {
  if (random() % 2 == 0) {
    const std::string text(protocol::kLongestMessage + 1 + random() % 1000, 'x');
    send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  SendDescriptors(socket, {&socket, 1});
}

// Discards all answers of the agent. Returns false at the end of the connection.
bool Drain(int socket) {
  std::array<char, 2048> bytes{};
  for (;;) {
    const ssize_t got = recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
  }
}

void Become(const ClientPlan& plan) {
  if (plan.user) BecomeUser(*plan.user, plan.groups);
}

FileDescriptor ListenOnTcp() {
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), 64) != 0) {
    return {};
  }
  return listener;
}

// Sends a TCP socket with unsent data and SO_LINGER. The last close of this socket waits until the
// other end is closed. The other end is moved to `receiving`, and does not read.
void SendLingering(int socket, int listener, std::vector<FileDescriptor>& receiving) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const FileDescriptor sender(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(sender.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return;
  }
  receiving.emplace_back(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  const std::vector<char> bytes(1U << 16);
  while (send(sender.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  linger wait{.l_onoff = 1, .l_linger = 600};
  setsockopt(sender.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait);
  const int descriptor = sender.get();
  if (SendDescriptors(socket, {&descriptor, 1})) return;
  wait.l_onoff = 0;  // This process has the last reference, and must not wait.
  setsockopt(sender.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait);
}

}  // namespace

std::shared_ptr<Board> MakeBoard() {
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return {new (memory) Board(), [](Board* board) { munmap(board, sizeof(Board)); }};
}

std::optional<Client> Client::Connect(const std::filesystem::path& socket) {
  auto connected = protocol::Connect(socket);
  if (!connected) return std::nullopt;
  return Client(*std::move(connected));
}

std::optional<protocol::Reply> Client::Send(const protocol::Request& request) {
  auto answer = protocol::SendRequest(socket_.get(), protocol::Format(request), kConnectTimeout);
  if (!answer) {
    refusal_ = {protocol::Refusal::kUnavailable, answer.error().Message()};
    return std::nullopt;
  }
  if (!answer->descriptors.empty()) {
    auto publisher = protocol::ClockPublisher::Attach(std::move(answer->descriptors));
    if (!publisher) return std::nullopt;
    publisher_.emplace(*std::move(publisher));
  }
  auto reply = protocol::ParseReply(answer->text);
  if (!reply) return std::nullopt;
  return *std::move(reply);
}

std::optional<protocol::Lease> Client::Acquire(const std::vector<std::string>& gpus,
                                               double heartbeat_s) {
  const auto reply = Send(protocol::Acquire{gpus, "fault campaign", heartbeat_s});
  if (!reply) return std::nullopt;
  if (const auto* refused = std::get_if<protocol::Refused>(&*reply)) refusal_ = *refused;
  if (!std::holds_alternative<protocol::Lease>(*reply)) return std::nullopt;
  return std::get<protocol::Lease>(*reply);
}

bool SendDescriptors(int socket, std::span<const int> descriptors) {
  char byte = 'x';
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostInAMessage)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

int Churn(const ClientPlan& plan) {
  Become(plan);
  SplitMix64 random{plan.seed};
  for (;;) {
    auto client = Client::Connect(plan.socket);
    for (std::uint64_t left = random() % 6; client && left > 0; --left) {
      const auto lease = client->Acquire(SomeOf(plan.gpus, random), plan.heartbeat_s);
      if (!lease) {
        ++plan.board->refused;
        SleepMicroseconds(static_cast<std::int64_t>(random() % 2000));
        continue;
      }
      ++plan.board->leases;
      Train(*client, *lease, random, *plan.board);
      if (random() % 2 == 0) break;  // Closes the connection without a release.
      if (!client->Send(protocol::Release{lease->id})) break;
    }
    client.reset();
    SleepMicroseconds(static_cast<std::int64_t>(random() % 2000));
  }
}

int Hold(const ClientPlan& plan) {
  Become(plan);
  SplitMix64 random{plan.seed};
  auto client = Client::Connect(plan.socket);
  if (!client) return 1;
  auto lease = client->Acquire(plan.gpus, plan.heartbeat_s);
  while (!lease) {
    SleepMicroseconds(1000);
    lease = client->Acquire(plan.gpus, plan.heartbeat_s);
  }
  ++plan.board->leases;
  for (std::uint64_t round = 1;; ++round) {
    const std::size_t gpu = random() % lease->gpus.size();
    const int clock_mhz = plan.clock_mhz.value_or(AnyOf(lease->sm_clocks_mhz[gpu], random));
    if (!Switch(*client, static_cast<int>(gpu), clock_mhz, *plan.board)) break;
    // From time to time, it asks the agent whether the lease still exists.
    if (round % 64 != 0) continue;
    const auto renewed = client->Send(protocol::Renew{lease->id});
    if (!renewed || !std::holds_alternative<protocol::Done>(*renewed)) break;
  }
  ++plan.board->lost;
  return 1;
}

int WorkOnce(const ClientPlan& plan) {
  Become(plan);
  SplitMix64 random{plan.seed};
  auto client = Client::Connect(plan.socket);
  if (!client) return 2;
  for (;;) {
    const auto lease = client->Acquire({AnyOf(plan.gpus, random)}, plan.heartbeat_s);
    if (lease) {
      ++plan.board->leases;
      const int clock_mhz = AnyOf(lease->sm_clocks_mhz[0], random);
      if (!Switch(*client, 0, clock_mhz, *plan.board)) return 3;
      return client->Send(protocol::Release{lease->id}) ? 0 : 4;
    }
    // The only valid reason for a refusal is that another client has the GPU.
    if (client->refusal().code != protocol::Refusal::kHeld) {
      std::fprintf(stderr, "the agent refuses a client: %s\n", client->refusal().message.c_str());
      return 5;
    }
    ++plan.board->refused;
    SleepMicroseconds(2000 + static_cast<std::int64_t>(random() % 30'000));
  }
}

int BeRefused(const ClientPlan& plan, int times) {
  Become(plan);
  auto client = Client::Connect(plan.socket);
  if (!client) return 2;
  for (; times > 0; --times) {
    for (const std::string& gpu : plan.gpus) {
      if (client->Acquire({gpu})) return 3;
      ++plan.board->refused;
      if (client->refusal().code == protocol::Refusal::kNotAllowed) continue;
      std::fprintf(stderr, "the agent refuses for another reason: %s\n",
                   client->refusal().message.c_str());
      return 4;
    }
  }
  return 0;
}

int SendMalformed(const ClientPlan& plan, int messages_per_second) {
  constexpr int kBatches = 200;  // Per second.
  SplitMix64 random{plan.seed};
  std::optional<Client> client;
  for (Nanoseconds next = Now();; next += kSecond / kBatches) {
    for (int left = messages_per_second / kBatches; left > 0; --left) {
      // A client does not always read the answers.
      if (client && random() % 4 != 0 && !Drain(client->socket())) client.reset();
      if (!client) client = Client::Connect(plan.socket);
      if (!client) break;
      if (random() % 50 == 0) {
        SendForbidden(client->socket(), random);
      } else if (const std::string text = Nonsense(random);
                 send(client->socket(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) <
                 0) {
        // The agent has closed the connection, or has not read the last messages yet (EAGAIN).
        if (errno != EAGAIN) client.reset();
        continue;
      }
      ++plan.board->messages;
    }
    if (const Nanoseconds left = next - Now(); left > 0) SleepMicroseconds(left / 1000);
  }
}

int StormDescriptors(const ClientPlan& plan, int descriptors) {
  constexpr rlim_t kOthers = 256;
  const auto most = static_cast<rlim_t>(descriptors) + kOthers;
  rlimit limit{most, most};
  // In a container, even root may be unable to raise the limit.
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
    limit.rlim_cur = std::min(most, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur <= 2 * kOthers) return 2;
    descriptors = static_cast<int>(limit.rlim_cur - kOthers);
  }
  Become(plan);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int i = 0; i < descriptors; ++i) {
    if (dup(null) < 0) return 3;
  }
  const FileDescriptor receiver = ListenOnTcp();
  if (!receiver) return 4;
  SplitMix64 random{plan.seed};
  std::vector<FileDescriptor> receiving;
  const std::string acquire =
      protocol::Format(protocol::Acquire{{plan.gpus.front()}, "storm", plan.heartbeat_s});
  for (;;) {
    const auto client = Client::Connect(plan.socket);
    for (std::uint64_t left = random() % 8; client && left > 0; --left) {
      send(client->socket(), acquire.data(), acquire.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      ++plan.board->messages;
    }
    if (!client) continue;
    if (random() % 8 == 0 && receiving.size() < 64) {
      SendLingering(client->socket(), receiver.get(), receiving);
    } else {
      const std::vector<int> many(1 + random() % kMostInAMessage, null);
      SendDescriptors(client->socket(), many);
    }
  }
}

int StaySilent(const ClientPlan& plan, int connections) {
  std::vector<Client> clients;
  for (int i = 0; i < connections; ++i) {
    if (auto client = Client::Connect(plan.socket)) {
      clients.push_back(*std::move(client));
    } else {
      ++plan.board->refused;
    }
  }
  plan.board->messages += clients.size();
  for (;;) pause();
}

}  // namespace perseus::faults
