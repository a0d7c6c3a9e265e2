// Whether the kernel would let a user's process use a device, asked of the kernel itself.
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
//    way.
//  - open(2) in the child. Opening a GPU runs its driver, which may take seconds; access(2) makes
//    the same checks and runs no driver.
//
// The child touches no file, descriptor or memory of the process. Its saved and effective user stay
// the agent's, so that the process can neither trace it nor read its memory.
//
// The child has no copies of clients' sockets, so that it never waits for one client in a check for
// another (child_descriptors.h). It answers in shared memory.
//
// How long it may take. On a loaded node the child may wait for seconds: for a core, for a page of
// the program that was evicted, for memory, or for the kernel's lock of all cgroups. The user
// causes none of these waits, and must not be refused for them. But the user's side can hold the
// child as well: freeze or throttle the cgroup (cpu.max, memory.high), lower the child's priority,
// stop it. These waits look the same as those of a loaded node, so one limit applies to all of
// them: kLongestAccessCheck. Then the child is killed, and the request is refused for now. A check
// holds a thread of the queue, and only checks of the same user wait for it (access_requests.h).
//
// A killed child may not end either: the freezer of cgroup v1 keeps it until the cgroup is thawed,
// and a process in a cgroup with very little CPU time needs some of it to end. So the checker waits
// at most kLongestEnd for the end of the child. Then it leaves the child, and checks nothing more
// for this user's account until the child has ended. So a user has at most one such child.
//
// What it does not see: file systems that the process cannot see (a container without /dev/nvidia0
// may still have the right to use it), and rules of security modules, which know only the agent's
// own domain.
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

// The process in whose place the kernel is asked.
struct Identity {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  // cgroup.procs of each cgroup to join: the one of cgroup v2, the one of v1's devices controller.
  // In a hierarchy without an entry, the child stays in the agent's own cgroup.
  std::vector<std::filesystem::path> cgroup_procs;
  uid_t account = 0;  // Caller::account.
};

// A client waits 5 s for its first lease, and asks again later.
inline constexpr std::chrono::milliseconds kLongestAccessCheck{10'000};
// For a child that was killed.
inline constexpr std::chrono::milliseconds kLongestEnd{1'000};

// Thread safe.
class AccessChecker {
 public:
  AccessChecker() = default;
  AccessChecker(const AccessChecker&) = delete;
  AccessChecker& operator=(const AccessChecker&) = delete;

  // For each device: 0 if `identity` may open it for reading and writing, otherwise the error
  // number (EACCES: the permissions of the file; EPERM: the cgroup; ENOENT: no such device). Fails
  // (kSystem) if the kernel could not be asked, and says why. Takes some milliseconds, and not much
  // more than `longest` and kLongestEnd. Needs CAP_SETUID and CAP_SETGID, and the right to write to
  // cgroup.procs (CAP_DAC_OVERRIDE, where the cgroup is the user's own).
  Result<std::vector<int>> Check(const Identity& identity,
                                 const std::vector<std::filesystem::path>& devices,
                                 std::chrono::milliseconds longest = kLongestAccessCheck);

  // Checks that run fail soon, and later ones at once.
  void Stop() { is_stopped_ = true; }

 private:
  // Reaps the children that have ended meanwhile.
  bool HasLeftChild(uid_t account);
  // Kills the child and reaps it, or leaves it.
  void End(pid_t child, uid_t account);

  std::atomic<bool> is_stopped_ = false;
  Mutex mutex_;
  std::multimap<uid_t, pid_t> left_ PERSEUS_GUARDED_BY(mutex_);
};

}  // namespace perseus::agent
