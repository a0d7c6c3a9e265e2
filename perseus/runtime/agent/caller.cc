#include "perseus/runtime/agent/caller.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"

namespace perseus::agent {
namespace {

namespace fs = std::filesystem;
using protocol::Refusal;

constexpr unsigned kNvidiaMajor = 195;
// A caller may have a million descriptors open, and checking one takes microseconds.
constexpr int kMostDescriptors = 65'536;

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text, int base = 10) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number, base);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return number;
}

// The parts between runs of separators.
std::vector<std::string_view> Split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = text.find_first_not_of(separators); begin != std::string_view::npos;
       begin = text.find_first_not_of(separators, begin)) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return parts;
}

fs::path ProcessDirectory(const Host& host, pid_t pid) {
  return host.root / "proc" / std::to_string(pid);
}

std::string ReadOrEmpty(const fs::path& path) { return ReadFile(path).value_or(std::string()); }

// The words after "key:" in /proc/PID/status.
std::vector<std::string_view> StatusWords(std::string_view status, std::string_view key) {
  for (std::string_view line : Split(status, "\n")) {
    if (line.starts_with(key) && line.substr(key.size()).starts_with(':')) {
      return Split(line.substr(key.size() + 1), " \t");
    }
  }
  return {};
}

// Each line is "hierarchy:controllers:path". A path may contain colons. A path with " (deleted)" at
// its end belongs to no cgroup any more.
std::vector<Caller::Cgroup> ParseCgroups(std::string_view text) {
  std::vector<Caller::Cgroup> cgroups;
  for (std::string_view line : Split(text, "\n")) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    cgroups.push_back({std::string(line.substr(first + 1, second - first - 1)),
                       std::string(line.substr(second + 1))});
  }
  return cgroups;
}

bool IsInOurUserNamespace(const Host& host, pid_t pid) {
  std::error_code error;
  const fs::path ours = fs::read_symlink(host.root / "proc/self/ns/user", error);
  if (error) return false;
  const fs::path theirs = fs::read_symlink(ProcessDirectory(host, pid) / "ns/user", error);
  return !error && ours == theirs;
}

bool IsAdministrator(const Host& host, pid_t pid, uid_t uid, std::string_view status) {
  if (!IsInOurUserNamespace(host, pid)) return false;
  if (uid != 0) return uid == host.agent_uid;
  const std::vector<std::string_view> words = StatusWords(status, "CapEff");
  const auto capabilities =
      words.empty() ? std::nullopt : ParseNumber<std::uint64_t>(words.front(), 16);
  return capabilities && (*capabilities >> CAP_SYS_ADMIN & 1) != 0;
}

std::optional<std::uint64_t> StartTimeOf(const Host& host, pid_t pid) {
  return StartTimeIn(ReadOrEmpty(ProcessDirectory(host, pid) / "stat"));
}

tl::unexpected<protocol::Refused> Gone(pid_t pid) {
  return Refuse(Refusal::kNotAllowed,
                "process {} ended before the agent could check it (connect from a process that "
                "keeps running)",
                pid);
}

// Does not contact a file server, which may not respond, or may be the caller itself (FUSE).
bool IsDevice(int directory, const char* path, int flags, dev_t device) {
  struct statx status {};
  if (::statx(directory, path, flags | AT_STATX_DONT_SYNC, STATX_TYPE, &status) != 0) return false;
  return S_ISCHR(status.stx_mode) &&
         makedev(status.stx_rdev_major, status.stx_rdev_minor) == device;
}

bool IsOpenForUse(const FileDescriptor& file, dev_t device) {
  if (!file || !IsDevice(file.get(), "", AT_EMPTY_PATH, device)) return false;
  const int flags = ::fcntl(file.get(), F_GETFL);
  return flags != -1 && (flags & O_PATH) == 0 && (flags & O_ACCMODE) == O_RDWR;
}

