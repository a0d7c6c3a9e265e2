#include "perseus/cli/standard_output.h"

#include <cerrno>
#include <cstdio>

#include "perseus/base/system_cause.h"

namespace perseus::cli {

Result<void> Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return {};
  }
  return FailAs(ErrorKind::kSystem, "cannot write to standard output: {}", CauseAndRemedy(errno));
}

}  // namespace perseus::cli
