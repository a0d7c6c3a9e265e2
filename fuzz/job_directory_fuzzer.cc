// Checks that no text makes ParseAssignment or ParseRecord crash, and that writing and reading
// again loses nothing. A user may write an assignment by hand, and a log may end anywhere.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "perseus/runtime/protocol/assignment.h"
#include "perseus/runtime/protocol/rank_log.h"

namespace {

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
  std::string written = format(*parsed);
  Require(!written.empty() && written.find('\n') == written.size() - 1);
  written.pop_back();
  const auto again = parse(written);
  Require(again.has_value() && *again == *parsed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto assignment = [](std::string_view from) {
    return perseus::protocol::ParseAssignment(from, "fuzz");
  };
  Check(assignment(text), assignment, perseus::protocol::FormatAssignment);
  const auto record = [](std::string_view from) {
    return perseus::protocol::ParseRecord(from, "fuzz:1");
  };
  Check(record(text), record, perseus::protocol::FormatRecord);
  return 0;
}
