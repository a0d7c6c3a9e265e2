// A child process that runs another program and does not outlive its parent.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::trainer {

class ChildProcess {
 public:
  struct Start {
    std::vector<std::string> command;  // The path of the program, and its arguments.
    // Variables that are added to the environment of this process.
    std::vector<std::pair<std::string, std::string>> environment;
    // Descriptors that the child keeps, although they are CLOEXEC.
    std::vector<int> sockets;
  };
  // Call it before this process has threads. The child receives SIGTERM when this process dies.
  static Result<ChildProcess> Launch(const Start& start);
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~ChildProcess();  // Kills the child with SIGKILL, and waits for its end.

  pid_t pid() const { return pid_; }  // 0 once End() has returned a value.
  void Send(int signal) const;
  // How the child ended, in words ("was killed by signal 9"), or nothing while it runs. An empty
  // text means success.
  std::optional<std::string> End();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_ = 0;
  std::string end_;
};

}  // namespace perseus::trainer
