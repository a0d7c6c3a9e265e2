#include "perseus/runtime/protocol/job_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "perseus/base/random_id.h"
#include "perseus/base/system_cause.h"

namespace perseus::protocol {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> CannotWrite(const fs::path& path, int error) {
  return FailAs(ErrorKind::kSystem, "{}: cannot write: {}", path.string(), CauseAndRemedy(error));
}

bool IsLink(const fs::path& path) {
  std::error_code error;
  return fs::is_symlink(fs::symlink_status(path, error));
}

Result<FileDescriptor> OpenDirectory(int parent, const std::string& name, const fs::path& path) {
  FileDescriptor opened(
      ::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (opened) return opened;
  const int error = errno;
  if (IsLink(path)) {
    return FailAs(ErrorKind::kSystem, "{}: is a symbolic link (put a directory in its place)",
                  path.string());
  }
  return FailAs(ErrorKind::kSystem, "{}: cannot open: {}", path.string(), CauseAndRemedy(error));
}

// The directory may be a link.
Result<FileDescriptor> OpenJobDirectory(const fs::path& job_directory) {
  FileDescriptor opened(::open(job_directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened) return opened;
  return FailAs(ErrorKind::kSystem, "{}: cannot open: {}", job_directory.string(),
                CauseAndRemedy(errno));
}

// Some file systems cannot flush a directory (EINVAL). The file is complete in any case.
bool Flush(int fd) { return ::fsync(fd) == 0 || errno == EINVAL; }

bool WriteEverything(int fd, std::string_view contents) {
  while (!contents.empty()) {
    const ssize_t written = ::write(fd, contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    contents.remove_prefix(static_cast<std::size_t>(written));
  }
  return ::fchmod(fd, 0644) == 0 && Flush(fd);
}

}  // namespace

Result<std::string> ReadJobFile(const fs::path& path, std::uint64_t most_bytes) {
  // O_NONBLOCK: opening a pipe does not wait for its writer.
  const FileDescriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!file && errno == ELOOP && IsLink(path)) {
    return FailAs(ErrorKind::kFile, "{}: is a symbolic link (put a file in its place)",
                  path.string());
  }
  if (!file) {
    return FailAs(ErrorKind::kFile, "{}: cannot read: {}", path.string(), CauseAndRemedy(errno));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return FailAs(ErrorKind::kFile, "{}: is not a regular file (put a file in its place)",
                  path.string());
  }
  std::string contents(static_cast<std::size_t>(status.st_size) + 1, '\0');
  std::size_t used = 0;
  while (used <= most_bytes) {
    if (used == contents.size()) contents.resize(2 * contents.size());
    const ssize_t got = ::read(file.get(), contents.data() + used, contents.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return FailAs(ErrorKind::kSystem, "{}: cannot read: {}", path.string(),
                    CauseAndRemedy(errno));
    }
    if (got == 0) {
      contents.resize(used);
      return contents;
    }
    used += static_cast<std::size_t>(got);
  }
  return FailAs(ErrorKind::kFile, "{}: is larger than {} bytes (is it the right file?)",
                path.string(), most_bytes);
}

Result<void> WriteJobFile(const fs::path& job_directory, const fs::path& file,
                          std::string_view contents) {
  const fs::path path = job_directory / file;
  std::error_code code;
  if (!fs::create_directories(job_directory, code) && code) return CannotWrite(path, code.value());
  PERSEUS_ASSIGN_OR_RETURN(FileDescriptor folder, OpenJobDirectory(job_directory));
  fs::path at = job_directory;
  for (const fs::path& part : file.parent_path()) {
    at /= part;
    if (::mkdirat(folder.get(), part.c_str(), 0777) == 0) {
      static_cast<void>(Flush(folder.get()));
    } else if (errno != EEXIST) {
      return CannotWrite(at, errno);
    }
    PERSEUS_ASSIGN_OR_RETURN(FileDescriptor next, OpenDirectory(folder.get(), part, at));
    folder = std::move(next);
  }
  const std::string name = file.filename();
  const std::string temporary = name + "." + RandomHex(3);
  const FileDescriptor opened(::openat(folder.get(), temporary.c_str(),
                                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!opened) return CannotWrite(path, errno);
  if (!WriteEverything(opened.get(), contents) ||
      ::renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) != 0) {
    const int error = errno;
    ::unlinkat(folder.get(), temporary.c_str(), 0);
    return CannotWrite(path, error);
  }
  if (!Flush(folder.get())) return CannotWrite(path, errno);
  return {};
}

Result<FileDescriptor> OpenJobFolder(const fs::path& job_directory, std::string_view folder) {
  PERSEUS_ASSIGN_OR_RETURN(const FileDescriptor opened, OpenJobDirectory(job_directory));
  return OpenDirectory(opened.get(), std::string(folder), job_directory / folder);
}

}  // namespace perseus::protocol
