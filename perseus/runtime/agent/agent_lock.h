// Locks between agents, so that two of them do not set the same GPU or write the same state.
//
// The kernel releases a lock when the process that holds it ends. But a killed process cannot end
// while one of its threads is in an uninterruptible wait (state D: a driver call that hangs). Until
// then, the process keeps its locks. It never runs again, because SIGKILL is pending for all its
// threads. So another agent takes over the lock, and restores the GPUs. A driver call that hangs
// may still take effect later. So a restore reads back the driver's settings, and repeats.
//
// When a process ends, the kernel releases its locks only after it has closed the files of the
// process. A child that was forked a moment before also holds the lock, until the child closes its
// copies of these files (child_descriptors.h). On a busy node, the kernel and the child may each
// take seconds. So if the holder of a lock has ended, an agent waits for the lock.
//
// The lock file has the process id and start time of its holder, and below them the holder's
// socket, if the holder listens on one. An agent that takes over the lock replaces the file,
// because the kernel's lock (flock) is on the old file.
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

// How long to wait for the end of a process that is ending.
inline constexpr std::chrono::milliseconds kPredecessorTime{5'000};

// Returns the locked file. Returns an empty descriptor if another process has the lock and may run
// again. If the holder has ended, waits until the lock is free, at most for `longest_wait`. Creates
// the directory if it does not exist. Fails (kSystem) if the file cannot be opened.
Result<FileDescriptor> LockFile(const std::filesystem::path& path,
                                std::chrono::milliseconds longest_wait = kPredecessorTime);

// Returns the process that the file records as the holder of the lock, or nullopt.
std::optional<ProcessId> HolderOf(const std::filesystem::path& path);

// Writes the socket on which this process listens into its lock file, so that others can ask this
// process.
void RecordSocket(const FileDescriptor& lock, const std::filesystem::path& socket);
// The absolute path of the socket that the holder has recorded. Empty if the holder has recorded
// none.
std::filesystem::path SocketOfHolder(const std::filesystem::path& path);

// Takes a lock for each GPU, so that two agents with different states do not set the same GPU.
// Locks files in this directory, for as long as the result lives. Does not lock virtual GPUs,
// because several may have one name. Fails (kSystem) if another agent has a GPU. If this process
// may not write to the directory, logs a warning, and locks no GPU.
Result<std::vector<FileDescriptor>> LockGpus(
    const std::filesystem::path& directory,
    const std::vector<std::unique_ptr<device::Device>>& devices, spdlog::logger& log);

}  // namespace perseus::agent
