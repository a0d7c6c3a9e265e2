#include "perseus/simulation/trainer/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "perseus/base/system_cause.h"

namespace perseus::trainer {
namespace {

constexpr int kCannotRun = 127;

}  // namespace

Result<ChildProcess> ChildProcess::Launch(const Start& start) {
  std::vector<char*> words;
  for (const std::string& word : start.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return FailAs(ErrorKind::kSystem, "cannot start a process: {}", CauseAndRemedy(errno));
  }
  if (pid > 0) return ChildProcess(pid);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kCannotRun);  // The parent died before prctl.
  for (const int socket : start.sockets) fcntl(socket, F_SETFD, 0);
  for (const auto& [name, value] : start.environment) setenv(name.c_str(), value.c_str(), 1);
  execv(words.front(), words.data());
  _exit(kCannotRun);
}

ChildProcess::~ChildProcess() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::Send(int signal) const {
  if (pid_ != 0) kill(pid_, signal);
}

std::optional<std::string> ChildProcess::End() {
  if (pid_ == 0) return end_;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = 0;
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    end_ = fmt::format("was killed by signal {} ({}{})", signal, strsignal(signal),
                       signal == SIGKILL ? ": by a user, or because memory ran out" : "");
  } else if (WEXITSTATUS(status) == kCannotRun) {
    end_ = "could not be started (does the program still exist at its path?)";
  } else if (WEXITSTATUS(status) != 0) {
    end_ = fmt::format("ended with status {}", WEXITSTATUS(status));
  }
  return end_;
}

}  // namespace perseus::trainer
