#include "perseus/cluster/http/unix_listener.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "perseus/base/number.h"
#include "perseus/base/system_cause.h"

namespace perseus::http {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOwnerMayConnect = S_IRUSR | S_IWUSR;
constexpr mode_t kGroupMayConnect = kOwnerMayConnect | S_IRGRP | S_IWGRP;
constexpr mode_t kSocketDirectoryMode = S_IRWXU | S_IRGRP | S_IXGRP;

tl::unexpected<Error> ListenFailure(std::string_view what, const fs::path& path) {
  return SystemFail(errno, fmt::format("cannot {} {}", what, path.string()));
}

// Returns nullopt if `group` is empty.
Result<std::optional<gid_t>> FindGroup(const std::string& group) {
  if (group.empty()) return std::nullopt;
  if (const auto id = ParseNumber<gid_t>(group)) return *id;
  std::array<char, 16 << 10> space{};
  ::group entry{};
  ::group* found = nullptr;
  if (::getgrnam_r(group.c_str(), &entry, space.data(), space.size(), &found) == 0 && found) {
    return entry.gr_gid;
  }
  return Fail("group {} does not exist (see getent group)", group);
}

// Sets the group and the mode. Keeps a group that is already right, because a server may have no
// right to call chown.
bool GiveTo(std::optional<gid_t> group, const fs::path& path, mode_t mode) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return false;
  const bool is_right = !group || status.st_gid == *group;
  return (is_right || ::chown(path.c_str(), static_cast<uid_t>(-1), *group) == 0) &&
         ::chmod(path.c_str(), mode) == 0;
}

Result<void> PrepareDirectory(const fs::path& directory, std::optional<gid_t> group) {
  if (::mkdir(directory.c_str(), kSocketDirectoryMode) == 0) {
    if (!GiveTo(group, directory, kSocketDirectoryMode)) {
      return ListenFailure("give the group its rights to", directory);
    }
  } else if (errno != EEXIST) {
    return ListenFailure("make the directory", directory);
  }
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return ListenFailure("look at", directory);
  const bool is_ours = status.st_uid == ::geteuid() || status.st_uid == 0;
  if (is_ours && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return FailAs(ErrorKind::kSystem, InFile(directory.string()),
                "other users may write to this directory, and could replace the socket "
                "(choose a directory of its own, or chmod go-w {})",
                directory.string());
}

FileDescriptor MakeUnixSocket() {
  return FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Removes a socket on which no process listens. Only a refused connection proves that.
Result<void> RemoveStale(const fs::path& path, const sockaddr_un& address) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return ListenFailure("look at", path);
  }
  if (!S_ISSOCK(status.st_mode)) {
    return FailAs(ErrorKind::kSystem, InFile(path.string()),
                  "exists and is not a socket (remove it, or choose another path)");
  }
  const FileDescriptor probe = MakeUnixSocket();
  if (!probe) return ListenFailure("probe", path);
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(probe.get(), to, sizeof address) == 0 || errno != ECONNREFUSED) {
    return FailAs(ErrorKind::kSystem, InFile(path.string()),
                  "another process listens there (stop it, or choose another path)");
  }
  if (::unlink(path.c_str()) != 0) return ListenFailure("remove", path);
  return {};
}

}  // namespace

Result<FileDescriptor> ListenUnix(const UnixAddress& at) {
  const fs::path path = at.path;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  constexpr std::size_t kLongestSocketPath = sizeof(address.sun_path) - 1;
  if (!path.is_absolute() || at.path.size() > kLongestSocketPath) {
    return Fail(InFile(at.path),
                "not the path of a socket (expected an absolute path of at most {} bytes)",
                kLongestSocketPath);
  }
  at.path.copy(address.sun_path, kLongestSocketPath);
  PERSEUS_ASSIGN_OR_RETURN(const auto group, FindGroup(at.group));
  PERSEUS_RETURN_IF_ERROR(PrepareDirectory(path.parent_path(), group));
  PERSEUS_RETURN_IF_ERROR(RemoveStale(path, address));
  FileDescriptor listener = MakeUnixSocket();
  // No client can connect before listen(), so the initial mode (from the umask) has no effect.
  if (!listener ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return ListenFailure("make the socket", path);
  }
  if (!GiveTo(group, path, group ? kGroupMayConnect : kOwnerMayConnect)) {
    return ListenFailure("give the group its rights to", path);
  }
  if (::listen(listener.get(), SOMAXCONN) != 0) return ListenFailure("listen on", path);
  return listener;
}

}  // namespace perseus::http
