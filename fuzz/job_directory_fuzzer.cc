// Checks that no text makes ParseAssignment or ParseRecord crash, and that values are the same
// after they are written and read again. A user may write an assignment by hand, and a log may end
// in the middle of a line.
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace {

using perseus::fuzz::CheckRoundTrip;
using perseus::fuzz::Require;

// Removes the line end, because the readers of a line receive no line end. `text` ends with its
// only line end.
std::string WithoutLineEnd(std::string text) {
  Require(!text.empty() && text.find('\n') == text.size() - 1);
  text.pop_back();
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto assignment = [](std::string_view from) {
    return perseus::protocol::ParseAssignment(from, "fuzz");
  };
  CheckRoundTrip(assignment(text), assignment, [](const auto& value) {
    return WithoutLineEnd(perseus::protocol::FormatAssignment(value));
  });
  const auto record = [](std::string_view from) {
    return perseus::protocol::ParseRecord(from, perseus::InFile("fuzz", 1));
  };
  CheckRoundTrip(record(text), record, [](const auto& value) {
    return WithoutLineEnd(perseus::protocol::FormatRecord(value));
  });
  return 0;
}