// Descriptors through which the process seems to have the device open.
std::vector<int> Candidates(const Host& host, pid_t pid, dev_t device) {
  std::vector<int> candidates;
  std::error_code error;
  fs::directory_iterator entries(ProcessDirectory(host, pid) / "fd", error);
  for (int looked_at = 0;
       !error && entries != fs::directory_iterator() && looked_at < kMostDescriptors;
       entries.increment(error), ++looked_at) {
    const fs::path& link = entries->path();
    const auto fd = ParseNumber<int>(link.filename().native());
    // Following a link to a file on a server that does not respond would block.
    std::error_code unreadable;
    const bool is_in_dev =
        fs::read_symlink(link, unreadable).native().starts_with("/dev/") && !unreadable;
    if (fd && is_in_dev && IsDevice(AT_FDCWD, link.c_str(), 0, device)) candidates.push_back(*fd);
  }
  return candidates;
}

bool HasOpen(const Host& host, pid_t pid, dev_t device) {
  const std::vector<int> candidates = Candidates(host, pid, device);
  return std::any_of(candidates.begin(), candidates.end(),
                     [&](int fd) { return IsOpenForUse(host.duplicate(pid, fd), device); });
}

bool DevicesCgroupNames(const Host& host, const Caller& caller, dev_t device) {
  for (const Caller::Cgroup& cgroup : caller.cgroups) {
    const std::vector<std::string_view> controllers = Split(cgroup.controllers, ",");
    if (std::find(controllers.begin(), controllers.end(), "devices") == controllers.end()) continue;
    if (!IsWithinCgroup(cgroup.path, "/")) continue;
    const fs::path list = host.root / "sys/fs/cgroup/devices" /
                          fs::path(cgroup.path).relative_path() / "devices.list";
    const std::string text = ReadOrEmpty(list);
    const std::vector<std::string_view> lines = Split(text, "\n");
    return std::any_of(lines.begin(), lines.end(),
                       [&](std::string_view line) { return NamesDevice(line, device); });
  }
  return false;
}

std::optional<Right> GrantedRight(const Caller& caller, std::string_view uuid,
                                  std::span<const protocol::Grant> grants) {
  for (const protocol::Grant& grant : grants) {
    if (std::find(grant.gpus.begin(), grant.gpus.end(), uuid) == grant.gpus.end()) continue;
    if (grant.uid == caller.uid) return Right::kGrantToUser;
    for (const Caller::Cgroup& cgroup : caller.cgroups) {
      if (grant.cgroup && IsWithinCgroup(cgroup.path, *grant.cgroup)) return Right::kGrantToCgroup;
    }
  }
  return std::nullopt;
}

std::optional<Right> FindRight(const Host& host, const Caller& caller, const GpuFile& gpu,
                               std::span<const protocol::Grant> grants) {
  if (caller.is_administrator) return Right::kAdministrator;
  if (const std::optional<Right> granted = GrantedRight(caller, gpu.uuid, grants)) return granted;
  if (!gpu.device) return std::nullopt;
  if (DevicesCgroupNames(host, caller, *gpu.device)) return Right::kDevicesCgroup;
  if (HasOpen(host, caller.process.pid, *gpu.device)) return Right::kOpenDevice;
  return std::nullopt;
}

}  // namespace

Host ThisHost() {
  Host host;
  host.agent_uid = ::geteuid();
  host.duplicate = [](pid_t pid, int fd) {
    const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!process) return FileDescriptor();
    return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), fd, 0)));
  };
  return host;
}

