// What the kernel says of a process: /proc/PID/stat and status.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace perseus {

struct ProcessState {
  // In clock ticks since boot. With the process id it identifies the process.
  std::uint64_t started = 0;
  // The process was killed (SIGKILL) or ends, and is not gone: the kernel still closes its files, a
  // thread of it is in an uninterruptible wait (state D), or nobody has waited for it. It never
  // runs its program again.
  bool is_ending = false;
};

// Nothing if there is no such process. `root`: where proc/ is.
std::optional<ProcessState> ReadProcessState(pid_t process,
                                             const std::filesystem::path& root = "/");

// Nothing if the texts are not those of a process. The name of the process in `stat` may hold
// spaces, parentheses and line ends.
std::optional<ProcessState> ParseProcessState(std::string_view stat, std::string_view status);

}  // namespace perseus
