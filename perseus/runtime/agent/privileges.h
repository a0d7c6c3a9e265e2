// What the agent gives up before it listens to anyone.
#pragma once

#include "perseus/base/result.h"

namespace perseus::agent {

// Of root's capabilities this thread, and every one that it starts from now on, keeps CAP_SYS_ADMIN
// (the driver wants it of whoever sets clocks) and CAP_SYS_PTRACE (to see which GPUs a caller has
// open; caller.h). No program that it may start gets more. To be called before other threads run.
// Nothing is gained: what the process did not have it has not afterwards. Fails (kSystem) if the
// kernel refuses.
Result<void> KeepOnlyNeededCapabilities();

}  // namespace perseus::agent
