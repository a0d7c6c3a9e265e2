// Who is at the other end of a connection, and which GPUs it may lease.
//
// A GPU may be leased by whoever could slow it down anyway, since the kernel lets it use the GPU,
// or because an administrator named the caller. What each proof is worth:
//
//  Administrator. User 0 with CAP_SYS_ADMIN in the agent's own user namespace, which is how
//    NVIDIA's driver judges who may set clocks. Root in an ordinary container lacks the capability,
//    and one who made a user namespace of his own has it there only. Besides, an agent that does
//    not run as root obeys its own user, who could kill it just as well (and not root, whose
//    namespace such an agent cannot see).
//  Grant to a user. As good as SO_PEERCRED, which the kernel vouches for.
//  Grant to a cgroup. Holds for it and all below it, in any hierarchy. As good as the right to
//    write the granted cgroup's cgroup.procs, which batch systems keep to root.
//  Devices cgroup (cgroup v1). The list names the GPU's device (or all of NVIDIA's) for reading and
//    writing: the batch system or the container runtime gave it the GPU. "a *:* rwm" is no proof:
//    it says only that nobody confined the process, and the device file's permissions may still
//    keep it out.
//  The GPU's device file stands open (cgroup v2, whose device programs nobody can read). The kernel
//    checked cgroup and file permissions when it was opened for reading and writing. Such a process
//    uses the GPU already, or did: a right taken away afterwards is not seen while the file stays
//    open, and the kernel lets it go on, too. O_PATH opens anything unchecked, and a descriptor can
//    be exchanged between two looks at /proc; so the agent judges a duplicate of its own
//    (pidfd_getfd, Linux 5.6; needs CAP_SYS_PTRACE). AMD's GPUs have a file each as well
//    (/dev/dri/renderD128); what counts is the device number that is passed in.
//
// Races. A process number can be given to another process at any time. Identify() and all looks
// below compare start times before and after, so that what was seen was seen of one process.
// That this is the process that connected cannot be told afterwards: it may have died, its
// connection kept open by a child, before Identify() looked. Hence Identify() is to be called right
// after accept(), and it wants the process to be of the connection's user: what remains is one
// user's process taken for another of the same user. Afterwards LookAgain() refuses any other.
//
// All reading of /proc and /sys goes through Host::root, so that tests can build their own.
// Thread safety: all are plain functions, safe to call from any thread. RightTo() looks at what the
// caller has open, and may have to close a duplicate of it: a caller who serves its own file
// system (FUSE) and exchanges descriptors at the right moment can make that wait. Call it where
// only that caller's requests wait, not in the event loop.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/runtime/agent/answer.h"
#include "perseus/runtime/agent/owner.h"
#include "perseus/runtime/protocol/messages.h"
#include "perseus/runtime/protocol/unix_socket.h"

namespace perseus::agent {

// The system that callers run on.
struct Host {
  std::filesystem::path root = "/";  // Where proc/ and sys/ are.
  uid_t agent_uid = 0;
  // The agent's own descriptor of what `fd` of process `pid` has open; nothing if the kernel does
  // not give it. In tests there are no such processes.
  std::function<FileDescriptor(pid_t pid, int fd)> duplicate;
};
// The one that this process runs on.
Host ThisHost();

struct Caller {
  ProcessId process;
  uid_t uid = 0;
  // /proc/PID/cgroup.
  struct Cgroup {
    std::string controllers;  // "devices", "cpu,cpuacct"; empty: the hierarchy of cgroup v2.
    std::string path;         // "/slurm/uid_1000/job_17"
  };
  std::vector<Cgroup> cgroups;
  bool is_administrator = false;
};

// Who connected. Refuses (kNotAllowed) a peer that is gone, that is another user's process by now,
// or that the agent cannot see (another PID namespace).
Answer<Caller> Identify(const Host& host, const protocol::Peer& peer);
// The same process as it is now; refuses (kNotAllowed) if it is gone.
Answer<Caller> LookAgain(const Host& host, const Caller& caller);

// A GPU as the kernel's permissions know it.
struct GpuFile {
  std::string uuid;
  std::optional<dev_t> device;  // Of its device file; nothing if it has none (a virtual GPU).
};
// That of DeviceInfo::minor_number: /dev/nvidiaN is character device 195:N.
std::optional<dev_t> NvidiaDevice(std::optional<int> minor_number);

// By what right.
enum class Right {
  kAdministrator,
  kGrantToUser,
  kGrantToCgroup,
  kDevicesCgroup,
  kOpenDevice,
};

// By what right the caller may lease the GPU; refuses (kNotAllowed) with what would give it the
// right. `caller` should be fresh (LookAgain).
Answer<Right> RightTo(const Host& host, const Caller& caller, const GpuFile& gpu,
                      std::span<const protocol::Grant> grants);

// Whether `path` is `ancestor` or below it, name by name: "/slurm/job_17" is not below
// "/slurm/job_1". Slashes at the end mean nothing. Never of paths with "..", which lead out of
// what this process can see.
bool IsWithinCgroup(std::string_view path, std::string_view ancestor);

// Whether a line of devices.list ("c 195:0 rw", "c 195:* rwm") gives just this device, or all of
// its driver's, for reading and writing.
bool NamesDevice(std::string_view line, dev_t device);

// Field 22 of /proc/PID/stat; nothing if it is no such text. The process's name comes before it,
// and may hold spaces, parentheses and line ends.
std::optional<std::uint64_t> StartTimeIn(std::string_view stat);

}  // namespace perseus::agent
