// A file on a file system of an ordinary user. Closing this file never ends: the file system is a
// FUSE mount in a user namespace, and its server does not answer. A process that closes the file
// waits uninterruptibly, until the server ends.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>

namespace perseus::faults {

// The request that the server does not answer.
enum class Unanswered {
  kFlush,    // close() of any descriptor of the file waits.
  kRelease,  // close() returns, and the end of the last reference is not answered.
};

struct HangingFileSystem {
  std::filesystem::path directory;  // The directory on which the file system is mounted.
  std::filesystem::path device;     // A node of /dev/fuse that the user may open.
  Unanswered unanswered = Unanswered::kFlush;
};

// The reason why this system has no such file systems. Empty: it has them. Requires root.
std::string ObstacleToFuse();

// Creates a device node that every user may open, even if only root may open /dev/fuse.
void MakeFuseDevice(const std::filesystem::path& path);

// Mounts the file system for this process and its children, as the user of the process. This user
// must not be root. Starts `body` in a child process with the path of the file, and serves until
// this process is killed. The child ends together with this process. Returns only if the mount
// fails.
int ServeHangingFile(const HangingFileSystem& system,
                     const std::function<void(const std::filesystem::path& file)>& body);

}  // namespace perseus::faults
