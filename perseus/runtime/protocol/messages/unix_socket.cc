#include "perseus/runtime/protocol/messages/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "perseus/base/number.h"
#include "perseus/base/process.h"
#include "perseus/base/system_cause.h"
#include "perseus/runtime/protocol/clock_channel/clock_channel.h"
#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::protocol {
namespace {

namespace fs = std::filesystem;

// The memory of a channel, and an eventfd for each of its GPUs.
constexpr std::size_t kMostDescriptors = 1 + kMostGpus;
static_assert(kMostGpus == kMostChannelGpus);
constexpr std::size_t kLongestPath = sizeof(sockaddr_un::sun_path) - 1;
constexpr int kWaitingClients = 128;
// The longest wait of a connection for an agent that exists but does not accept the connection.
constexpr timeval kConnectTimeout = {5, 0};
// An option of Linux 6.16: whether a receiver accepts descriptors. Headers do not have this option
// yet.
constexpr int kPassRights = 83;

tl::unexpected<Error> SystemFailure(std::string_view what) {
  return SystemFail(errno, fmt::format("cannot {}", what));
}

FileDescriptor MakeSocket(int flags) {
  return FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
}

// Requires a path of at most kLongestPath bytes.
sockaddr_un AddressOf(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.native().size());
  return address;
}

Result<void> CheckPath(const fs::path& path, std::size_t longest) {
  const std::size_t size = path.native().size();
  if (size == 0) return Fail("the path of the agent's socket is empty (name one)");
  if (size > longest) {
    return Fail(InFile(path.string()),
                "the path has {} bytes, but that of a socket has at most {} (choose a shorter one, "
                "such as /run/perseus/agent.sock)",
                size, longest);
  }
  return {};
}

int ConnectTo(int socket, const fs::path& path) {
  const sockaddr_un address = AddressOf(path);
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

// Succeeds if `path` may be replaced: nothing has this name, or it is a socket on which no process
// listens. Only a refused connection proves that no process listens.
Result<void> CheckFree(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return SystemFailure("look at " + path.string());
  }
  if (!S_ISSOCK(status.st_mode)) {
    return FailAs(ErrorKind::kSystem, InFile(path.string()),
                  "exists and is not a socket (remove it, or choose another path)");
  }
  const FileDescriptor probe = MakeSocket(SOCK_NONBLOCK);
  if (!probe) return SystemFailure("make a socket");
  if (ConnectTo(probe.get(), path) != 0) {
    if (errno == ECONNREFUSED || errno == ENOENT) return {};
  } else if (const auto listener = PeerOf(probe.get()); listener && listener->pid > 0) {
    // Suppose a listener was killed, but a driver call prevents its end. Such a listener never
    // accepts a connection again. If the listener is gone, a child still has to close its copy of
    // the socket.
    const auto state = ReadProcessState(listener->pid);
    if (!state || state->is_ending) return {};
  }
  return FailAs(ErrorKind::kSystem, InFile(path.string()),
                "another process already listens there (stop that agent, or choose another "
                "path)");
}

// Listens on a path that is still unknown to clients.
Result<FileDescriptor> ListenAt(const fs::path& path, mode_t mode) {
  FileDescriptor listener = MakeSocket(SOCK_NONBLOCK);
  if (!listener) return SystemFailure("make a socket");
  // Accepted sockets inherit this option. Older systems do not know it, and need no option.
  const int no = 0;
  (void)::setsockopt(listener.get(), SOL_SOCKET, kPassRights, &no, sizeof no);
  const sockaddr_un address = AddressOf(path);
  // The old file belonged to a dead process with the same process id.
  (void)::unlink(path.c_str());
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return SystemFailure("make the socket " + path.string());
  }
  // No client can connect before listen(), so the permissions from the umask are never used.
  if (::chmod(path.c_str(), mode) != 0 || ::listen(listener.get(), kWaitingClients) != 0) {
    const int error = errno;
    (void)::unlink(path.c_str());
    errno = error;
    return SystemFailure("listen on " + path.string());
  }
  return listener;
}

// ---- Datagrams ----

// A buffer for the descriptors of a channel, aligned as the kernel requires.
struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)> bytes{};
};

