#include "perseus/simulation/trainer/message.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <type_traits>

#include "perseus/base/system_cause.h"

namespace perseus::trainer {

static_assert(std::is_trivially_copyable_v<Message>);

Message TextMessage(MessageKind kind, std::string_view text) {
  Message message;
  message.kind = kind;
  text.copy(message.text, sizeof message.text - 1);
  return message;
}

Result<void> SendMessage(int socket, const Message& message) {
  for (;;) {
    const ssize_t sent = send(socket, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(sizeof message)) return {};
    if (sent < 0 && errno == EINTR) continue;
    return SystemFail(errno, "cannot send to another process of the trainer");
  }
}

Result<MessageReception> ReceiveMessage(int socket) {
  for (;;) {
    Message message;
    const ssize_t got = recv(socket, &message, sizeof message, MSG_DONTWAIT);
    if (got == static_cast<ssize_t>(sizeof message)) return MessageReception{false, message};
    if (got == 0) return MessageReception{true, {}};
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return MessageReception{};
    if (got < 0 && errno == ECONNRESET) return MessageReception{true, {}};
    constexpr std::string_view kCannot = "cannot receive from another process of the trainer";
    if (got < 0) return SystemFail(errno, kCannot);
    return FailAs(ErrorKind::kSystem, "{}: protocol version mismatch (use one build of perseus)",
                  kCannot);
  }
}

}  // namespace perseus::trainer
