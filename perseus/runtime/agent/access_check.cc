#include "perseus/runtime/agent/access_check.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "perseus/base/file_descriptor.h"
#include "perseus/runtime/agent/child_descriptors.h"

namespace perseus::agent {
namespace {

using SteadyClock = std::chrono::steady_clock;

// What the child reports: the step that failed, or an error number per device.
enum class ProbeStep : int { kDone, kJoinCgroup, kBecomeUser };

struct ProbeReport {
  ProbeStep step = ProbeStep::kDone;
  int error = 0;
  int cgroup = 0;  // kJoinCgroup: which.
};

// Everything that the child needs, prepared before fork(): a child of a process with threads may
// only make system calls.
struct ProbePlan {
  const Identity& identity;
  std::vector<const char*> cgroup_procs;
  std::vector<const char*> devices;
  std::vector<int>& errors;
  int pipe = -1;
};

// ---- In the child ----

int JoinCgroup(const char* procs) {
  const int file = ::open(procs, O_WRONLY | O_CLOEXEC);
  if (file < 0) return errno;
  const int error = ::write(file, "0", 1) == 1 ? 0 : errno;
  ::close(file);
  return error;
}

// The real user and group only, by which access(2) judges. The wrappers of the C library would
// change all threads, and take locks.
int BecomeUser(const Identity& identity) {
  if (::syscall(SYS_setgroups, identity.groups.size(), identity.groups.data()) != 0 ||
      ::syscall(SYS_setresgid, identity.gid, -1, -1) != 0 ||
      ::syscall(SYS_setresuid, identity.uid, -1, -1) != 0) {
    return errno;
  }
  return 0;
}

ProbeReport Probe(const ProbePlan& plan) {
  for (std::size_t i = 0; i < plan.cgroup_procs.size(); ++i) {
    if (const int error = JoinCgroup(plan.cgroup_procs[i]); error != 0) {
      return {ProbeStep::kJoinCgroup, error, static_cast<int>(i)};
    }
  }
  if (const int error = BecomeUser(plan.identity); error != 0) {
    return {ProbeStep::kBecomeUser, error};
  }
  for (std::size_t i = 0; i < plan.devices.size(); ++i) {
    plan.errors[i] = ::access(plan.devices[i], R_OK | W_OK) == 0 ? 0 : errno;
  }
  return {};
}

[[noreturn]] void RunProbe(const ProbePlan& plan) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  CloseAllDescriptorsBut({&plan.pipe, 1});
  const ProbeReport report = Probe(plan);
  // Less than PIPE_BUF, so each write is whole.
  (void)!::write(plan.pipe, &report, sizeof report);
  (void)!::write(plan.pipe, plan.errors.data(), plan.errors.size() * sizeof(int));
  ::_exit(0);
}

// ---- In the agent ----

tl::unexpected<Error> ProbeFailure(std::string_view what, int error) {
  return FailAs(ErrorKind::kSystem, "{}: {}", what, std::strerror(error));
}

// Fills `bytes`. False if the child ended before, or did not answer in time.
bool ReadInTime(int pipe, char* bytes, std::size_t size, SteadyClock::time_point deadline) {
  while (size > 0) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
    pollfd wanted{pipe, POLLIN, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = ::read(pipe, bytes, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

Result<std::vector<int>> CheckAccess(const Identity& identity,
                                     const std::vector<std::filesystem::path>& devices,
                                     std::chrono::milliseconds timeout) {
  const auto deadline = SteadyClock::now() + timeout;
  std::vector<int> errors(devices.size(), 0);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ProbeFailure("cannot make a pipe", errno);
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  ProbePlan plan{identity, {}, {}, errors, writing.get()};
  for (const auto& procs : identity.cgroup_procs) plan.cgroup_procs.push_back(procs.c_str());
  for (const auto& device : devices) plan.devices.push_back(device.c_str());

  const pid_t child = ::fork();
  if (child < 0) return ProbeFailure("cannot start a process", errno);
  if (child == 0) RunProbe(plan);
  writing = FileDescriptor();

  ProbeReport report;
  const bool is_whole =
      ReadInTime(reading.get(), reinterpret_cast<char*>(&report), sizeof report, deadline) &&
      ReadInTime(reading.get(), reinterpret_cast<char*>(errors.data()), errors.size() * sizeof(int),
                 deadline);
  ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!is_whole) {
    return FailAs(
        ErrorKind::kSystem,
        "a process in the cgroup of the caller did not answer within {} ms (is the cgroup "
        "frozen?)",
        timeout.count());
  }
  switch (report.step) {
    case ProbeStep::kDone:
      return errors;
    case ProbeStep::kJoinCgroup:
      return ProbeFailure(
          "cannot join " + identity.cgroup_procs[static_cast<std::size_t>(report.cgroup)].string(),
          report.error);
    case ProbeStep::kBecomeUser:
      return ProbeFailure(fmt::format("cannot become user {}", identity.uid), report.error);
  }
  return ProbeFailure("cannot read the answer", EIO);
}

}  // namespace perseus::agent
