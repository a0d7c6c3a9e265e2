// The state of threads and processes, as /proc shows it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/units.h"

namespace perseus::virtual_gpu {

struct ThreadState {
  char state = 0;             // As in /proc/PID/stat: 'R' runs, 'S' sleeps. 0: the thread is gone.
  int threads = 0;            // The number of threads of its process.
  std::uint64_t started = 0;  // Differs if another thread has the same number later.
};

// Opens /proc/PID/task/TID/stat. The file can be read again and again.
FileDescriptor OpenThreadState(pid_t process, pid_t thread);
ThreadState ReadThreadState(const FileDescriptor& file);

// Looks at the threads of a process, except the calling thread.
//
// To know that several processes slept at the same moment: read the CPU times of all, see all
// sleep, and read the same CPU times again. If one of them had run in between, its CPU time would
// be greater.
//
// A training framework has 60 threads that never run, and to look at one takes 4 us. So most calls
// of Sleeps() look only at the threads that ran during the last kPeriod calls. If another thread is
// woken, but has not yet run, such a call misses it once.
//
// Not thread-safe.
class ProcessState {
 public:
  explicit ProcessState(pid_t process) : process_(process) {}

  // Whether the thread still runs that Sleeps() found. A cheap check: most often, this is true.
  bool StillRuns();
  // The CPU time that the threads have used. 0 if the process is gone. In the calling process, only
  // threads count that Sleeps() has seen.
  Nanoseconds CpuTime() const;
  // A process that is gone sleeps.
  bool Sleeps();

 private:
  static constexpr int kPeriod = 500;  // A step of a small job takes about 100 calls.
  struct Thread {
    FileDescriptor state;
    std::optional<std::uint64_t> runs;  // How often it ran. Empty: the kernel does not count.
    bool is_quiet = false;
  };

  void FindThreads(bool is_period_over);
  bool IsAwake(pid_t id);

  pid_t process_;
  std::map<pid_t, Thread> threads_;
  FileDescriptor main_;   // The state of the main thread.
  int thread_count_ = 0;  // When threads_ was read.
  int looks_left_ = 0;    // Until threads_ is read again.
  pid_t last_awake_ = 0;
};

}  // namespace perseus::virtual_gpu
