// Other processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"

namespace perseus {

// Runs `command` without a shell: a program, which is searched along PATH, and its arguments.
// `input` is its standard input. Waits until the program ends, and returns its standard output.
// Fails with
//   kUnreachable  if the program is not installed
//   kSystem       if it cannot run, or its exit status is not 0; the message then has the first
//                 line of its standard error
Result<std::string> RunProgram(const std::vector<std::string>& command, const std::string& input);

// The command in the form that posix_spawn() and execv() need. Valid while the words exist.
std::vector<char*> ArgumentsOf(const std::vector<std::string>& command);

// The state of a process, from /proc/PID/stat and status.
struct ProcessState {
  // The start time, in clock ticks since boot. It identifies the process together with the process
  // id.
  std::uint64_t started = 0;
  // The process was killed (SIGKILL) or is ending, but still exists. The reason is one of three:
  // the kernel still closes its files, one of its threads is in an uninterruptible wait (state D),
  // or its parent has not called wait(). The process never runs its program again.
  bool is_ending = false;
};

// Returns the state of a process, or nullopt if the process does not exist. `root` contains the
// directory proc/.
std::optional<ProcessState> ReadProcessState(pid_t process,
                                             const std::filesystem::path& root = "/");

// Parses the texts of the two files. Returns nullopt if the texts do not describe a process. The
// name of the process in `stat` may contain spaces, parentheses and line ends.
std::optional<ProcessState> ParseProcessState(std::string_view stat, std::string_view status);

}  // namespace perseus
