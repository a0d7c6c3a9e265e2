// Checks that no bytes that a node and the server send each other crash the other side, and that
// messages have the same meaning after they are written and read again. The first byte chooses the
// message.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "perseus/base/json_file.h"
#include "perseus/runtime/protocol/node_messages.h"

namespace {

namespace protocol = perseus::protocol;
using perseus::json_file::Node;

void Require(bool condition) {
  if (!condition) std::abort();
}

template <typename Parsed, typename Parse, typename Format>
void Check(const Parsed& parsed, Parse parse, Format format) {
  if (!parsed) {
    Require(!parsed.error().message.empty());
    Require(parsed.error().message.find('\n') == std::string::npos);
    return;
  }
  const auto again = parse(format(*parsed));
  Require(again.has_value() && *again == *parsed);
}

std::string FormatAssignment(const protocol::AssignmentEvent& event) {
  std::vector<std::pair<std::string, protocol::SharedText>> files;
  for (const auto& [id, file] : event.files) {
    files.emplace_back(id, std::make_shared<const std::string>(file));
  }
  std::string text;
  for (const auto& part : protocol::FormatEvent(event, files)) text += *part;
  return text;
}

void CheckEvent(std::string_view text, std::string_view name) {
  const auto parse = [name](std::string_view from) { return protocol::ParseEvent(name, from); };
  Check(parse(text), parse, [](const protocol::ServerEvent& event) {
    if (const auto* ended = std::get_if<protocol::EndedEvent>(&event)) {
      return protocol::FormatEvent(*ended);
    }
    return FormatAssignment(std::get<protocol::AssignmentEvent>(event));
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto reports = [](std::string_view from) {
    return perseus::json_file::Read(from, "fuzz", protocol::kDeepestReports, protocol::ReadReports);
  };
  const auto attachment = [](std::string_view from) {
    return perseus::json_file::Read(
        from, "fuzz", protocol::kDeepestAttachment,
        [](const Node& body) { return protocol::ReadAttachment(body, {}); });
  };
  // The choices are '0' to '3', so that seeds are text.
  switch (data[0] % 4) {
    case 0:
      CheckEvent(text, protocol::kAssignmentEvent);
      break;
    case 1:
      CheckEvent(text, protocol::kEndedEvent);
      break;
    case 2:
      Check(reports(text), reports, protocol::FormatReports);
      break;
    default:
      Check(attachment(text), attachment, protocol::FormatAttachment);
      break;
  }
  return 0;
}
