#include "perseus/runtime/access/access_check.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <thread>

#include "perseus/runtime/access/child_descriptors.h"

namespace perseus::agent {
namespace {

using SteadyClock = std::chrono::steady_clock;

// The step that failed. kDone: no step failed.
enum class ProbeStep : int { kDone, kJoinCgroup, kBecomeUser };

// The child's report, in memory that the child shares with the agent. The `errors` are behind the
// report.
struct ProbeReport {
  std::atomic<int> is_complete;  // 0 or 1: a futex.
  ProbeStep step;
  int error;
  int cgroup;  // For kJoinCgroup: the index of the cgroup.
};
static_assert(std::atomic<int>::is_always_lock_free);

// Memory for a report and `devices` error numbers. At first, all bytes are zero.
class SharedReport {
 public:
  explicit SharedReport(std::size_t devices)
      : size_(sizeof(ProbeReport) + devices * sizeof(int)),
        memory_(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
  }
  ~SharedReport() {
    if (is_open()) ::munmap(memory_, size_);
  }
  SharedReport(const SharedReport&) = delete;
  SharedReport& operator=(const SharedReport&) = delete;

  bool is_open() const { return memory_ != MAP_FAILED; }
  ProbeReport& report() { return *static_cast<ProbeReport*>(memory_); }
  int* errors() { return reinterpret_cast<int*>(&report() + 1); }

