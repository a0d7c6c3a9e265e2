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
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/process_state.h"
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

// How long the agent waits for a child.
class ChildWait {
 public:
  ChildWait(pid_t child, const AccessTimes& times)
      : child_(child),
        answer_(SteadyClock::now() + times.answer),
        longest_(SteadyClock::now() + times.longest) {}

  // How long to wait now, in milliseconds. Then ask IsOver().
  int Milliseconds() const {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(answer_ - SteadyClock::now()).count();
    return static_cast<int>(std::max<std::int64_t>(left, kLookAtChild.count()));
  }

  bool IsOver() {
    const auto now = SteadyClock::now();
    if (now < answer_) return false;
    if (now >= longest_) {
      got_no_core_ = true;
      return true;
    }
    idle_looks_ = WantsCore() ? 0 : idle_looks_ + 1;
    return idle_looks_ >= kMostIdleLooks;
  }

  // Whether the child still wanted a core when the longest time was over.
  bool got_no_core() const { return got_no_core_; }

 private:
  static constexpr std::chrono::milliseconds kLookAtChild{20};
  // A child that goes on may wait for a moment whenever the agent looks.
  static constexpr int kMostIdleLooks = 5;

  // Whether the child wants a core, or had one since the last call: schedstat has the time that it
  // ran and the time that it waited for a core.
  bool WantsCore() {
    const auto state = ReadProcessState(child_);
    auto ran = ReadFile(fmt::format("/proc/{}/schedstat", child_)).value_or("");
    const bool has_run = std::exchange(ran_, ran) != ran;
    return has_run || (state && state->is_runnable);
  }

  pid_t child_;
  SteadyClock::time_point answer_;
  SteadyClock::time_point longest_;
  std::string ran_;
  int idle_looks_ = 0;
  bool got_no_core_ = false;
};

// Fills `bytes`. False if the child ended before, or did not answer in time.
bool ReadInTime(int pipe, char* bytes, std::size_t size, ChildWait& wait) {
  while (size > 0) {
    pollfd wanted{pipe, POLLIN, 0};
    const int ready = ::poll(&wanted, 1, wait.Milliseconds());
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return false;
    if (ready == 0) {
      if (wait.IsOver()) return false;
      continue;
    }
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
                                     const AccessTimes& times) {
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
  ChildWait wait(child, times);
  const bool is_whole =
      ReadInTime(reading.get(), reinterpret_cast<char*>(&report), sizeof report, wait) &&
      ReadInTime(reading.get(), reinterpret_cast<char*>(errors.data()), errors.size() * sizeof(int),
                 wait);
  ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!is_whole && wait.got_no_core()) {
    return FailAs(ErrorKind::kSystem,
                  "a process in the cgroup of the caller did not answer within {} ms, because it "
                  "got no core (is the node overloaded, or the cgroup throttled? Try again)",
                  times.longest.count());
  }
  if (!is_whole) {
    return FailAs(
        ErrorKind::kSystem,
        "a process in the cgroup of the caller did not answer within {} ms (is the cgroup "
        "frozen?)",
        times.answer.count());
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
