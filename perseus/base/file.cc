#include "perseus/base/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "perseus/base/system_cause.h"

namespace perseus {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> SystemFailure(std::string_view what, const std::filesystem::path& path,
                                    int error) {
  return SystemFail(error, fmt::format("cannot {}", what), InFile(path.string()));
}

// Whether the path is the cause of `error`. Otherwise, the state of the system is the cause.
bool IsWrongFile(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:
      return true;
    default:
      return false;
  }
}

tl::unexpected<Error> CannotRead(const fs::path& path, int error) {
  return SystemFail(error, "cannot read", InFile(path.string()),
                    IsWrongFile(error) ? ErrorKind::kFile : ErrorKind::kSystem);
}

Result<void> WriteAll(int fd, std::string_view contents, const std::filesystem::path& path) {
  if (WriteBytes(fd, contents) < contents.size()) return SystemFailure("write", path, errno);
  if (::fsync(fd) != 0 && errno != EINVAL) return SystemFailure("flush", path, errno);
  return {};
}

// Writes to a pipe or a device. A new file in its place would not reach its readers.
Result<void> WriteInPlace(const fs::path& path, std::string_view contents) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return SystemFailure("write", path, errno);
  return WriteAll(file.get(), contents, path);
}

// mkstemp replaces the letters X with random letters and digits.
constexpr std::string_view kUnfinished = ".XXXXXX";

bool IsUnfinished(std::string_view name, std::string_view of) {
  if (name.size() != of.size() + kUnfinished.size() || !name.starts_with(of)) return false;
  name.remove_prefix(of.size());
  return name.front() == '.' && std::all_of(name.begin() + 1, name.end(), [](char letter) {
           return (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
                  (letter >= 'a' && letter <= 'z');
         });
}

// The target of a chain of symbolic links. The target does not have to exist.
fs::path TargetOf(fs::path path) {
  constexpr int kMostLinks = 40;  // The limit of the kernel.
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(path, error)); ++i) {
    const fs::path target = fs::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / target;
  }
  return path;
}

// `directory` or its nearest parent that exists. "." if the path is empty.
fs::path NearestExisting(fs::path directory) {
  std::error_code error;
  while (!directory.empty() && !fs::exists(directory, error) &&
         directory != directory.parent_path()) {
    directory = directory.parent_path();
  }
  return directory.empty() ? "." : directory;
}

// Flushes `directory` and its parents up to `topmost`, because a file name is on disk only when its
// directory is on disk. Ignores two errors: some file systems cannot flush a directory (EINVAL),
// and the user may write to some directories but not read them (EACCES). The file is complete in
// any case.
Result<void> FlushDirectories(fs::path directory, const fs::path& topmost) {
  while (true) {
    if (directory.empty()) directory = ".";
    const FileDescriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!opened && errno != EACCES) return SystemFailure("flush", directory, errno);
    if (opened && ::fsync(opened.get()) != 0 && errno != EINVAL) {
      return SystemFailure("flush", directory, errno);
    }
    if (directory == topmost || directory == directory.parent_path()) return {};
    directory = directory.parent_path();
  }
}

tl::unexpected<Error> IsADirectory(const fs::path& path) {
  return FailAs(ErrorKind::kFile, InFile(path.string()),
                "is a directory (give the path of a file in it)");
}

// Returns the status of the path without opening it: opening a pipe waits for its writer.
Result<struct stat> StatusOf(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return CannotRead(path, errno);
  if (S_ISDIR(status.st_mode)) return IsADirectory(path);
  return status;
}

// Whether a pipe has no name of its own, such as the pipe of `perseus plan <(command)`.
bool IsNameless(const fs::path& pipe) {
  struct statfs system {};
  return ::statfs(pipe.c_str(), &system) == 0 && system.f_type == PIPEFS_MAGIC;
}

tl::unexpected<Error> TooLarge(const fs::path& path, std::uint64_t most_bytes) {
  return FailAs(ErrorKind::kFile, InFile(path.string()),
                "is larger than {} bytes (is it the right file?)", most_bytes);
}

// Whether the device has an end when it is read: a terminal ends with Ctrl-D, and /dev/null is
// empty.
bool HasEnd(const fs::path& device, const struct stat& status) {
  if (!S_ISCHR(status.st_mode)) return false;        // A disk.
  if (status.st_rdev == makedev(1, 3)) return true;  // /dev/null
  const FileDescriptor file(::open(device.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  return file && ::isatty(file.get()) != 0;
}

}  // namespace

Result<void> CheckInputFile(const fs::path& path) {
  PERSEUS_ASSIGN_OR_RETURN(const struct stat status, StatusOf(path));
  const bool is_device = S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode);
  if (is_device && !HasEnd(path, status)) {
    return FailAs(ErrorKind::kFile, InFile(path.string()), "is a device (give the path of a file)");
  }
  if (S_ISSOCK(status.st_mode)) {
    return FailAs(ErrorKind::kFile, InFile(path.string()), "is a socket (give the path of a file)");
  }
  if (S_ISFIFO(status.st_mode) && !IsNameless(path)) {
    return FailAs(ErrorKind::kFile, InFile(path.string()),
                  "is a named pipe (give the path of a file; or write into standard input, and "
                  "give /dev/stdin)");
  }
  return {};
}

