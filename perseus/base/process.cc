#include "perseus/base/process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>

#include "perseus/base/file.h"
#include "perseus/base/system_cause.h"

namespace perseus {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
// A file without a name. The system deletes it when it is closed. With pipes instead of files, this
// process would have to read and write at the same time.
using ScratchFile = std::unique_ptr<std::FILE, CloseFile>;

std::string ReadAll(std::FILE* file) {
  std::string text;
  char buffer[1 << 16];
  std::rewind(file);
  while (const std::size_t size = std::fread(buffer, 1, sizeof buffer, file)) {
    text.append(buffer, size);
  }
  return text;
}

tl::unexpected<Error> SystemFailure(const std::string& program, int error) {
  return SystemFail(error, fmt::format("cannot run {}", program));
}

// Fields of /proc/PID/stat.
constexpr int kFlags = 9;
constexpr int kStartTime = 22;
constexpr std::uint64_t kIsExiting = 4;  // PF_EXITING, a bit of field kFlags.

// The number in field `wanted`. `fields` begin at field 3, after the name.
std::optional<std::uint64_t> NumberIn(std::string_view fields, int wanted) {
  for (int field = 3; field < wanted; ++field) {
    const std::size_t space = fields.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    fields.remove_prefix(space + 1);
  }
  std::uint64_t number = 0;
  const char* end = fields.data() + fields.size();
  const auto [rest, error] = std::from_chars(fields.data(), end, number);
  const bool is_whole = rest == end || *rest == ' ' || *rest == '\n';
  return error == std::errc() && is_whole ? std::optional(number) : std::nullopt;
}

// Whether a SIGKILL is pending. `key` is "SigPnd" (for the first thread) or "ShdPnd" (for the whole
// process).
bool HasPendingKill(std::string_view status, std::string_view key) {
  const std::size_t at = status.find("\n" + std::string(key) + ":");
  if (at == std::string_view::npos) return false;
  const std::size_t digits = status.find_first_not_of("\t ", at + key.size() + 2);
  if (digits == std::string_view::npos) return false;
  std::uint64_t pending = 0;
  std::from_chars(status.data() + digits, status.data() + status.size(), pending, 16);
  return (pending >> (SIGKILL - 1) & 1) != 0;
}

}  // namespace

std::vector<char*> ArgumentsOf(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  return arguments;
}

Result<std::string> RunProgram(const std::vector<std::string>& command, const std::string& input) {
  const std::string& program = command.front();
  const ScratchFile in(std::tmpfile());
  const ScratchFile out(std::tmpfile());
  const ScratchFile errors(std::tmpfile());
  if (!in || !out || !errors) return SystemFailure(program, errno);
  if (std::fwrite(input.data(), 1, input.size(), in.get()) != input.size() ||
      std::fflush(in.get()) != 0) {
    return SystemFailure(program, errno);
  }
  std::rewind(in.get());

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ::fileno(in.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ::fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ::fileno(errors.get()), STDERR_FILENO);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, program.c_str(), &actions, nullptr,
                                   ArgumentsOf(command).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) {
    return FailAs(ErrorKind::kUnreachable, "{} is not installed", program);
  }
  if (error != 0) return SystemFailure(program, error);

  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return SystemFailure(program, errno);
  }
  if (WIFSIGNALED(status)) {
    return FailAs(ErrorKind::kSystem, "{} was killed by signal {}", program, WTERMSIG(status));
  }
  if (WEXITSTATUS(status) != 0) {
    const std::string text = ReadAll(errors.get());
    return FailAs(ErrorKind::kSystem, "{} failed: {}", program, text.substr(0, text.find('\n')));
  }
  return ReadAll(out.get());
}

std::optional<ProcessState> ParseProcessState(std::string_view stat, std::string_view status) {
  const std::size_t name_end = stat.rfind(") ");
  if (name_end == std::string_view::npos || name_end + 2 >= stat.size()) return std::nullopt;
  const std::string_view fields = stat.substr(name_end + 2);
  const auto started = NumberIn(fields, kStartTime);
  if (!started) return std::nullopt;
  // The state may be Z because the first thread has ended, while another thread cannot end.
  const char state = stat[name_end + 2];
  return ProcessState{.started = *started,
                      .is_ending = state == 'Z' || state == 'X' ||
                                   (NumberIn(fields, kFlags).value_or(0) & kIsExiting) != 0 ||
                                   HasPendingKill(status, "SigPnd") ||
                                   HasPendingKill(status, "ShdPnd")};
}

std::optional<ProcessState> ReadProcessState(pid_t process, const std::filesystem::path& root) {
  const std::filesystem::path directory = root / "proc" / std::to_string(process);
  const auto stat = ReadFile(directory / "stat");
  if (!stat) return std::nullopt;
  const auto status = ReadFile(directory / "status");
  return ParseProcessState(*stat, status ? *status : std::string());
}

}  // namespace perseus
