// The holder of a lease.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace perseus::agent {

// A process, told from a later one that got the same number. Two processes would have to share
// number and clock tick (1/100 s) to be taken for one another: the kernel would have to hand out
// every number of the machine once between two ticks.
struct ProcessId {
  pid_t pid = 0;
  // In clock ticks since boot: field 22 of /proc/PID/stat.
  std::uint64_t started = 0;
  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

struct Owner {
  ProcessId process;
  uid_t uid = 0;
  std::string job;  // As the client calls it; 1 to protocol::kLongestName, printable.
  friend bool operator==(const Owner&, const Owner&) = default;
};

}  // namespace perseus::agent
