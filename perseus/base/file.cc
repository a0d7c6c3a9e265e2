#include "perseus/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "perseus/base/file_descriptor.h"

namespace perseus {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> SystemFailure(std::string_view what, const std::filesystem::path& path,
                                    int error) {
  return FailAs(ErrorKind::kSystem, "{}: cannot {}: {}", path.string(), what, std::strerror(error));
}

Result<void> WriteAll(int fd, std::string_view contents, const std::filesystem::path& path) {
  while (!contents.empty()) {
    const ssize_t written = ::write(fd, contents.data(), contents.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemFailure("write", path, errno);
    }
    contents.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(fd) != 0 && errno != EINVAL) return SystemFailure("flush", path, errno);
  return {};
}

// For a pipe or a device. Its readers would not see a file that replaced it.
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

// The target of symbolic links. The target does not have to exist.
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

// Flushes `directory` and its parents up to `topmost`, because a file name is on disk only once its
// directory is. Some file systems cannot flush a directory (EINVAL), and some directories may be
// written but not read (EACCES). The file is complete in any case.
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

// Why the file was not opened, or what it is. A directory is an error.
Result<struct stat> StatusOf(const FileDescriptor& file, const fs::path& path) {
  if (!file) return SystemFailure("read", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return SystemFailure("read", path, errno);
  if (!S_ISDIR(status.st_mode)) return status;
  return FailAs(ErrorKind::kSystem, "{}: is a directory (give the path of a file in it)",
                path.string());
}

tl::unexpected<Error> TooLarge(const fs::path& path, std::uint64_t most_bytes) {
  return FailAs(ErrorKind::kSystem, "{}: is larger than {} bytes (is it the right file?)",
                path.string(), most_bytes);
}

// Reads until the end, because the size may be wrong: that of a file in /proc is 0.
Result<std::string> ReadAll(int fd, std::uint64_t size, std::uint64_t most_bytes,
                            const fs::path& path) {
  if (size > most_bytes) return TooLarge(path, most_bytes);
  std::string contents;
  std::size_t used = 0;
  contents.resize(static_cast<std::size_t>(size) + 1);
  while (true) {
    if (used > most_bytes) return TooLarge(path, most_bytes);
    if (used == contents.size()) contents.resize(contents.size() * 2);
    const ssize_t got = ::read(fd, contents.data() + used, contents.size() - used);
    if (got < 0) {
      if (errno == EINTR) continue;
      return SystemFailure("read", path, errno);
    }
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  contents.resize(used);
  return contents;
}

}  // namespace

Result<std::string> ReadFile(const fs::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  PERSEUS_ASSIGN_OR_RETURN(const struct stat status, StatusOf(file, path));
  // A pipe has size 0, and ends where its writer closes it. A terminal ends with Ctrl-D. Other
  // devices may never end, except /dev/null, which is empty.
  const bool is_device = S_ISCHR(status.st_mode) && ::isatty(file.get()) == 0;
  auto contents = ReadAll(file.get(), static_cast<std::uint64_t>(status.st_size),
                          is_device ? 0 : kMostFileBytes, path);
  if (contents || !is_device) return contents;
  return FailAs(ErrorKind::kSystem, "{}: is a device (give the path of a file)", path.string());
}

Result<std::string> ReadRegularFile(const fs::path& path, std::uint64_t most_bytes) {
  // O_NONBLOCK: opening a pipe does not wait for its writer.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  PERSEUS_ASSIGN_OR_RETURN(const struct stat status, StatusOf(file, path));
  if (!S_ISREG(status.st_mode)) {
    return FailAs(ErrorKind::kSystem, "{}: is not a regular file (give the path of a file)",
                  path.string());
  }
  return ReadAll(file.get(), static_cast<std::uint64_t>(status.st_size), most_bytes, path);
}

Result<void> WriteFileAtomically(const fs::path& given, std::string_view contents) {
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
    if (written && ::fchmod(file.get(), 0644) != 0) written = SystemFailure("write", path, errno);
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

}  // namespace perseus
