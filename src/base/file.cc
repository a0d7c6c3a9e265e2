#include "perseus/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace perseus {
namespace {

// An open file descriptor, closed when it goes out of scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

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

}  // namespace

Result<std::string> ReadFile(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return SystemFailure("read", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return SystemFailure("read", path, errno);
  if (S_ISDIR(status.st_mode)) {
    return FailAs(ErrorKind::kSystem, "{}: is a directory (name a file in it)", path.string());
  }
  std::string contents;
  std::size_t used = 0;
  contents.resize(static_cast<std::size_t>(status.st_size) + 1);
  while (true) {  // Pipes report size 0, so read until the end rather than st_size bytes.
    if (used == contents.size()) contents.resize(contents.size() * 2);
    const ssize_t got = ::read(file.get(), contents.data() + used, contents.size() - used);
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

Result<void> WriteFileAtomically(const std::filesystem::path& path, std::string_view contents) {
  std::error_code ignored;  // A directory that cannot be made shows as a failure to open below.
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);

  std::string temporary = path.string() + ".XXXXXX";
  {
    const Descriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
    if (!file.valid()) return SystemFailure("write", path, errno);
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
  return {};
}

}  // namespace perseus
