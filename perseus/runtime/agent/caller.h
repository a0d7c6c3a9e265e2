// Identifies the process at the other end of a connection, and decides which GPUs it may lease.
//
// A process may lease a GPU if it could slow it down anyway, because the kernel lets it use the
// GPU, or if an administrator named it. The proofs, and how strong each is:
//
//  Administrator. User 0 with CAP_SYS_ADMIN in the agent's own user namespace. NVIDIA's driver uses
//    the same rule for who may set clocks. Root in an ordinary container lacks the capability, and
//    root of another user namespace has it there only. Also, an agent that does not run as root
//    obeys its own user, who could kill it anyway. (It does not obey root, whose namespace it
//    cannot see.)
//  Grant to a user. As strong as SO_PEERCRED, for which the kernel vouches.
//  Grant to a cgroup. It holds for the cgroup and all below it, in any hierarchy. It is as strong
//    as the right to write the granted cgroup's cgroup.procs, which batch systems reserve for root.
//  Devices cgroup (cgroup v1). The list names the GPU's device (or all of NVIDIA's) for reading and
//    writing. So the batch system or the container runtime gave the GPU to the process. "a *:* rwm"
//    is no proof. It only says that the process is not confined, and the permissions of the device
//    file may still exclude it.
//  Open device file (cgroup v2, whose device programs cannot be read). The kernel checked cgroup
//    and file permissions when the file was opened for reading and writing. Such a process uses the
//    GPU, or did. If the right is withdrawn later, the file stays open and the kernel still allows
//    its use, so the agent does, too. O_PATH opens a file without a check, and a descriptor can be
//    replaced between two reads of /proc. So the agent checks its own duplicate (pidfd_getfd, Linux
//    5.6; needs CAP_SYS_PTRACE). AMD's GPUs also have a file each (/dev/dri/renderD128). The device
//    number that is passed in decides.
//
// Races. A process number can be reused for another process at any time. Identify() and all checks
// below compare start times before and after, so that everything was read from one process. Whether
// this is the process that connected cannot be decided later: it may have died before Identify()
// ran, while a child kept its connection open. So call Identify() right after accept(). It also
// requires that the process belongs to the connection's user. What remains possible is that one
// process of a user is taken for another process of the same user. Later, LookAgain() refuses any
// other process.
//
// All reads of /proc and /sys go through Host::root, so that tests can provide their own.
//
// Thread safety: all functions may be called from any thread. RightTo() checks what the caller has
// open, and may have to close a duplicate of it. A caller who serves its own file system (FUSE) and
// replaces descriptors at the right moment can make that block. So call it where only that caller's
// requests wait, not in the event loop.
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

// The system on which callers run.
struct Host {
  std::filesystem::path root = "/";  // Contains proc/ and sys/.
  uid_t agent_uid = 0;
  // Returns the agent's own duplicate of descriptor `fd` of process `pid`, or an empty descriptor
  // if the kernel does not allow it. Tests replace it, because their processes do not exist.
  std::function<FileDescriptor(pid_t pid, int fd)> duplicate;
};
// The host of this process.
Host ThisHost();

struct Caller {
  ProcessId process;
  uid_t uid = 0;
  // A line of /proc/PID/cgroup.
  struct Cgroup {
    std::string controllers;  // Such as "devices" or "cpu,cpuacct". Empty: cgroup v2.
    std::string path;         // Such as "/slurm/uid_1000/job_17".
  };
  std::vector<Cgroup> cgroups;
  bool is_administrator = false;
};

// Identifies the process that connected. Refuses (kNotAllowed) a peer that is gone, that now runs
// as another user, or that the agent cannot see (another PID namespace).
Answer<Caller> Identify(const Host& host, const protocol::Peer& peer);
// The current state of the same process. Refuses (kNotAllowed) if it is gone.
Answer<Caller> LookAgain(const Host& host, const Caller& caller);

// A GPU as the kernel's permissions identify it.
struct GpuFile {
  std::string uuid;
  std::optional<dev_t> device;  // Of its device file. Empty if it has none (a virtual GPU).
};
// The device for a DeviceInfo::minor_number: /dev/nvidiaN is character device 195:N.
std::optional<dev_t> NvidiaDevice(std::optional<int> minor_number);

// Why a caller may lease a GPU.
enum class Right {
  kAdministrator,
  kGrantToUser,
  kGrantToCgroup,
  kDevicesCgroup,
  kOpenDevice,
};

// Returns the right by which the caller may lease the GPU. Refuses (kNotAllowed) with the ways to
// get a right. `caller` should be current (LookAgain).
Answer<Right> RightTo(const Host& host, const Caller& caller, const GpuFile& gpu,
                      std::span<const protocol::Grant> grants);

// Whether `path` is `ancestor` or below it, name by name: "/slurm/job_17" is not below
// "/slurm/job_1". Slashes at the end are ignored. False for paths with "..", which lead out of what
// this process can see.
bool IsWithinCgroup(std::string_view path, std::string_view ancestor);

// Whether a line of devices.list ("c 195:0 rw", "c 195:* rwm") allows reading and writing of
// exactly this device, or of all devices of its driver.
bool NamesDevice(std::string_view line, dev_t device);

// Field 22 of /proc/PID/stat, or nothing if the text is invalid. The name of the process comes
// before it, and may contain spaces, parentheses and line ends.
std::optional<std::uint64_t> StartTimeIn(std::string_view stat);

}  // namespace perseus::agent
