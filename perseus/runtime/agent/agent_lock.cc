#include "perseus/runtime/agent/agent_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/process.h"

namespace perseus::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kLookAtLockAgain{10};

Result<FileDescriptor> OpenLockFile(const fs::path& path) {
  constexpr mode_t kOwnerOnly = 0600;
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kOwnerOnly));
  if (file) return file;
  return FailAs(ErrorKind::kSystem, "cannot open {}: {} (run as root, or choose another `state`)",
                path.string(), std::generic_category().message(errno));
}

// Whether `path` still names the open file. A takeover may have replaced the file.
bool IsAt(const fs::path& path, const FileDescriptor& file) {
  struct stat named {};
  struct stat opened {};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(file.get(), &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

// Returns an empty descriptor if another process has the lock.
Result<FileDescriptor> TryLock(const fs::path& path) {
  while (true) {
    PERSEUS_ASSIGN_OR_RETURN(FileDescriptor file, OpenLockFile(path));
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return FileDescriptor();
    if (IsAt(path, file)) return file;
  }
}

// Only other processes use the holder's name, so a full disk does not matter here.
void WriteHolder(const FileDescriptor& file, const std::string& socket = "") {
  const auto self = ReadProcessState(::getpid());
  const std::string text = fmt::format("{} {}\n{}", ::getpid(), self ? self->started : 0, socket);
  if (::ftruncate(file.get(), 0) != 0) return;
  (void)!::pwrite(file.get(), text.data(), text.size(), 0);
}

enum class Holder { kRuns, kIsEnding, kIsGone };

Holder StateOf(const ProcessId& process) {
  const auto state = ReadProcessState(process.pid);
  if (!state || state->started != process.started) return Holder::kIsGone;
  return state->is_ending ? Holder::kIsEnding : Holder::kRuns;
}

// Only one process takes over at a time, so that no process removes a file that another process has
// just locked.
Result<FileDescriptor> TakeOver(const fs::path& path) {
  fs::path guard_path = path;
  guard_path += ".takeover";
  PERSEUS_ASSIGN_OR_RETURN(const FileDescriptor guard, OpenLockFile(guard_path));
  if (::flock(guard.get(), LOCK_EX | LOCK_NB) != 0) return FileDescriptor();
  const auto holder = HolderOf(path);
  if (holder && StateOf(*holder) == Holder::kIsEnding) ::unlink(path.c_str());
  return TryLock(path);
}

}  // namespace

Result<FileDescriptor> LockFile(const fs::path& path, std::chrono::milliseconds longest_wait) {
  std::error_code ignored;  // Opening the file reports any problem.
  fs::create_directories(path.parent_path(), ignored);
  const auto end = std::chrono::steady_clock::now() + longest_wait;
  while (true) {
    PERSEUS_ASSIGN_OR_RETURN(FileDescriptor lock, TryLock(path));
    const auto holder = lock ? std::nullopt : HolderOf(path);
    const Holder state = holder ? StateOf(*holder) : Holder::kRuns;
    if (state == Holder::kIsEnding) {
      PERSEUS_ASSIGN_OR_RETURN(lock, TakeOver(path));
    }
    if (lock) {
      WriteHolder(lock);
      return lock;
    }
    // A holder that seems to be gone may run in another PID namespace. So its lock is not taken
    // over.
    if (state == Holder::kRuns || std::chrono::steady_clock::now() >= end) return FileDescriptor();
    std::this_thread::sleep_for(kLookAtLockAgain);
  }
}

std::optional<ProcessId> HolderOf(const fs::path& path) {
  const auto text = ReadFile(path);
  if (!text) return std::nullopt;
  ProcessId holder;
  const char* end = text->data() + text->size();
  const auto [after_pid, pid_error] = std::from_chars(text->data(), end, holder.pid);
  if (pid_error != std::errc() || after_pid == end || *after_pid != ' ') return std::nullopt;
  const auto [after, error] = std::from_chars(after_pid + 1, end, holder.started);
  if (error != std::errc() || holder.pid <= 0) return std::nullopt;
  return holder;
}

void RecordSocket(const FileDescriptor& lock, const fs::path& socket) {
  std::error_code error;
  const fs::path absolute = fs::absolute(socket, error);
  if (!error) WriteHolder(lock, absolute.string());
}

fs::path SocketOfHolder(const fs::path& path) {
  const auto text = ReadFile(path);
  const std::size_t end = text ? text->find('\n') : std::string::npos;
  return end == std::string::npos ? fs::path() : fs::path(text->substr(end + 1));
}

Result<std::vector<FileDescriptor>> LockGpus(
    const fs::path& directory, const std::vector<std::unique_ptr<device::Device>>& devices,
    spdlog::logger& log) {
  std::vector<FileDescriptor> locks;
  for (const auto& device : devices) {
    const device::DeviceInfo& info = device->info();
    if (info.backend == "virtual") continue;
    std::string name = fmt::format("gpu-{}.lock", info.uuid);
    std::ranges::replace(name, '/', '_');
    auto lock = LockFile(directory / name);
    if (!lock) {
      // A process that may not write to the directory is usually not allowed to set clocks either.
      log.warn("cannot lock out other agents: {}", lock.error().Message());
      return locks;
    }
    if (!*lock) {
      return FailAs(ErrorKind::kSystem,
                    "{}: another agent that is running uses this GPU (stop it first)", info.uuid);
    }
    locks.push_back(*std::move(lock));
  }
  return locks;
}

}  // namespace perseus::agent
