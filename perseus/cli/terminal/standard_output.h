// The streams on which a command writes, and the standard descriptors of the process.
#pragma once

#include <cstdio>
#include <string_view>

#include "perseus/base/result.h"

namespace perseus::cli {

// Opens the standard descriptors that the caller closed. Otherwise the next file of the program
// would get such a number, and what the program prints would be written into that file. Writing to
// a standard output that was closed still fails.
void HoldStandardDescriptors();

// Those of the process, or those that a test reads.
struct Streams {
  std::FILE* out;
  std::FILE* err;

  // Writes the text to `out` and flushes it. Fails (kSystem) with the reason of the system.
  Result<void> Print(std::string_view text) const;
  // Writes "perseus: LINE" to `err`. If this fails, nothing happens.
  void Say(std::string_view line) const;
  // The same with "perseus: warning: ".
  void Warn(std::string_view line) const;
};

}  // namespace perseus::cli
