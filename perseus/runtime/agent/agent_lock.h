// Locks between agents, so that two of them do not set the same GPU or write the same state.
//
// A lock ends with its process. But a process that was killed cannot end while one of its threads
// is in an uninterruptible wait (state D: a driver call that hangs), and it keeps its locks. It
// never runs again: SIGKILL waits for all its threads. So another agent takes over the lock, and
// restores the GPUs. A driver call that hangs may still take effect later. So a restore reads back
// what the driver has, and repeats.
//
// A process that ends releases its locks only when the kernel has closed its files. A child that
// was forked a moment before also holds the lock, until the child closes its copies of these files
// (child_descriptors.h). On a busy node, both may take seconds. So if the holder of a lock has
// ended, an agent waits for the lock.
//
// The lock file has the process id and start time of its holder, and below them the holder's
// socket, if the holder listens on one. A takeover replaces the file, because the kernel's lock
// (flock) is on the old one.
#pragma once

#include <spdlog/logger.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/runtime/access/owner.h"
#include "perseus/runtime/device/device.h"

namespace perseus::agent {

inline constexpr std::chrono::milliseconds kPredecessorTime{5'000};

// Returns the locked file, or an empty descriptor if another process has the lock and may run
// again. If the holder has ended, waits until the lock is free, at most for `longest_wait`. Creates
// the directory if it does not exist. Fails (kSystem) if the file cannot be opened.
Result<FileDescriptor> LockFile(const std::filesystem::path& path,
                                std::chrono::milliseconds longest_wait = kPredecessorTime);

// Returns the process that the file records as the holder of the lock, or nullopt.
std::optional<ProcessId> HolderOf(const std::filesystem::path& path);

// Records in a lock file of this process the socket on which it listens, so that others can ask it.
void RecordSocket(const FileDescriptor& lock, const std::filesystem::path& socket);
// The absolute path that the holder has recorded. Empty if the holder has recorded none.
std::filesystem::path SocketOfHolder(const std::filesystem::path& path);

// A lock for each GPU, so that two agents with different states do not set the same GPU. Locks
// files in this directory, for as long as the result lives. Virtual GPUs are not locked, because
// several may have one name. Fails (kSystem) if another agent has a GPU. If this process may not
// write to the directory, logs a warning, and locks no GPU.
Result<std::vector<FileDescriptor>> LockGpus(
    const std::filesystem::path& directory,
    const std::vector<std::unique_ptr<device::Device>>& devices, spdlog::logger& log);

}  // namespace perseus::agent
