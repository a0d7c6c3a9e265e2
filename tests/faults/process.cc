#include "tests/faults/process.h"

#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <stdexcept>

namespace perseus::faults {
namespace {

bool is_isolated = false;

int ExitStatusOf(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int WaitFor(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// The first process of a PID namespace: the kernel kills all others when it ends.
int RunAsInit(const std::function<int()>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  if (mount("proc", "/proc", "proc", 0, nullptr) != 0) return body();
  const pid_t campaign = fork();
  if (campaign == 0) {
    is_isolated = true;
    std::exit(body());
  }
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended == campaign) return ExitStatusOf(status);
    if (ended < 0 && errno != EINTR) return 1;
  }
}

}  // namespace

Process Process::Start(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("cannot fork (too many processes?)");
  if (pid != 0) return Process(pid);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  int status = 1;
  try {
    status = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "a client failed: %s\n", error.what());
  }
  _exit(status);
}

Process::~Process() { Kill(); }

void Process::Send(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

int Process::Wait() {
  if (pid_ <= 0) return -1;
  return WaitFor(std::exchange(pid_, 0));
}

bool Process::HasEnded(int* status) {
  if (pid_ <= 0) return true;
  if (waitpid(pid_, status, WNOHANG) != pid_) return false;
  pid_ = 0;
  return true;
}

void Process::Kill() {
  Send(SIGKILL);
  Wait();
}

int RunIsolated(const std::function<int()>& body) {
  if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return body();
  std::fflush(nullptr);
  const pid_t first = fork();
  if (first == 0) _exit(RunAsInit(body));
  const int status = ExitStatusOf(WaitFor(first));
  // This process cannot fork any more. The leak sanitizer forks at exit, but _exit() skips the leak
  // sanitizer.
  _exit(status);
}

void BecomeUser(uid_t user, const std::vector<gid_t>& groups) {
  const gid_t group = user;
  const pid_t parent = getppid();
  if (setgroups(groups.size(), groups.data()) != 0 || setresgid(group, group, group) != 0 ||
      setresuid(user, user, user) != 0) {
    throw std::runtime_error("cannot become another user");
  }
  // The change of the user cleared the dumpable flag and the parent-death signal.
  prctl(PR_SET_DUMPABLE, 1);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
}

bool IsIsolated() { return is_isolated; }

void SleepMicroseconds(std::int64_t microseconds) {
  timespec left{.tv_sec = microseconds / 1'000'000, .tv_nsec = microseconds % 1'000'000 * 1000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

}  // namespace perseus::faults
