// Gives up privileges before the agent listens.
#pragma once

#include "perseus/base/result.h"

namespace perseus::agent {

// Keeps only five of root's capabilities, for this thread, and for every thread and process that
// this thread starts later:
//  - CAP_SYS_ADMIN: the driver requires it to set clocks.
//  - CAP_SYS_PTRACE: the agent needs it to see the user namespace of a caller (caller.h).
//  - CAP_SETUID, CAP_SETGID and CAP_DAC_OVERRIDE: a child takes a caller's identity, also in a
//    cgroup that the user owns (access_check.h).
// A program that this process starts gets no other capabilities. Call this before other threads
// run. The process gains no capability that it did not have. Fails (kSystem) if the kernel refuses.
Result<void> KeepOnlyNeededCapabilities();

}  // namespace perseus::agent