Result<void> CheckSendable(std::string_view text, const std::vector<int>& descriptors) {
  if (text.empty()) return Fail("an empty message cannot be sent (it looks like the end)");
  if (text.size() > kLongestMessage) {
    return Fail(
        "the message has {} bytes, but at most {} are possible (request fewer GPUs at a time)",
        text.size(), kLongestMessage);
  }
  if (descriptors.size() > kMostDescriptors) {
    return Fail("the message has {} descriptors, but at most {} are possible", descriptors.size(),
                kMostDescriptors);
  }
  return {};
}

void Attach(msghdr& message, Control& control, const std::vector<int>& descriptors) {
  if (descriptors.empty()) return;
  const std::size_t size = sizeof(int) * descriptors.size();
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_SPACE(size);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(header), descriptors.data(), size);
}

Result<void> SendOne(int socket, std::string_view text, const std::vector<int>& descriptors,
                     int flags) {
  PERSEUS_RETURN_IF_ERROR(CheckSendable(text, descriptors));
  Control control;
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Attach(message, control, descriptors);
  while (::sendmsg(socket, &message, flags | MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) {
      return FailAs(ErrorKind::kSystem, "cannot send: the other end is gone");
    }
    if (errno == EAGAIN) {
      return FailAs(ErrorKind::kSystem, "cannot send: the other end does not read");
    }
    return SystemFailure("send");
  }
  return {};
}

std::vector<FileDescriptor> DescriptorsOf(msghdr& message) {
  std::vector<FileDescriptor> descriptors;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

// If `control` is null, no received descriptor is opened.
Result<Reception> ReceiveOne(int socket, Control* control) {
  Reception arrival;
  arrival.datagram.text.resize(kLongestMessage);
  iovec part{arrival.datagram.text.data(), arrival.datagram.text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (control != nullptr) {
    message.msg_control = control->bytes.data();
    // CMSG_SPACE would be too large, because its padding has room for one more descriptor.
    message.msg_controllen = CMSG_LEN(sizeof(int) * kMostDescriptors);
  }
  ssize_t size = 0;
  do {
    size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && errno == EAGAIN) return Reception{};
  if (size < 0 && errno != ECONNRESET) return SystemFailure("receive");
  if (control != nullptr && size >= 0) arrival.datagram.descriptors = DescriptorsOf(message);
  if (size <= 0) return Reception{.state = Received::kEnd, .datagram = {}};
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    return Fail("received a message of more than {} bytes (request fewer GPUs at a time)",
                kLongestMessage);
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return Fail(
        "received more descriptors than the {} of a channel, or than this process may open (raise "
        "the limit on open files)",
        kMostDescriptors);
  }
  arrival.state = Received::kDatagram;
  arrival.datagram.text.resize(static_cast<std::size_t>(size));
  return arrival;
}

// Looks at the next message, and leaves the message in the queue. If the socket blocks, waits for a
// message. If it fails, returns nullopt and sets errno.
std::optional<Received> LookAtNext(int socket) {
  for (;;) {
    msghdr message{};
    if (::recvmsg(socket, &message, MSG_PEEK) >= 0) {
      return (message.msg_flags & MSG_CTRUNC) != 0 ? Received::kDescriptors : Received::kDatagram;
    }
    // The peer closed its socket without reading all messages. The peer's own messages are still in
    // the queue. The kernel reports this error once.
    if (errno == EINTR || errno == ECONNRESET) continue;
    return std::nullopt;
  }
}

using Clock = std::chrono::steady_clock;

// Waits until the socket is ready for `events`, or until the deadline. Returns whether the socket
// is ready. The socket is also ready if the peer is gone.
Result<bool> WaitFor(int socket, short events, Clock::time_point deadline) {
  for (;;) {
    constexpr std::int64_t kLongestPoll = 86'400'000;  // In ms. poll() takes an int.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wanted{socket, events, 0};
    const int ready =
        ::poll(&wanted, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, kLongestPoll)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return SystemFailure("wait for the agent");
    if (Clock::now() >= deadline) return false;
  }
}

// Removes the sockets of processes that were killed before they renamed their socket.
void RemoveLeftBehind(const fs::path& path) {
  const std::string prefix = path.filename().native() + ".";
  std::error_code error;
  std::vector<fs::path> left;
  for (fs::directory_iterator entry(path.has_parent_path() ? path.parent_path() : ".", error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().native();
    if (!name.starts_with(prefix) || !fs::is_socket(entry->symlink_status(error))) continue;
    const auto process = ParseNumber<pid_t>(std::string_view(name).substr(prefix.size()));
    if (process && *process > 0 && ::kill(*process, 0) != 0 && errno == ESRCH) {
      left.push_back(entry->path());
    }
  }
  for (const fs::path& socket : left) fs::remove(socket, error);
}

}  // namespace

Result<FileDescriptor> Listen(const fs::path& path, mode_t mode) {
  // The socket is created with a temporary name and then renamed. So a client sees the old socket
  // or the new socket, and never a socket with other permissions.
  const std::string suffix = fmt::format(".{}", ::getpid());
  constexpr std::size_t kLongestSuffix = 8;  // Process ids end at 4,194,304.
  PERSEUS_RETURN_IF_ERROR(CheckPath(path, kLongestPath - kLongestSuffix));
  PERSEUS_RETURN_IF_ERROR(CheckFree(path));
  RemoveLeftBehind(path);
  const fs::path temporary = path.native() + suffix;
  auto listener = ListenAt(temporary, mode);
  if (!listener) return listener;
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    (void)::unlink(temporary.c_str());
    errno = error;
    return SystemFailure("make the socket " + path.string());
  }
  return listener;
}

