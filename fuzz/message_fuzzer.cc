// Checks that no bytes from a client or an agent crash the other side. Messages must have the same
// meaning after they are formatted and parsed again.
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "perseus/runtime/protocol/messages/messages.h"

namespace {

namespace protocol = perseus::protocol;
using perseus::fuzz::Require;
using perseus::fuzz::RequireOneLine;

template <typename Message>
void Check(const perseus::Result<Message>& parsed,
           perseus::Result<Message> (*parse)(std::string_view)) {
  if (!parsed) return RequireOneLine(parsed.error());
  const std::string written = protocol::Format(*parsed);
  // Formatting also writes members that the input may omit, such as a heartbeat. So a formatted
  // message may be longer than the limit.
  if (written.size() > protocol::kLongestMessage) return;
  const perseus::Result<Message> again = parse(written);
  Require(again.has_value() && *again == *parsed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Check(protocol::ParseRequest(text), protocol::ParseRequest);
  Check(protocol::ParseReply(text), protocol::ParseReply);
  return 0;
}
