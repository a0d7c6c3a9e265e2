// Checks three things. An event stream gives the same events, in whatever pieces it arrives.
// Received events are the same after they are written and parsed again. No response causes harm.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/require.h"
#include "perseus/cluster/http/event_parser.h"
#include "perseus/cluster/http/parser.h"

namespace {

namespace http = perseus::http;
using perseus::fuzz::Require;

bool Same(const std::vector<http::Event>& some, const std::vector<http::Event>& others) {
  if (some.size() != others.size()) return false;
  for (std::size_t i = 0; i < some.size(); ++i) {
    if (some[i].name != others[i].name || some[i].id != others[i].id ||
        some[i].data != others[i].data) {
      return false;
    }
  }
  return true;
}

std::vector<http::Event> Parsed(std::string_view text, std::size_t piece) {
  http::EventParser parser;
  std::vector<http::Event> events;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    const auto put = parser.Put(text.substr(0, piece));
    Require(put.has_value());
    events.insert(events.end(), put->begin(), put->end());
  }
  return events;
}

std::string Formatted(const http::Event& event) {
  std::string text = "event: " + event.name + "\nid: " + event.id + "\ndata: ";
  for (const char c : event.data) text += c == '\n' ? "\ndata: " : std::string(1, c);
  return text + "\n\n";
}

// Reads the stream in pieces, as the client does, and stops where the client would stop.
void ReadResponse(std::string_view text, std::size_t piece) {
  http::ResponseParser parser(http::Expected::kBody, {2000, 2000});
  std::string input;
  while (!text.empty() && !parser.IsDone() && parser.failure().empty()) {
    input += text.substr(0, piece);
    text.remove_prefix(std::min(piece, text.size()));
    std::size_t used = 1;
    while (used > 0 && !input.empty() && !parser.IsDone() && parser.failure().empty()) {
      used = parser.Put(input);
      Require(used <= input.size());
      input.erase(0, used);
    }
    Require(input.size() <= 2000 + piece || parser.IsDone() || !parser.failure().empty());
  }
  if (!parser.IsDone() && parser.failure().empty()) parser.End();
  Require(parser.body().size() <= 2000);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto events = Parsed(text, size + 1);
  Require(Same(events, Parsed(text, 1)));
  Require(Same(events, Parsed(text, 7)));
  std::string again;
  for (const http::Event& event : events) again += Formatted(event);
  // A byte order mark counts only at the start of a stream.
  Require(Same(events, Parsed(again, 3)));
  ReadResponse(text, 1);
  ReadResponse(text, 100);
  return 0;
}