Result<FileDescriptor> Accept(int listener) {
  for (;;) {
    FileDescriptor client(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client) return client;
    if (errno == EAGAIN) return FileDescriptor();
    if (errno == EINTR || errno == ECONNABORTED) continue;
    return SystemFailure("accept a client's connection");
  }
}

Result<FileDescriptor> Connect(const fs::path& path) {
  PERSEUS_RETURN_IF_ERROR(CheckPath(path, kLongestPath));
  FileDescriptor socket = MakeSocket(0);
  if (!socket) return SystemFailure("make a socket");
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kConnectTimeout,
                     sizeof kConnectTimeout);
  int failed = 0;
  do {
    failed = ConnectTo(socket.get(), path);
  } while (failed != 0 && errno == EINTR);
  if (failed == 0) return socket;
  const std::string_view remedy =
      errno == EACCES       ? "ask the administrator of the agent for permission to use its socket"
      : errno == EAGAIN     ? "the agent exists but accepts no connections: is it stopped?"
      : errno == EPROTOTYPE ? "this is the socket of another program: name the agent's"
                            : "is the agent running, and is this its socket?";
  return FailAs(ErrorKind::kSystem, InFile(path.string()), "cannot connect: {} ({})",
                std::strerror(errno), remedy);
}

Result<Peer> PeerOf(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return SystemFailure("identify the process at the other end");
  }
  return Peer{credentials.pid, credentials.uid, credentials.gid};
}

Result<void> Send(int socket, std::string_view text, const std::vector<int>& descriptors) {
  return SendOne(socket, text, descriptors, 0);
}

bool RefusesDescriptors(int socket) {
  int passes = 1;
  socklen_t size = sizeof passes;
  return ::getsockopt(socket, SOL_SOCKET, kPassRights, &passes, &size) == 0 && passes == 0;
}

Result<Reception> Receive(int socket) {
  // If a message with unwanted descriptors is taken, its descriptors have to be closed. Closing
  // them may wait for the peer. So the kind of each message is checked before the message is taken.
  const std::optional<Received> next = LookAtNext(socket);
  if (!next && errno != EAGAIN) return SystemFailure("look at the next message");
  if (!next) return Reception{};
  if (next == Received::kDescriptors) return Reception{.state = *next, .datagram = {}};
  return ReceiveOne(socket, nullptr);
}

Result<Datagram> SendRequest(int socket, std::string_view request,
                             std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  for (const short events : {short{POLLOUT}, short{POLLIN}}) {
    PERSEUS_ASSIGN_OR_RETURN(const auto ready, WaitFor(socket, events, deadline));
    if (!ready) {
      return FailAs(ErrorKind::kSystem, "the agent did not answer within {} ms (is it stopped?)",
                    timeout.count());
    }
    if (events == POLLIN) break;
    const auto sent = SendOne(socket, request, {}, MSG_DONTWAIT);
    if (!sent && sent.error().kind == ErrorKind::kInput) return Fail(sent);
    // If the other end is gone, it may have sent the reason.
    if (!sent) break;
  }
  Control control;
  PERSEUS_ASSIGN_OR_RETURN(auto arrival, ReceiveOne(socket, &control));
  if (arrival.state == Received::kDatagram) return std::move(arrival.datagram);
  return FailAs(ErrorKind::kSystem,
                "the agent closed the connection (see its log; it may have been stopped)");
}

}  // namespace perseus::protocol
