// Gives up privileges before the agent listens.
#pragma once

#include "perseus/base/result.h"

namespace perseus::agent {

// This thread, and every thread that it starts later, keeps only two of root's capabilities:
// CAP_SYS_ADMIN (the driver requires it to set clocks) and CAP_SYS_PTRACE (to see which GPUs a
// caller has open; caller.h). A program that it starts gets no more. Call this before other threads
// run. The process gains no capability that it did not have. Fails (kSystem) if the kernel refuses.
Result<void> KeepOnlyNeededCapabilities();

}  // namespace perseus::agent
