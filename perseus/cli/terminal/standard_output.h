// The streams on which a command writes.
#pragma once

#include <cstdio>
#include <string_view>

#include "perseus/base/result.h"

namespace perseus::cli {

// The streams of the process, or streams that a test reads.
struct Streams {
  std::FILE* out;
  std::FILE* err;

  // Writes the text to `out` and flushes it. Fails (kSystem) with the reason of the system.
  Result<void> Print(std::string_view text) const;
  // Writes "perseus: LINE" to `err`. Ignores a failure.
  void Say(std::string_view line) const;
  // The same with "perseus: warning: ".
  void Warn(std::string_view line) const;
};

}  // namespace perseus::cli
