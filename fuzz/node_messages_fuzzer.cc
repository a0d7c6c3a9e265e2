// Checks that no bytes from a node or the server crash the other side. Messages must have the same
// meaning after they are written and read again. The first byte chooses the message.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fuzz/require.h"
#include "perseus/base/json_file.h"
#include "perseus/cluster/node_messages/node_messages.h"

namespace {

namespace protocol = perseus::protocol;
using perseus::fuzz::CheckRoundTrip;
using perseus::json_file::Node;

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
  CheckRoundTrip(parse(text), parse, [](const protocol::ServerEvent& event) {
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
    return perseus::json_file::Read(from, "fuzz", protocol::kDeepestReports, [](const Node& body) {
      return protocol::ReadReports(body).jobs;
    });
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
      CheckRoundTrip(reports(text), reports, protocol::FormatReports);
      break;
    default:
      CheckRoundTrip(attachment(text), attachment, protocol::FormatAttachment);
      break;
  }
  return 0;
}
