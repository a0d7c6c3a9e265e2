// What the processes of the trainer say to each other: datagrams with borders (AF_UNIX,
// SOCK_SEQPACKET) between processes of one program, so they are plain structs.
//
// Times are of the nodes' clock, and may lie a little ahead: whoever computes on a virtual GPU
// knows when an instruction will be done, and says so shortly before. Then nobody's late wake-up
// costs virtual time.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/simulation/trainer/rank_work.h"

namespace perseus::trainer {

enum class MessageKind : std::int32_t {
  // A rank to another.
  kTensor,
  // A rank to the parent.
  kReady,       // All is open; the first step may begin.
  kStepDone,    // At `time`.
  kHere,        // The answer to kRollCall.
  kFailed,      // `text` says why.
  kWarning,     // `text` is one of the client library.
  kStatistics,  // The last word of a rank that ends well.
  // The parent to a rank.
  kBeginStep,  // At `time`.
  kStop,       // No further step.
  kRollCall,   // Is anybody there?
};

// What a rank knows of how well it kept up.
struct RankStatistics {
  std::int64_t instructions = 0;
  Nanoseconds wakeup_late_sum = 0;  // From an instruction's end to the call that reports it.
  Nanoseconds wakeup_late_most = 0;
  Nanoseconds start_late_sum = 0;  // That a GPU stood still since its next instruction came late.
  Nanoseconds start_late_most = 0;
  Nanoseconds forecast_off_sum = 0;  // How far ends were from what neighbours were told before.
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
  char text[400] = {};  // Ends with 0.
};

// `text` is cut to what fits.
Message TextMessage(MessageKind kind, std::string_view text);

// Fails (kSystem) if the other end is gone or does not read. Never raises SIGPIPE.
Result<void> SendMessage(int socket, const Message& message);

// What there is to read on a non-blocking socket.
struct MessageReception {
  bool has_ended = false;          // The other end is gone.
  std::optional<Message> message;  // Nothing: nothing now.
};
Result<MessageReception> ReceiveMessage(int socket);

}  // namespace perseus::trainer
