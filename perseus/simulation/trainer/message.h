// The messages between the processes of the trainer. They are datagrams (AF_UNIX, SOCK_SEQPACKET)
// between processes of one program, so plain structs are sufficient.
//
// Times are times of the clock of the nodes, and may be slightly in the future. A process that
// computes on a virtual GPU knows when an instruction will end, and announces this shortly before.
// So if the operating system wakes a process late, this does not cost virtual time.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/simulation/trainer/rank_work.h"

namespace perseus::trainer {

enum class MessageKind : std::int32_t {
  // From a rank to another rank.
  kTensor,
  // From a rank to the parent.
  kReady,       // Everything is open. The first step may begin.
  kStepDone,    // The rank ends the step at `time`.
  kPong,        // The answer to kPing.
  kFailed,      // `text` has the cause.
  kWarning,     // `text` is a warning of the client library.
  kStatistics,  // The last message of a rank that ends well.
  // From the parent to a rank.
  kBeginStep,  // The step begins at `time`.
  kStop,       // The last step has ended.
  kPing,       // Asks for kPong.
};

// How late a rank was, as measured by the rank itself.
struct RankStatistics {
  std::int64_t instructions = 0;
  Nanoseconds wakeup_late_sum = 0;  // From an instruction's end to the call that reports the end.
  Nanoseconds wakeup_late_most = 0;
  Nanoseconds start_late_sum = 0;  // A GPU was idle because its next instruction came late.
  Nanoseconds start_late_most = 0;
  Nanoseconds forecast_off_sum = 0;  // Between the announced and the actual end of instructions.
  Nanoseconds forecast_off_most = 0;
  std::int64_t clock_requests = 0;
  std::int64_t warnings = 0;
};

struct Message {
  MessageKind kind = MessageKind::kTensor;
  std::int64_t step = 0;
  Nanoseconds time = 0;
  Tensor tensor;
  RankStatistics statistics;
  char text[400] = {};  // Null-terminated.
};

// Cuts `text` to the size of Message::text.
Message TextMessage(MessageKind kind, std::string_view text);

// Fails (kSystem) if the other end is gone or its queue is full. Never raises SIGPIPE.
Result<void> SendMessage(int socket, const Message& message);

// The result of a read from a non-blocking socket.
struct MessageReception {
  bool has_ended = false;          // The other end is gone.
  std::optional<Message> message;  // nullopt if no message has arrived.
};
Result<MessageReception> ReceiveMessage(int socket);

}  // namespace perseus::trainer
