#include "perseus/cli/terminal/standard_output.h"

#include <fmt/format.h>

#include <cerrno>

#include "perseus/base/system_cause.h"

namespace perseus::cli {

Result<void> Streams::Print(std::string_view text) const {
  if (std::fwrite(text.data(), 1, text.size(), out) == text.size() && std::fflush(out) == 0) {
    return {};
  }
  return SystemFail(errno, "cannot write to standard output");
}

// Does not use fmt::print, which would throw if standard error is closed or full.
void Streams::Say(std::string_view line) const {
  std::fputs(fmt::format("perseus: {}\n", line).c_str(), err);
}

void Streams::Warn(std::string_view line) const { Say(fmt::format("warning: {}", line)); }

}  // namespace perseus::cli
