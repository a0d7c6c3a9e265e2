// Locks between agents, so that two of them do not set the same GPU or write the same state.
//
// A lock ends with its process. But a process that was killed cannot end while one of its threads
// is in an uninterruptible wait (state D: a driver call that hangs), and it keeps its locks. It
// never runs again: SIGKILL waits for all its threads. So another agent takes the lock over, and
// the GPUs are restored all the same. A driver call that hangs may still take effect later; a
// restore reads back what the driver has, and repeats.
//
// The lock file has the process id and start time of its holder. A takeover replaces the file,
// since the kernel's lock (flock) is on the old one.
#pragma once

#include <filesystem>
#include <optional>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/runtime/agent/owner.h"

namespace perseus::agent {

// The locked file; an empty descriptor if another process has it, which may run again. Makes the
// directory if it does not exist. Fails (kSystem) if the file cannot be opened.
Result<FileDescriptor> LockFile(const std::filesystem::path& path);

// What the file says of the process that has the lock. Empty if it says nothing.
std::optional<ProcessId> HolderOf(const std::filesystem::path& path);

}  // namespace perseus::agent
