#include "perseus/base/process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "perseus/base/system_cause.h"

extern char** environ;

namespace perseus {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
// A file without a name, which the system deletes when it is closed. With pipes instead, this
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
  return FailAs(ErrorKind::kSystem, "cannot run {}: {}", program, CauseAndRemedy(error));
}

}  // namespace

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

  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ::fileno(in.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ::fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ::fileno(errors.get()), STDERR_FILENO);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, program.c_str(), &actions, nullptr, arguments.data(), environ);
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

}  // namespace perseus
