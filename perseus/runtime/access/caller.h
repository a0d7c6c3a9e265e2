// Who is at the other end of a connection, and by which right that caller may lease a GPU.
//
// A caller may lease a GPU if the kernel lets the caller use the GPU, or if an administrator allows
// the lease. A caller that may use the GPU could slow it down anyway. What each proof is worth:
//
//  - Administrator. User 0 with CAP_SYS_ADMIN in the agent's own user namespace. NVIDIA's driver
//    uses the same rule to decide who may set clocks. Root in an ordinary container lacks the
//    capability. Root in its own user namespace has the capability only in that namespace. An agent
//    that does not run as root obeys its own user, who could kill the agent as well. Such an agent
//    does not obey root, because it cannot see root's namespace.
//  - Grant to a user. As reliable as SO_PEERCRED, which the kernel guarantees.
//  - Grant to a cgroup. Applies to the cgroup and all cgroups below it, in any hierarchy. As
//    reliable as the protection of the cgroup's cgroup.procs: batch systems let only root write to
//    this file.
//  - Access to the device. The kernel's own answer for a process with the caller's user, groups and
//    cgroups (access_check.h). The answer is valid at the moment of the lease. A user who loses the
//    access later keeps the lease, as a process keeps the GPU that it has open.
//
// Races. The kernel can give a process number to another process at any time. Identify() and all
// functions below compare start times before and after, so that all values come from the same
// process. Nobody can verify afterwards that this is the process that connected. The process that
// connected may have died before Identify() looked, while a child keeps the connection open. So
// call Identify() right after accept(). Identify() requires that the process belongs to the
// connection's user. So in the worst case, Identify() takes one process of a user for another
// process of the same user. Later, LookAgain() refuses any other process.
//
// These functions open, read and close no file of the caller, because the caller's file system
// (FUSE) could make the agent wait. Reading /proc/PID/stat, status and ns never waits. Reading
// /proc/PID/cgroup waits for the kernel's lock of all cgroups. A user can hold this lock for a long
// time: by moving a process with many threads, or by giving controllers to many of the user's own
// cgroups. So only WithCgroups() and IdentityOf() read this file, and the event loop calls neither
// function. All reading of /proc and /sys uses Host::root, so that tests can build their own.
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
// The host on which this process runs.
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
  // The account that pays for what the caller costs the agent (user_budget.h). The agent sets it.
  uid_t account = 0;
};

// Identifies the process that connected. Refuses (kNotAllowed) the peer if it has ended, now runs
// as another user, or is in another PID namespace, where the agent cannot see it.
Answer<Caller> Identify(const Host& host, const protocol::Peer& peer);
// Returns the current state of the same process. Refuses (kNotAllowed) if the process has ended.
Answer<Caller> LookAgain(const Host& host, const Caller& caller);

// Returns the same process with its current cgroups. May wait. Refuses (kNotAllowed) if the process
// has ended.
Answer<Caller> WithCgroups(const Host& host, Caller caller);

// Whether the caller is an administrator, or a grant names the caller's user or cgroup. If the
// caller's cgroups are not set, misses grants to cgroups.
bool HasNamedRightTo(const Caller& caller, std::string_view uuid,
                     std::span<const protocol::Grant> grants);

// The identity that a child takes to ask the kernel what the caller may use. Refuses (kUnavailable)
// if this process cannot see or join the caller's cgroups. Requires that the caller's cgroups are
// set. May wait.
Answer<Identity> IdentityOf(const Host& host, const Caller& caller);

// A GPU, and the device file to which the kernel's permissions apply.
struct GpuFile {
  std::string uuid;
  std::filesystem::path device;  // DeviceInfo::device_file. Empty: the GPU has none.
};
// The reply to a caller without a named right, if the kernel refuses the device with `error`.
// `error` is an error number, or 0 if the GPU has no device file. The reply says what would give
// the caller the right.
protocol::Refused NoRightTo(const Caller& caller, const GpuFile& gpu, int error);

// Whether `path` is `ancestor` or is below it. Compares whole names: "/slurm/job_17" is not below
// "/slurm/job_1". Ignores slashes at the end. False for a path with "..", because such a path leads
// out of what this process can see.
bool IsWithinCgroup(std::string_view path, std::string_view ancestor);

}  // namespace perseus::agent