 private:
  std::size_t size_;
  void* memory_;
};

// Everything that the child needs. It is prepared before the child starts, because a child of a
// process with threads may only make system calls.
struct ProbePlan {
  const Identity& identity;
  pid_t agent;
  std::vector<const char*> cgroup_procs;
  std::vector<const char*> devices;
  ProbeReport& report;
  int* errors;
};

// ---- In the child ----

int JoinCgroup(const char* procs) {
  const int file = ::open(procs, O_WRONLY | O_CLOEXEC);
  if (file < 0) return errno;
  const int error = ::write(file, "0", 1) == 1 ? 0 : errno;
  ::close(file);
  return error;
}

// Changes only the real user and group, which access(2) checks. The wrappers of the C library would
// change all threads, and take locks.
int BecomeUser(const Identity& identity) {
  if (::syscall(SYS_setgroups, identity.groups.size(), identity.groups.data()) != 0 ||
      ::syscall(SYS_setresgid, identity.gid, -1, -1) != 0 ||
      ::syscall(SYS_setresuid, identity.uid, -1, -1) != 0) {
    return errno;
  }
  return 0;
}

void Probe(const ProbePlan& plan) {
  ProbeReport& report = plan.report;
  for (std::size_t i = 0; i < plan.cgroup_procs.size(); ++i) {
    report.error = JoinCgroup(plan.cgroup_procs[i]);
    if (report.error == 0) continue;
    report.step = ProbeStep::kJoinCgroup;
    report.cgroup = static_cast<int>(i);
    return;
  }
  report.error = BecomeUser(plan.identity);
  if (report.error != 0) {
    report.step = ProbeStep::kBecomeUser;
    return;
  }
  for (std::size_t i = 0; i < plan.devices.size(); ++i) {
    plan.errors[i] = ::access(plan.devices[i], R_OK | W_OK) == 0 ? 0 : errno;
  }
}

[[noreturn]] void RunProbe(const ProbePlan& plan) {
  LeaveSharedDescriptors();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.agent) ::_exit(1);  // The agent died before prctl().
  Probe(plan);
  plan.report.is_complete.store(1);
  ::syscall(SYS_futex, &plan.report.is_complete, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  ::_exit(0);
}

// ---- In the agent ----

tl::unexpected<Error> ProbeFailure(std::string_view what, int error) {
  return FailAs(ErrorKind::kSystem, "{}: {}", what, std::strerror(error));
}

enum class ProbeEnd { kAnswered, kDied, kTooSlow, kStopped };

// Waits for the answer. If the child died, reaps it, and reaps no other child.
ProbeEnd WaitForAnswer(pid_t child, const ProbeReport& report, std::chrono::milliseconds longest,
                       const std::atomic<bool>& is_stopped) {
  // Neither the death of the child nor Stop() wakes up this thread.
  constexpr timespec kLookAgain{.tv_sec = 0, .tv_nsec = 100'000'000};
  const auto until = SteadyClock::now() + longest;
  while (report.is_complete.load() == 0) {
    if (is_stopped) return ProbeEnd::kStopped;
    if (SteadyClock::now() >= until) return ProbeEnd::kTooSlow;
    ::syscall(SYS_futex, &report.is_complete, FUTEX_WAIT, 0, &kLookAgain, nullptr, 0);
    // The child may have answered before it ended.
    if (::waitpid(child, nullptr, WNOHANG) == child) {
      return report.is_complete.load() != 0 ? ProbeEnd::kAnswered : ProbeEnd::kDied;
    }
  }
  return ProbeEnd::kAnswered;
}

// Reaps the child, if it ends in time. A child that was reaped before also counts as ended.
bool HasEndedWithin(pid_t child, std::chrono::milliseconds longest) {
  constexpr std::chrono::microseconds kLongestSleep{20'000};
  const auto until = SteadyClock::now() + longest;
  std::chrono::microseconds sleep{50};
  while (::waitpid(child, nullptr, WNOHANG) == 0) {
    if (SteadyClock::now() >= until) return false;
    std::this_thread::sleep_for(sleep);
    sleep = std::min(2 * sleep, kLongestSleep);
  }
  return true;
}

Result<std::vector<int>> AnswerOf(const Identity& identity, SharedReport& shared,
                                  std::size_t devices) {
  const ProbeReport& report = shared.report();
  switch (report.step) {
    case ProbeStep::kDone:
      return std::vector<int>(shared.errors(), shared.errors() + devices);
    case ProbeStep::kJoinCgroup:
      return ProbeFailure(
          "cannot join " + identity.cgroup_procs[static_cast<std::size_t>(report.cgroup)].string(),
          report.error);
    case ProbeStep::kBecomeUser:
      return ProbeFailure(fmt::format("cannot become user {}", identity.uid), report.error);
  }
  return ProbeFailure("cannot read the answer", EIO);
}

}  // namespace

bool AccessChecker::HasLeftChild(uid_t account) {
  const MutexLock lock(mutex_);
  std::erase_if(left_, [](const auto& left) {
    return HasEndedWithin(left.second, std::chrono::milliseconds(0));
  });
  return left_.contains(account);
}

void AccessChecker::End(pid_t child, uid_t account) {
  ::kill(child, SIGKILL);
  if (HasEndedWithin(child, kLongestEnd)) return;
  const MutexLock lock(mutex_);
  left_.emplace(account, child);
}

Result<std::vector<int>> AccessChecker::Check(const Identity& identity,
                                              const std::vector<std::filesystem::path>& devices,
                                              std::chrono::milliseconds longest) {
  if (HasLeftChild(identity.account)) {
    return FailAs(ErrorKind::kSystem,
                  "a process of an earlier check of user {} was killed and has not ended (is its "
                  "cgroup frozen or throttled? Thaw it, and try again)",
                  identity.uid);
  }
  SharedReport shared(devices.size());
  if (!shared.is_open()) return ProbeFailure("cannot share memory with a process", errno);
  const ProbeReport& report = shared.report();
  ProbePlan plan{identity, ::getpid(), {}, {}, shared.report(), shared.errors()};
  for (const auto& procs : identity.cgroup_procs) plan.cgroup_procs.push_back(procs.c_str());
  for (const auto& device : devices) plan.devices.push_back(device.c_str());

  const pid_t child = ForkWithSharedDescriptors();
  if (child < 0) return ProbeFailure("cannot start a process", errno);
  if (child == 0) RunProbe(plan);
  const ProbeEnd end = WaitForAnswer(child, report, longest, is_stopped_);
  End(child, identity.account);
  switch (end) {
    case ProbeEnd::kAnswered:
      return AnswerOf(identity, shared, devices.size());
    case ProbeEnd::kDied:
      return FailAs(ErrorKind::kSystem,
                    "a process in the cgroup of the caller was killed before it answered (is the "
                    "memory of the cgroup used up? Try again)");
    case ProbeEnd::kTooSlow:
      return FailAs(ErrorKind::kSystem,
                    "a process in the cgroup of the caller did not answer within {} ms (is the "
                    "cgroup frozen or throttled, or the node overloaded? Try again)",
                    longest.count());
    case ProbeEnd::kStopped:
      return FailAs(ErrorKind::kSystem, "the agent is stopping");
  }
  return ProbeFailure("cannot read the answer", EIO);
}

}  // namespace perseus::agent
