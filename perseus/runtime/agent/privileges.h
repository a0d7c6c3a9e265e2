// Gives up privileges before the agent listens.
#pragma once

#include "perseus/base/result.h"

namespace perseus::agent {

// This thread, and every thread and process that it starts later, keeps only four of root's
// capabilities: CAP_SYS_ADMIN (the driver requires it to set clocks), and for a child that takes a
// caller's place (access_check.h) CAP_SETUID, CAP_SETGID and CAP_DAC_OVERRIDE (to join a cgroup
// that the user owns). A program that it starts gets no more. Call this before other threads run.
// The process gains no capability that it did not have. Fails (kSystem) if the kernel refuses.
Result<void> KeepOnlyNeededCapabilities();

}  // namespace perseus::agent
