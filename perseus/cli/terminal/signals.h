// Receives SIGTERM, SIGINT and SIGHUP for verbs that run long and have to clean up at the end.
#pragma once

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus::cli {

// From Take() on, the signals no longer end the process. The verb polls HaveCome().
class EndSignals {
 public:
  // Call this before threads start, because they inherit the signal mask.
  static Result<EndSignals> Take();
  bool HaveCome();

 private:
  FileDescriptor signals_;
  bool have_come_ = false;
};

}  // namespace perseus::cli
