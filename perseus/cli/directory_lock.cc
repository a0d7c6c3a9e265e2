#include "perseus/cli/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "perseus/base/system_cause.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = ".perseus-lock";

// Whether `path` still names the open file. The run that had the lock removes the file when it
// ends, and then another run may create it again.
bool IsStillAt(const fs::path& path, const FileDescriptor& file) {
  struct stat named {};
  struct stat opened {};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(file.get(), &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

// The directory and those above it that do not exist, the deepest one first.
std::vector<fs::path> MissingDirectories(fs::path directory) {
  std::vector<fs::path> missing;
  std::error_code ignored;
  if (!directory.has_filename()) directory = directory.parent_path();  // After a slash at the end.
  for (; !directory.empty() && !fs::exists(directory, ignored);
       directory = directory.parent_path()) {
    missing.push_back(directory);
  }
  return missing;
}

enum class Locking { kDone, kBusy, kUnavailable };

Locking TryToLock(const FileDescriptor& file) {
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    return errno == EWOULDBLOCK ? Locking::kBusy : Locking::kUnavailable;
  }
  return Locking::kDone;
}

}  // namespace

void RemoveIfEmpty(const std::vector<fs::path>& directories) {
  for (const fs::path& directory : directories) {
    if (::rmdir(directory.c_str()) != 0) return;
  }
}

Result<DirectoryLock> DirectoryLock::Take(const fs::path& directory) {
  const fs::path path = directory / kLockName;
  std::vector<fs::path> created;
  while (true) {
    std::error_code error;
    std::vector<fs::path> missing = MissingDirectories(directory);
    if (!missing.empty()) created = std::move(missing);
    fs::create_directories(directory, error);
    if (error) {
      RemoveIfEmpty(created);
      return FailAs(ErrorKind::kSystem, "{}: cannot make the directory: {}", directory.string(),
                    CauseAndRemedy(error));
    }
    constexpr mode_t kMode = 0644;
    FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode));
    // Another run that ended without results may have removed the directory.
    if (!file && errno == ENOENT && !fs::exists(directory, error)) continue;
    if (!file) {
      RemoveIfEmpty(created);
      return FailAs(ErrorKind::kSystem, "{}: cannot write to the directory: {}", directory.string(),
                    CauseAndRemedy(errno));
    }
    const Locking locking = TryToLock(file);
    if (locking == Locking::kBusy) {
      return FailAs(ErrorKind::kSystem,
                    "{}: another run of perseus is about to write its results here (wait until it "
                    "ends, or use another directory with -o)",
                    directory.string());
    }
    if (locking == Locking::kUnavailable || IsStillAt(path, file)) {
      return DirectoryLock(path, std::move(file), std::move(created));
    }
  }
}

DirectoryLock::~DirectoryLock() {
  if (file_) ::unlink(path_.c_str());  // Before the lock ends with the descriptor.
}

}  // namespace perseus::cli
