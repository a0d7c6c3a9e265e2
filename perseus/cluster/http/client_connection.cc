#include "perseus/cluster/http/client_connection.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

namespace perseus::http {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShouldEndInterval{100};  // How often should_end is called.
constexpr std::size_t kClientConnectionMostAtOnce = 64 << 10;

constexpr std::string_view kDefaultPort = "7410";

std::string SystemText(int error) { return std::generic_category().message(error); }

Result<ServerUrl> ParseServerUrl(std::string_view text) {
  ServerUrl url;
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    url.is_tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return Fail("{} is not the URL of a server (expected http://host:7410 or https://host:7410)",
                text);
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const bool has_port = rest.rfind(':') != std::string_view::npos && !rest.ends_with(']');
  auto at = ParseHostPort(has_port ? std::string(rest) : fmt::format("{}:{}", rest, kDefaultPort));
  if (!at || at->port == 0) {
    return Fail("{} is not the URL of a server (expected http://host:7410 or https://host:7410)",
                text);
  }
  url.text = fmt::format("{}://{}{}", url.is_tls ? "https" : "http", rest,
                         has_port ? "" : fmt::format(":{}", kDefaultPort));
  url.at = *std::move(at);
  return url;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// The resolver of the system determines how long this takes.
Result<Addresses> Resolve(const HostPort& at) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(at.port);
  const int failure = ::getaddrinfo(at.host.c_str(), port.c_str(), &hints, &found);
  if (failure != 0) return FailAs(ErrorKind::kSystem, "{}", ::gai_strerror(failure));
  return Addresses(found, ::freeaddrinfo);
}

// Waits for `events`. Fails if waiting ended early.
Result<void> Wait(int socket, short events, const ClientConnection::TimeLimit& limit) {
  while (true) {
    if (limit.should_end && limit.should_end()) return FailAs(ErrorKind::kSystem, "canceled");
    const auto left = std::chrono::ceil<milliseconds>(limit.until - ClientConnection::Clock::now());
    if (left.count() <= 0) return FailAs(ErrorKind::kSystem, "timed out");
    const milliseconds now = limit.should_end ? std::min(left, kShouldEndInterval) : left;
    pollfd polled{socket, events, 0};
    const int ready =
        ::poll(&polled, 1, static_cast<int>(std::min(now, milliseconds(60'000)).count()));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return FailAs(ErrorKind::kSystem, "{}", SystemText(errno));
  }
}

Result<FileDescriptor> Connect(const addrinfo& address, const ClientConnection::TimeLimit& limit) {
  FileDescriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return FailAs(ErrorKind::kSystem, "{}", SystemText(errno));
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return socket;
  if (errno != EINPROGRESS) return FailAs(ErrorKind::kSystem, "{}", SystemText(errno));
  if (const auto ready = Wait(socket.get(), POLLOUT, limit); !ready) {
    return FailAs(ErrorKind::kSystem, "{} while connecting", ready.error().what);
  }
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return FailAs(ErrorKind::kSystem, "{}", SystemText(error));
  return socket;
}

}  // namespace

Result<std::vector<ServerUrl>> ParseServerUrls(std::string_view text) {
  std::vector<ServerUrl> urls;
  while (true) {
    const std::size_t comma = text.find(',');
    PERSEUS_ASSIGN_OR_RETURN(auto url, ParseServerUrl(text.substr(0, comma)));
    urls.push_back(std::move(url));
    if (comma == std::string_view::npos) return urls;
    text.remove_prefix(comma + 1);
  }
}

Result<ClientConnection> ClientConnection::Open(const ServerUrl& server, const TlsContext& tls,
                                                const TimeLimit& limit) {
  PERSEUS_ASSIGN_OR_RETURN(const auto addresses, Resolve(server.at));
  Result<FileDescriptor> socket = FailAs(ErrorKind::kSystem, "it has no address");
  for (const addrinfo* one = addresses.get(); one != nullptr && !socket; one = one->ai_next) {
    socket = Connect(*one, limit);
  }
  if (!socket) return Fail(socket);
  Link link = Link::OfClient(socket->get(), server.is_tls ? tls : nullptr, server.at.host);
  ClientConnection connection(*std::move(socket), std::move(link));
  while (true) {
    const Link::Moved moved = connection.link_.Handshake();
    if (moved.status == Link::Status::kMoved) return connection;
    if (const auto ready = connection.Await(moved, limit); !ready) return Fail(ready, "TLS failed");
  }
}

bool ClientConnection::IsUsable() const {
  pollfd polled{socket_.get(), POLLIN, 0};
  return ::poll(&polled, 1, 0) == 0;
}

Result<void> ClientConnection::Await(const Link::Moved& moved, const TimeLimit& limit) const {
  if (moved.status == Link::Status::kWantRead) return Wait(socket_.get(), POLLIN, limit);
  if (moved.status == Link::Status::kWantWrite) return Wait(socket_.get(), POLLOUT, limit);
  if (!link_.failure().what.empty()) return tl::unexpected<Error>(link_.failure());
  return FailAs(ErrorKind::kSystem, "it {}",
                moved.status == Link::Status::kClosed ? "closed the connection" : "failed");
}

void ClientConnection::Abandon() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  // If this fails, the connection is already closed.
  static_cast<void>(::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
}

ClientConnection::Written ClientConnection::Write(std::string_view text, const TimeLimit& limit) {
  Written written;
  while (!text.empty()) {
    const Link::Moved moved = link_.Write(std::span(&text, 1));
    if (moved.status == Link::Status::kMoved) {
      written.bytes += moved.bytes;
      text.remove_prefix(moved.bytes);
      continue;
    }
    if (const auto ready = Await(moved, limit); !ready) {
      written.failure = ready.error();
      return written;
    }
  }
  return written;
}

Result<std::string> ClientConnection::Read(const TimeLimit& limit) {
  std::string text(kClientConnectionMostAtOnce, '\0');
  while (true) {
    const Link::Moved moved = link_.Read(text);
    if (moved.status == Link::Status::kMoved) {
      text.resize(moved.bytes);
      return text;
    }
    if (moved.status == Link::Status::kClosed && link_.failure().what.empty()) return std::string();
    PERSEUS_RETURN_IF_ERROR(Await(moved, limit));
  }
}

}  // namespace perseus::http
