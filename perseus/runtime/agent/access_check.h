// Whether the kernel would let a user's process use a device, asked of the kernel itself.
//
// A short-lived child of the agent takes the place of that process: it joins the same cgroups,
// becomes the same user with the same groups, and calls access(2) on the agent's own path of the
// device. The kernel then applies what it would apply to the process: the file's permissions, the
// device programs of cgroup v2 (which nobody can read) and the device lists of cgroup v1.
//
// Rivals, and why they lost:
//  - Look at what the process has open (/proc/PID/fd, pidfd_getfd). This needs CAP_SYS_PTRACE and
//    CAP_DAC_READ_SEARCH, reads up to a million descriptors, and closing a duplicate of a file of
//    the caller's own file system (FUSE) waits for the caller: an uninterruptible wait that not
//    even SIGKILL ends.
//  - Let the client send its descriptor of the device. fstat and close of it can wait the same way.
//  - open(2) in the child. Opening a GPU runs its driver, which may take seconds; access(2) makes
//    the same checks and runs no driver.
//
// The child touches no file, descriptor or memory of the process. Its saved and effective user stay
// the agent's, so that the process can neither trace it nor read its memory; it may send it
// signals, which only makes the check fail. If the cgroup is frozen, the child freezes with it, and
// is killed after AccessTimes::answer.
//
// On a node whose cores are all busy, the child may wait for a core for seconds. That says nothing
// of the user, who must not be refused for it. So while the child runs or waits for a core, it has
// until AccessTimes::longest. A user can throttle the cgroup (cpu.max) such that the child only
// waits. That holds a thread of the queue for this longer time, and only checks of the same user
// wait for it.
//
// What it does not see: file systems that the process cannot see (a container without /dev/nvidia0
// may still have the right to use it), and rules of security modules, which know the agent's
// own domain only.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::agent {

// The process in whose place the kernel is asked.
struct Identity {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  // cgroup.procs of each cgroup to join: the one of cgroup v2, the one of v1's devices controller.
  // The child is in the agent's own cgroup where none is named.
  std::vector<std::filesystem::path> cgroup_procs;
};

struct AccessTimes {
  // Less than a client waits for its lease.
  std::chrono::milliseconds answer{3'000};
  // While the child wants a core. The client asks again later.
  std::chrono::milliseconds longest{10'000};
};

// For each device: 0 if `identity` may open it for reading and writing, otherwise the error number
// (EACCES: the permissions of the file; EPERM: the cgroup; ENOENT: no such device).
// Fails (kSystem) if the kernel could not be asked, and says why. Takes some milliseconds, and at
// most about the given times. Needs CAP_SETUID and CAP_SETGID, and the right to write to
// cgroup.procs (CAP_DAC_OVERRIDE, where the cgroup is the user's own). Thread safe.
Result<std::vector<int>> CheckAccess(const Identity& identity,
                                     const std::vector<std::filesystem::path>& devices,
                                     const AccessTimes& times = {});

}  // namespace perseus::agent
