// Whether the kernel would let a process of a user use a device. The kernel itself gives the
// answer.
//
// A short-lived child of the agent takes the place of that process: it joins the same cgroups,
// becomes the same user with the same groups, and calls access(2) on the agent's own path of the
// device. The kernel then applies what it would apply to the process: the file's permissions, the
// device programs of cgroup v2 (which nobody can read) and the device lists of cgroup v1.
//
// Rejected alternatives:
//  - Look at what the process has open (/proc/PID/fd, pidfd_getfd). This needs CAP_SYS_PTRACE and
//    CAP_DAC_READ_SEARCH, and reads up to a million descriptors. Also, closing a duplicate of a
//    file on the caller's own file system (FUSE) waits for the caller, and not even SIGKILL ends
//    it.
//  - Let the client send its descriptor of the device. Its fstat and close can wait in the same
//    way. A child without capabilities could receive it instead, but this child may wait forever,
//    too, so the limits below would stay. A descriptor proves less: an earlier job or another user
//    may have passed it on. And a client would have to open its GPU before it asks for a lease.
//  - open(2) in the child. Opening a GPU runs its driver, which may take seconds; access(2) makes
//    the same checks and runs no driver.
//
// The child touches no file, descriptor or memory of the process. The saved and effective user of
// the child remain those of the agent. So the process can neither trace the child nor read its
// memory.
//
// The child has no copies of the clients' sockets. So a check for one client never makes the child
// wait for another client (child_descriptors.h). The child writes its answer to shared memory.
//
// How long a check may take. On a loaded node the child may wait for seconds: for a core, for a
// page of the program that was evicted, for memory, or for the kernel's lock of all cgroups. The
// user causes none of these waits, and must not be refused because of them. But the user can also
// stop the child: the user can freeze or throttle the cgroup (cpu.max, memory.high), lower the
// child's priority, or stop the child. Such a wait looks the same as a wait on a loaded node. So
// one limit applies to all waits: kLongestAccessCheck. After this time the checker kills the child,
// and the agent refuses the request for now. A check occupies a thread of the queue, and only
// checks of the same user wait for the check (access_requests.h).
//
// A killed child may not end either. The freezer of cgroup v1 keeps the child until the cgroup is
// thawed. A process in a cgroup with very little CPU time needs some CPU time to end. So the
// checker waits at most kLongestEnd for the end of the child. Then the checker leaves the child,
// and checks nothing more for this user's account until the child has ended. So a user has at most
// one such child.
//
// What the check does not see: file systems that the process cannot see, and rules of security
// modules. For example, a container without /dev/nvidia0 may still have the right to use the
// device. Security modules know only the agent's own domain.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/base/result.h"

namespace perseus::agent {

// The identity that the child takes before it asks the kernel.
struct Identity {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  // cgroup.procs of each cgroup to join: the cgroup of v2, and the cgroup of v1's devices
  // controller. In a hierarchy without an entry, the child stays in the agent's own cgroup.
  std::vector<std::filesystem::path> cgroup_procs;
  uid_t account = 0;  // Caller::account.
};

// The longest time of a check. A client waits 5 s for its first lease, and asks again later.
inline constexpr std::chrono::milliseconds kLongestAccessCheck{10'000};
// The longest wait for the end of a child that was killed.
inline constexpr std::chrono::milliseconds kLongestEnd{1'000};

// Thread safe.
class AccessChecker {
 public:
  AccessChecker() = default;
  AccessChecker(const AccessChecker&) = delete;
  AccessChecker& operator=(const AccessChecker&) = delete;

  // Returns a number for each device. 0: `identity` may open the device for reading and writing.
  // Otherwise the error number (EACCES: the permissions of the file; EPERM: the cgroup; ENOENT: no
  // such device). If the kernel could not be asked, fails (kSystem) and says why. Takes some
  // milliseconds, and not much more than `longest` and kLongestEnd. Needs CAP_SETUID, CAP_SETGID,
  // and the right to write to cgroup.procs. If the user owns the cgroup, this right is
  // CAP_DAC_OVERRIDE.
  Result<std::vector<int>> Check(const Identity& identity,
                                 const std::vector<std::filesystem::path>& devices,
                                 std::chrono::milliseconds longest = kLongestAccessCheck);

  // Makes running checks fail soon, and later checks at once.
  void Stop() { is_stopped_ = true; }

 private:
  // Reaps the children that have ended meanwhile. Returns whether a child that was left for this
  // account still runs.
  bool HasLeftChild(uid_t account);
  // Kills the child and reaps it. If it does not end in time, leaves it.
  void End(pid_t child, uid_t account);

  std::atomic<bool> is_stopped_ = false;
  Mutex mutex_;
  std::multimap<uid_t, pid_t> left_ PERSEUS_GUARDED_BY(mutex_);
};

}  // namespace perseus::agent
