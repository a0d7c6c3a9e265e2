// A file on a file system of an ordinary user, who never lets a close of it end: a FUSE mount in a
// user namespace, whose server does not answer. A process that closes the file then waits
// uninterruptibly, until the server ends.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>

namespace perseus::faults {

// What the server does not answer.
enum class Unanswered {
  kFlush,    // close() of any descriptor of the file waits.
  kRelease,  // close() returns, and the end of the last reference is not answered.
};

struct HangingFileSystem {
  std::filesystem::path directory;  // Where the file system is mounted.
  std::filesystem::path device;     // A node of /dev/fuse that the user may open.
  Unanswered unanswered = Unanswered::kFlush;
};

// Why this system has no such file systems. Empty: it has. Requires root.
std::string ObstacleToFuse();

// Makes a device node that every user may open, even if /dev/fuse is for root only.
void MakeFuseDevice(const std::filesystem::path& path);

// Mounts the file system for this process and its children, as the process' user, who must not be
// root. Starts `body` in a child process with the path of the file, and serves until this process
// is killed. The child ends with it. Returns only if the mount fails.
int ServeHangingFile(const HangingFileSystem& system,
                     const std::function<void(const std::filesystem::path& file)>& body);

}  // namespace perseus::faults
