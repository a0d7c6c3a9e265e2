// Child processes that do not outlive the campaign.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <utility>

namespace perseus::faults {

class Process {
 public:
  Process() = default;
  // Runs `body` in a child, which ends with what it returns.
  static Process Start(const std::function<int()>& body);
  Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  Process& operator=(Process&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~Process();  // SIGKILL.

  pid_t pid() const { return pid_; }  // 0: none, or it was waited for.
  void Send(int signal) const;
  // Its end, as waitpid() tells it; -1 if there is none.
  int Wait();
  bool HasEnded(int* status);
  void Kill();  // And waits.

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  pid_t pid_ = 0;
};

// Runs `body` where everything that it starts dies with it, and where process numbers and mounts
// are its own, and ends with what it returns. Without root just runs it: some faults then leave
// something out, and say so.
int RunApart(const std::function<int()>& body);
// Whether this process is inside of a RunApart that could.
bool IsApart();

void NapMicroseconds(std::int64_t microseconds);

}  // namespace perseus::faults
