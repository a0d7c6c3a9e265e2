#include "perseus/cluster/store/postgres_listener.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <utility>

namespace perseus::store {
namespace {

// The first pause between attempts to connect again.
constexpr int kFirstPauseMs = 100;
constexpr int kLongestPauseMs = 5000;

constexpr std::pair<Notice::Kind, std::string_view> kWords[] = {
    {Notice::Kind::kAssignment, "assignment"}, {Notice::Kind::kNode, "node"},
    {Notice::Kind::kPlanning, "planning"},     {Notice::Kind::kTokens, "tokens"},
    {Notice::Kind::kSteps, "steps"},
};

struct Free {
  void operator()(PGnotify* notification) const { ::PQfreemem(notification); }
};

FileDescriptor MakeEvent() {
  FileDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) throw std::system_error(errno, std::generic_category(), "eventfd");
  return event;
}

}  // namespace

std::string NoticeText(const Notice& notice) {
  for (const auto& [kind, word] : kWords) {
    if (kind == notice.kind) {
      return fmt::format("{}{}{}", word, notice.name.empty() ? "" : " ", notice.name);
    }
  }
  return "read-again";
}

Notice ParseNotice(std::string_view text) {
  const std::size_t space = text.find(' ');
  for (const auto& [kind, word] : kWords) {
    if (word != text.substr(0, space)) continue;
    return {.kind = kind,
            .name = std::string(space == std::string_view::npos ? "" : text.substr(space + 1))};
  }
  return {};
}

Result<PostgresConnection> ConnectListener(const PostgresAddress& address) {
  Result<PostgresConnection> connection = PostgresConnection::Open(address);
  if (!connection) return connection;
  PERSEUS_RETURN_IF_ERROR(connection->Run(fmt::format("LISTEN {}", kNoticeChannel), {}));
  return connection;
}

PostgresListener::PostgresListener(PostgresAddress address, PostgresConnection connection,
                                   std::function<void(const Notice&)> receive)
    : address_(std::move(address)),
      receive_(std::move(receive)),
      stop_(MakeEvent()),
      thread_([this, first = std::move(connection)]() mutable { Run(std::move(first)); }) {}

PostgresListener::~PostgresListener() {
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

bool PostgresListener::Wait(int socket, int timeout_ms) {
  pollfd waits[] = {{stop_.get(), POLLIN, 0}, {socket, POLLIN, 0}};  // poll ignores -1.
  ::poll(waits, std::size(waits), timeout_ms);
  return waits[0].revents == 0;
}

void PostgresListener::ReceiveAll(PostgresConnection& connection) {
  PGconn* const handle = connection.handle();
  do {
    if (::PQconsumeInput(handle) == 0) return;
    while (true) {
      const std::unique_ptr<PGnotify, Free> notification(::PQnotifies(handle));
      if (!notification) break;
      receive_(ParseNotice(notification->extra));
      if (!Wait(-1, 0)) return;
    }
    if (::PQstatus(handle) != CONNECTION_OK) return;
  } while (Wait(::PQsocket(handle), -1));
}

void PostgresListener::Run(PostgresConnection connection) {
  while (true) {
    ReceiveAll(connection);
    for (int pause = kFirstPauseMs;; pause = std::min(2 * pause, kLongestPauseMs)) {
      if (!Wait(-1, pause)) return;
      Result<PostgresConnection> again = ConnectListener(address_);
      if (!again) continue;
      connection = std::move(*again);
      break;
    }
    receive_({});
  }
}

}  // namespace perseus::store
