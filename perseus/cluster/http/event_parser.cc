#include "perseus/cluster/http/event_parser.h"

#include <utility>

namespace perseus::http {
namespace {

constexpr std::size_t kLongestEvent = 64 << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

Result<std::vector<Event>> EventParser::Put(std::string_view bytes) {
  std::vector<Event> events;
  while (!bytes.empty()) {
    if (std::exchange(skips_newline_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    if (line_.size() + event_.data.size() > kLongestEvent) {
      return FailAs(ErrorKind::kSystem,
                    "an event has more than {} bytes (is this an event stream?)", kLongestEvent);
    }
    if (end == std::string_view::npos) break;
    skips_newline_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    const std::string line = std::exchange(line_, "");
    TakeLine(line, events);
  }
  return events;
}

void EventParser::TakeLine(std::string_view line, std::vector<Event>& events) {
  if (std::exchange(is_at_start_, false) && line.starts_with(kByteOrderMark)) {
    line.remove_prefix(kByteOrderMark.size());
  }
  if (!line.empty()) {
    const std::size_t colon = line.find(':');
    std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    return TakeField(line.substr(0, colon), value);
  }
  if (std::exchange(has_id_, false)) last_id_ = event_.id;
  if (std::exchange(has_data_, false)) {
    event_.data.pop_back();  // Remove the newline after the last line.
    events.push_back(std::move(event_));
  }
  event_ = Event();
}

void EventParser::TakeField(std::string_view name, std::string_view value) {
  if (name == "data") {
    event_.data += value;
    event_.data += '\n';
    has_data_ = true;
  } else if (name == "event") {
    event_.name = value;
  } else if (name == "id" && value.find('\0') == std::string_view::npos) {
    event_.id = value;
    has_id_ = true;
  }
}

}  // namespace perseus::http
