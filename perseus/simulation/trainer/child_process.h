// A child process of ours that runs another program, and does not outlive its parent.
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
    std::vector<std::string> command;                              // A path, and its arguments.
    std::vector<std::pair<std::string, std::string>> environment;  // Added to this process's.
    std::vector<int> sockets;  // Descriptors that the child keeps, though they are CLOEXEC.
  };
  // Call before there are threads. The child gets SIGTERM when this process dies.
  static Result<ChildProcess> Launch(const Start& start);
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~ChildProcess();  // SIGKILL.

  pid_t pid() const { return pid_; }  // 0: it ended, and was waited for.
  void Send(int signal) const;
  // How it ended, in words ("was killed by signal 9"), or nothing while it runs. Empty if it ended
  // well.
  std::optional<std::string> End();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_ = 0;
  std::string end_;
};

}  // namespace perseus::trainer
