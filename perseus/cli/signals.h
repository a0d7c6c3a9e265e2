// SIGTERM and SIGINT for verbs that take long and have something to put back.
#pragma once

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus::cli {

// From its making on, the two signals no longer end the process; who holds it asks now and then.
class EndSignals {
 public:
  // Before there are threads, which keep what they were started with.
  static Result<EndSignals> Take();
  bool HaveCome();

 private:
  FileDescriptor signals_;
  bool have_come_ = false;
};

}  // namespace perseus::cli
