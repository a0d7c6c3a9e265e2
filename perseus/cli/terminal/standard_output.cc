#include "perseus/cli/terminal/standard_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "perseus/base/system_cause.h"

namespace perseus::cli {

void HoldStandardDescriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // Gets this number, because it is the lowest one that is free.
    const int held = ::open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    if (held > descriptor) ::close(held);
  }
}

Result<void> Streams::Print(std::string_view text) const {
  if (std::fwrite(text.data(), 1, text.size(), out) == text.size() && std::fflush(out) == 0) {
    return {};
  }
  return FailAs(ErrorKind::kSystem, "cannot write to standard output: {}", CauseAndRemedy(errno));
}

// fmt::print would throw if standard error is closed or full.
void Streams::Say(std::string_view line) const {
  std::fputs(fmt::format("perseus: {}\n", line).c_str(), err);
}

void Streams::Warn(std::string_view line) const { Say(fmt::format("warning: {}", line)); }

}  // namespace perseus::cli
