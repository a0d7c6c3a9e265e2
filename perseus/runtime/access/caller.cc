#include "perseus/runtime/access/caller.h"

#include <linux/capability.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"
#include "perseus/base/number.h"
#include "perseus/base/process.h"

namespace perseus::agent {
namespace {

namespace fs = std::filesystem;
using protocol::Refusal;

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
// its end belongs to a cgroup that no longer exists.
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
  const auto state = ReadProcessState(pid, host.root);
  return state ? std::optional(state->started) : std::nullopt;
}

tl::unexpected<protocol::Refused> Gone(pid_t pid) {
  return Refuse(Refusal::kNotAllowed,
                "process {} ended before the agent could check it (connect from a process that "
                "keeps running)",
                pid);
}

bool HasController(const Caller::Cgroup& cgroup, std::string_view name) {
  const std::vector<std::string_view> controllers = Split(cgroup.controllers, ",");
  return std::find(controllers.begin(), controllers.end(), name) != controllers.end();
}

// The directory of the hierarchy: cgroup v2 alone, v2 beside v1, or v1's devices controller.
// nullopt if the hierarchy is not mounted.
std::optional<fs::path> HierarchyOf(const Host& host, const Caller::Cgroup& cgroup) {
  const fs::path mounted = host.root / "sys/fs/cgroup";
  std::error_code error;
  if (!cgroup.controllers.empty()) {
    return fs::is_directory(mounted / "devices", error) ? std::optional(mounted / "devices")
                                                        : std::nullopt;
  }
  for (const fs::path& directory : {mounted, mounted / "unified"}) {
    if (fs::exists(directory / "cgroup.controllers", error)) return directory;
  }
  return std::nullopt;
}

tl::unexpected<protocol::Refused> CannotSeeCgroup(const Caller& caller,
                                                  const Caller::Cgroup& cgroup,
                                                  std::string_view remedy) {
  return Refuse(
      Refusal::kUnavailable,
      "cannot check which GPUs process {} may use: its cgroup {} is not visible here ({}, "
      "or grant the GPU with perseus gpu grant)",
      caller.process.pid, Excerpt(cgroup.path), remedy);
}

}  // namespace

Host ThisHost() {
  Host host;
  host.agent_uid = ::geteuid();
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
  // The line has the real, effective, saved and file system user ids.
  const std::vector<std::string_view> uids = StatusWords(status, "Uid");
  const auto effective_uid = uids.size() < 2 ? std::nullopt : ParseNumber<uid_t>(uids[1]);
  const std::vector<std::string_view> gids = StatusWords(status, "Gid");
  const auto effective_gid = gids.size() < 2 ? std::nullopt : ParseNumber<gid_t>(gids[1]);
  if (StartTimeOf(host, peer.pid) != started || !effective_uid || !effective_gid) {
    return Gone(peer.pid);
  }
  if (*effective_uid != peer.uid) {
    return Refuse(Refusal::kNotAllowed,
                  "user {} connected, but process {} runs as user {} now (connect after changing "
                  "users)",
                  peer.uid, peer.pid, *effective_uid);
  }
  caller.gid = *effective_gid;
  for (const std::string_view word : StatusWords(status, "Groups")) {
    if (const auto group = ParseNumber<gid_t>(word)) caller.groups.push_back(*group);
  }
  return caller;
}

Answer<Caller> LookAgain(const Host& host, const Caller& caller) {
  Answer<Caller> again = Identify(host, {caller.process.pid, caller.uid, 0});
  if (again && again->process != caller.process) return Gone(caller.process.pid);
  if (again) again->account = caller.account;
  return again;
}

Answer<Caller> WithCgroups(const Host& host, Caller caller) {
  const pid_t pid = caller.process.pid;
  caller.cgroups = ParseCgroups(ReadOrEmpty(ProcessDirectory(host, pid) / "cgroup"));
  if (StartTimeOf(host, pid) != caller.process.started) return Gone(pid);
  return caller;
}

bool HasNamedRightTo(const Caller& caller, std::string_view uuid,
                     std::span<const protocol::Grant> grants) {
  return caller.is_administrator || std::ranges::any_of(grants, [&](const protocol::Grant& grant) {
           if (std::ranges::find(grant.gpus, uuid) == grant.gpus.end()) return false;
           return grant.uid == caller.uid ||
                  std::ranges::any_of(caller.cgroups, [&](const Caller::Cgroup& cgroup) {
                    return grant.cgroup && IsWithinCgroup(cgroup.path, *grant.cgroup);
                  });
         });
}

Answer<Identity> IdentityOf(const Host& host, const Caller& caller) {
  Identity identity{caller.uid, caller.gid, caller.groups, {}, caller.account};
  const std::vector<Caller::Cgroup> own = ParseCgroups(ReadOrEmpty(host.root / "proc/self/cgroup"));
  for (const Caller::Cgroup& cgroup : caller.cgroups) {
    // Only cgroup v2 and the devices controller of v1 have rules for devices.
    if (!cgroup.controllers.empty() && !HasController(cgroup, "devices")) continue;
    if (std::find(own.begin(), own.end(), cgroup) != own.end()) continue;
    // A path with ".." leads out of the agent's own cgroup namespace.
    if (!IsWithinCgroup(cgroup.path, "/")) {
      return CannotSeeCgroup(caller, cgroup, "run the agent in the cgroup namespace of the host");
    }
    const std::optional<fs::path> hierarchy = HierarchyOf(host, cgroup);
    if (!hierarchy) {
      return CannotSeeCgroup(caller, cgroup, "mount the host's /sys/fs/cgroup for the agent");
    }
    identity.cgroup_procs.push_back(*hierarchy / fs::path(cgroup.path).relative_path() /
                                    "cgroup.procs");
  }
  return identity;
}

protocol::Refused NoRightTo(const Caller& caller, const GpuFile& gpu, int error) {
  const auto refused = [&](const std::string& why, std::string_view remedy) {
    return protocol::Refused{
        Refusal::kNotAllowed,
        fmt::format("user {} may not lease {}: {} ({}perseus gpu grant {} --uid {}, as root)",
                    caller.uid, gpu.uuid, why, remedy, gpu.uuid, caller.uid)};
  };
  if (gpu.device.empty()) return refused("it has no device file, and no grant names the user", "");
  const std::string device = gpu.device.string();
  switch (error) {
    case EPERM:
      return refused(
          fmt::format("the cgroup of process {} does not give it {}", caller.process.pid, device),
          "request the GPU from the batch system, or ");
    case EACCES:
      return refused(fmt::format("the permissions of {} do not let the user open it", device),
                     "add the user to the group of the file, or ");
    default:
      return refused(fmt::format("{}: {}", device, std::generic_category().message(error)), "");
  }
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

}  // namespace perseus::agent
