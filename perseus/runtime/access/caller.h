// Who is at the other end of a connection, and by which right it may lease a GPU.
//
// A caller may lease a GPU if the kernel lets it use the GPU, because such a caller could slow the
// GPU down anyway, or if an administrator says so. What each proof is worth:
//
//  Administrator. User 0 with CAP_SYS_ADMIN in the agent's own user namespace: NVIDIA's driver
//    judges the same way who may set clocks. Root in an ordinary container lacks the capability,
//    and root in its own user namespace has it only in that namespace. An agent that does not run
//    as root obeys its own user, who could kill it as well (and not root, whose namespace such an
//    agent cannot see).
//  Grant to a user. As good as SO_PEERCRED, which the kernel vouches for.
//  Grant to a cgroup. Holds for the cgroup and all below it, in any hierarchy. As good as the right
//    to write to the cgroup's cgroup.procs, which batch systems keep to root.
//  Access to the device. The kernel's own answer for a process with the caller's user, groups and
//    cgroups (access_check.h). It holds for the moment of the lease. A user who loses the access
//    later keeps the lease, as a process keeps the GPU that it has open.
//
// Races. A process number can be given to another process at any time. Identify() and everything
// below compare start times before and after, so that all values come from the same process. Nobody
// can verify afterwards that this is the process that connected: that process may have died before
// Identify() looked, while a child keeps the connection open. So call Identify() right after
// accept(). It requires that the process belongs to the connection's user. So at worst, it takes
// one process of a user for another process of the same user. Later, LookAgain() refuses any other
// process.
//
// These functions open, read and close nothing of the caller's, whose file system (FUSE) could make
// the agent wait. /proc/PID/stat, status and ns wait for nobody. /proc/PID/cgroup waits for the
// kernel's lock of all cgroups, which a user can hold for a long time: by moving a process with
// many threads, or by giving controllers to many cgroups of the user's own. So only WithCgroups()
// and IdentityOf() read it, and the event loop calls neither. All reading of /proc and /sys goes
// through Host::root, so that tests can build their own.
//
// Thread safety: all are plain functions, safe to call from any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/runtime/access/access_check.h"
#include "perseus/runtime/access/answer.h"
#include "perseus/runtime/access/owner.h"
#include "perseus/runtime/protocol/messages/messages.h"
#include "perseus/runtime/protocol/messages/unix_socket.h"

namespace perseus::agent {

// The system on which callers run.
struct Host {
  std::filesystem::path root = "/";  // Contains proc/ and sys/.
  uid_t agent_uid = 0;
};
// The host of this process.
Host ThisHost();

struct Caller {
  ProcessId process;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  // A line of /proc/PID/cgroup.
  struct Cgroup {
    std::string controllers;  // "devices", "cpu,cpuacct"; empty: the hierarchy of cgroup v2.
    std::string path;         // "/slurm/uid_1000/job_17"
    friend bool operator==(const Cgroup&, const Cgroup&) = default;
  };
  std::vector<Cgroup> cgroups;  // Set by WithCgroups().
  bool is_administrator = false;
  // Who pays for what the caller costs the agent (user_budget.h). The agent sets it.
  uid_t account = 0;
};

// Identifies the process that connected. Refuses (kNotAllowed) a peer that is gone, that now runs
// as another user, or that the agent cannot see (another PID namespace).
Answer<Caller> Identify(const Host& host, const protocol::Peer& peer);
// The current state of the same process. Refuses (kNotAllowed) if it is gone.
Answer<Caller> LookAgain(const Host& host, const Caller& caller);

// The same process with its current cgroups. May wait. Refuses (kNotAllowed) if it is gone.
Answer<Caller> WithCgroups(const Host& host, Caller caller);

// Whether the caller is an administrator, or a grant names its user or its cgroup. Without the
// caller's cgroups, it misses grants to cgroups.
bool HasNamedRightTo(const Caller& caller, std::string_view uuid,
                     std::span<const protocol::Grant> grants);

// The place that a child takes to ask the kernel what the caller may use. Refuses (kUnavailable) if
// this process cannot see or join the caller's cgroups. Requires them. May wait.
Answer<Identity> IdentityOf(const Host& host, const Caller& caller);

// A GPU as the kernel's permissions know it.
struct GpuFile {
  std::string uuid;
  std::filesystem::path device;  // DeviceInfo::device_file; empty if it has none.
};
// The reply to a caller without a named right, if the kernel refuses the device with `error` (an
// error number; 0 if the GPU has no device file). Says what would give the caller the right.
protocol::Refused NoRightTo(const Caller& caller, const GpuFile& gpu, int error);

// Whether `path` is `ancestor` or below it, name by name: "/slurm/job_17" is not below
// "/slurm/job_1". Slashes at the end are ignored. False for paths with "..", which lead out of what
// this process can see.
bool IsWithinCgroup(std::string_view path, std::string_view ancestor);

}  // namespace perseus::agent
