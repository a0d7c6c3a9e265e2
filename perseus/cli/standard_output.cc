#include "perseus/cli/standard_output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace perseus::cli {

Result<void> Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return {};
  }
  return FailAs(ErrorKind::kSystem, "cannot write to standard output: {}", std::strerror(errno));
}

}  // namespace perseus::cli
