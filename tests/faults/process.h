// Child processes that end when the campaign ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace perseus::faults {

class Process {
 public:
  Process() = default;
  // Runs `body` in a child process, which exits with the returned status.
  static Process Start(const std::function<int()>& body);
  Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  Process& operator=(Process&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~Process();  // Sends SIGKILL.

  pid_t pid() const { return pid_; }  // 0: there is no process, or it has ended.
  void Send(int signal) const;
  // Waits for the end and returns the status of waitpid(). Returns -1 if there is no process.
  int Wait();
  bool HasEnded(int* status);
  void Kill();  // Sends SIGKILL and waits for the end.

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  pid_t pid_ = 0;
};

// Runs `body` in new namespaces for process numbers and mounts, so that all processes of `body` end
// when `body` ends. Returns the status of `body`. Without root, only runs `body`. Some faults then
// do less, and report this.
int RunIsolated(const std::function<int()>& body);
// Whether this process runs in the namespaces of RunIsolated().
bool IsIsolated();

// Makes this process a process of an ordinary user, in these further groups. The process still ends
// with its parent. Requires root.
void BecomeUser(uid_t user, const std::vector<gid_t>& groups);

void SleepMicroseconds(std::int64_t microseconds);

}  // namespace perseus::faults
