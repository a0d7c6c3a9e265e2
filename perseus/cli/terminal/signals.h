// Receives signals for verbs that run long and have to clean up at the end.
#pragma once

#include <span>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus::cli {

// Blocks the signals. They are read from the descriptor that is returned. Call this before threads
// start, because they inherit the signal mask.
Result<FileDescriptor> TakeSignals(std::span<const int> numbers);

// Receives SIGTERM, SIGINT and SIGHUP. From Take() on, the signals no longer end the process. The
// verb polls HaveCome().
class EndSignals {
 public:
  static Result<EndSignals> Take();
  bool HaveCome();

 private:
  FileDescriptor signals_;
  bool have_come_ = false;
};

}  // namespace perseus::cli
