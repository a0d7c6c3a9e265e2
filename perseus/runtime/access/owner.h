// The holder of a lease.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace perseus::agent {

// Identifies a process, and distinguishes it from a later process with the same number. Two
// processes could only be confused if they had the same number and started within the same clock
// tick (1/100 s). For that, the kernel would have to use every process number between two ticks.
struct ProcessId {
  pid_t pid = 0;
  // The start time in clock ticks since boot: field 22 of /proc/PID/stat.
  std::uint64_t started = 0;
  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

struct Owner {
  ProcessId process;
  uid_t uid = 0;
  std::string job;  // The client's name of the job. 1 to protocol::kLongestName, printable.
  friend bool operator==(const Owner&, const Owner&) = default;
};

}  // namespace perseus::agent