Answer<Caller> Identify(const Host& host, const protocol::Peer& peer) {
  if (peer.pid <= 0) {
    return Refuse(Refusal::kNotAllowed,
                  "the agent cannot see the calling process (run the agent in the host's PID "
                  "namespace)");
  }
  const std::optional<std::uint64_t> started = StartTimeOf(host, peer.pid);
  if (!started) return Gone(peer.pid);
  Caller caller;
  caller.process = {peer.pid, *started};
  caller.uid = peer.uid;
  const std::string status = ReadOrEmpty(ProcessDirectory(host, peer.pid) / "status");
  caller.is_administrator = IsAdministrator(host, peer.pid, peer.uid, status);
  caller.cgroups = ParseCgroups(ReadOrEmpty(ProcessDirectory(host, peer.pid) / "cgroup"));
  // The line has the real, effective, saved and file system user ids.
  const std::vector<std::string_view> uids = StatusWords(status, "Uid");
  const auto effective_uid = uids.size() < 2 ? std::nullopt : ParseNumber<uid_t>(uids[1]);
  if (StartTimeOf(host, peer.pid) != started || !effective_uid) return Gone(peer.pid);
  if (*effective_uid != peer.uid) {
    return Refuse(Refusal::kNotAllowed,
                  "user {} connected, but process {} runs as user {} now (connect after changing "
                  "users)",
                  peer.uid, peer.pid, *effective_uid);
  }
  return caller;
}

Answer<Caller> LookAgain(const Host& host, const Caller& caller) {
  Answer<Caller> again = Identify(host, {caller.process.pid, caller.uid, 0});
  if (again && again->process != caller.process) return Gone(caller.process.pid);
  return again;
}

std::optional<dev_t> NvidiaDevice(std::optional<int> minor_number) {
  if (!minor_number || *minor_number < 0) return std::nullopt;
  return makedev(kNvidiaMajor, static_cast<unsigned>(*minor_number));
}

Answer<Right> RightTo(const Host& host, const Caller& caller, const GpuFile& gpu,
                      std::span<const protocol::Grant> grants) {
  const std::optional<Right> right = FindRight(host, caller, gpu, grants);
  if (StartTimeOf(host, caller.process.pid) != caller.process.started) {
    return Gone(caller.process.pid);
  }
  if (right) return *right;
  return Refuse(
      Refusal::kNotAllowed, "user {} may not lease {}: no grant allows it{}", caller.uid, gpu.uuid,
      gpu.device ? fmt::format(", its devices cgroup does not name character device {}:{}, and "
                               "process {} does not have that open (use the GPU first, as creating "
                               "a CUDA context does, or have root grant it)",
                               major(*gpu.device), minor(*gpu.device), caller.process.pid)
                 : ", and it has no device file that shows who uses it (have root grant it)");
}

bool IsWithinCgroup(std::string_view path, std::string_view ancestor) {
  if (!path.starts_with('/') || !ancestor.starts_with('/')) return false;
  const std::vector<std::string_view> names = Split(path, "/");
  const std::vector<std::string_view> above = Split(ancestor, "/");
  for (const auto& list : {names, above}) {
    if (std::find(list.begin(), list.end(), "..") != list.end()) return false;
  }
  return above.size() <= names.size() && std::equal(above.begin(), above.end(), names.begin());
}

bool NamesDevice(std::string_view line, dev_t device) {
  const std::vector<std::string_view> words = Split(line, " ");
  if (words.size() != 3 || words[0] != "c") return false;
  const std::size_t colon = words[1].find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view minor_text = words[1].substr(colon + 1);
  const bool is_minor_named =
      minor_text == "*" || ParseNumber<unsigned>(minor_text) == minor(device);
  return ParseNumber<unsigned>(words[1].substr(0, colon)) == major(device) && is_minor_named &&
         words[2].find('r') != std::string_view::npos &&
         words[2].find('w') != std::string_view::npos;
}

std::optional<std::uint64_t> StartTimeIn(std::string_view stat) {
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  // The first field after the name is field 3, the state.
  constexpr std::size_t kStartTime = 22 - 3;
  const std::vector<std::string_view> fields = Split(stat.substr(name_end + 1), " \n");
  if (fields.size() <= kStartTime) return std::nullopt;
  return ParseNumber<std::uint64_t>(fields[kStartTime]);
}

}  // namespace perseus::agent