Result<std::string> ReadFile(const fs::path& path) {
  PERSEUS_RETURN_IF_ERROR(CheckInputFile(path));
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return CannotRead(path, errno);
  return ReadToEnd(file, kMostFileBytes, path);
}

Result<std::string> ReadRegularFile(const fs::path& path, std::uint64_t most_bytes) {
  // O_NONBLOCK: opening a pipe does not wait for its writer.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  // A socket cannot be opened.
  const bool is_socket = !file && errno == ENXIO;
  if (!is_socket && (!file || ::fstat(file.get(), &status) != 0)) return CannotRead(path, errno);
  if (S_ISDIR(status.st_mode)) return IsADirectory(path);
  if (!S_ISREG(status.st_mode)) {
    return FailAs(ErrorKind::kFile, InFile(path.string()),
                  "is not a regular file (give the path of a file)");
  }
  return ReadToEnd(file, most_bytes, path);
}

// Reads until the end, because the reported size may be wrong: it is 0 for a file in /proc and for
// a pipe. A pipe ends when its writer closes it.
Result<std::string> ReadToEnd(const FileDescriptor& file, std::uint64_t most_bytes,
                              const fs::path& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return CannotRead(path, errno);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > most_bytes) return TooLarge(path, most_bytes);
  std::string contents;
  std::size_t used = 0;
  contents.resize(static_cast<std::size_t>(size) + 1);
  while (true) {
    if (used > most_bytes) return TooLarge(path, most_bytes);
    if (used == contents.size()) contents.resize(contents.size() * 2);
    const ssize_t got = ::read(file.get(), contents.data() + used, contents.size() - used);
    if (got < 0) {
      if (errno == EINTR) continue;
      return CannotRead(path, errno);
    }
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  contents.resize(used);
  return contents;
}

std::size_t WriteBytes(int file, std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t took = ::write(file, bytes.data() + done, bytes.size() - done);
    if (took < 0 && errno == EINTR) continue;
    if (took <= 0) break;
    done += static_cast<std::size_t>(took);
  }
  return done;
}

Result<void> WriteFileAtomically(const fs::path& given, std::string_view contents,
                                 Readers readers) {
  std::error_code error_code;
  const fs::file_status status = fs::status(given, error_code);
  if (fs::exists(status) && !fs::is_regular_file(status)) return WriteInPlace(given, contents);
  const fs::path path = TargetOf(given);
  const fs::path topmost = NearestExisting(path.parent_path());
  if (path.has_parent_path() && !fs::create_directories(path.parent_path(), error_code) &&
      error_code) {
    return SystemFailure("write", path, error_code.value());
  }

  std::string temporary = path.string().append(kUnfinished);
  {
    const FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
    if (!file) return SystemFailure("write", path, errno);
    Result<void> written = WriteAll(file.get(), contents, path);
    const mode_t mode = readers == Readers::kOwner ? 0600 : 0644;
    if (written && ::fchmod(file.get(), mode) != 0) written = SystemFailure("write", path, errno);
    if (!written) {
      ::unlink(temporary.c_str());
      return written;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return SystemFailure("write", path, error);
  }
  return FlushDirectories(path.parent_path(), topmost);
}

void RemoveUnfinished(const fs::path& given) {
  const fs::path path = TargetOf(given);
  std::error_code error;
  const fs::path directory = path.has_parent_path() ? path.parent_path() : ".";
  std::vector<fs::path> unfinished;
  for (fs::directory_iterator entry(directory, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (IsUnfinished(entry->path().filename().native(), path.filename().native()) &&
        fs::is_regular_file(entry->symlink_status(error))) {
      unfinished.push_back(entry->path());
    }
  }
  for (const fs::path& file : unfinished) fs::remove(file, error);
}

bool IsUnchanged(const std::optional<struct stat>& before, const std::optional<struct stat>& now) {
  if (!before || !now) return !before && !now;
  return before->st_ino == now->st_ino && before->st_dev == now->st_dev &&
         before->st_size == now->st_size && before->st_mtim.tv_sec == now->st_mtim.tv_sec &&
         before->st_mtim.tv_nsec == now->st_mtim.tv_nsec;
}

}  // namespace perseus
