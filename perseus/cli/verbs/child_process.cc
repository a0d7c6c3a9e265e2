#include "perseus/cli/verbs/child_process.h"

#include <poll.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "perseus/base/environment.h"
#include "perseus/base/excerpt.h"
#include "perseus/base/system_cause.h"
#include "perseus/cli/terminal/signals.h"

extern char** environ;

namespace perseus::cli {
namespace {

// Returns the environment of this process with these variables added or replaced.
std::vector<std::string> EnvironmentWith(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!changes.contains(text.substr(0, text.find('=')))) variables.push_back(text);
  }
  for (const auto& [name, value] : changes) variables.push_back(name + "=" + value);
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

void AddFile(posix_spawn_file_actions_t& actions, int descriptor, const FileDescriptor& file) {
  if (file) posix_spawn_file_actions_adddup2(&actions, file.get(), descriptor);
}

}  // namespace

std::filesystem::path OwnProgram() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

std::string FindProgram(const std::string& command) {
  if (command.find('/') != std::string::npos) {
    return access(command.c_str(), X_OK) == 0 ? command : "";
  }
  std::istringstream directories(EnvironmentOr("PATH"));
  for (std::string directory; std::getline(directories, directory, ':');) {
    const std::string file = (directory.empty() ? "." : directory) + "/" + command;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

std::vector<std::string> InterpreterOf(const std::string& file) {
  std::ifstream script(file);
  char begin[256] = {};  // Reads only this many bytes, because a binary file has no first line.
  script.read(begin, sizeof begin - 1);
  std::string line;
  std::istringstream lines(begin);
  if (!std::getline(lines, line) || !line.starts_with("#!")) return {};
  std::istringstream words(line.substr(2));
  return {std::istream_iterator<std::string>(words), {}};
}

Result<Child> Child::Start(const ChildSpec& spec) {
  std::vector<std::string> words = spec.command;
  std::vector<std::string> variables = EnvironmentWith(spec.environment);
  std::vector<char*> arguments = Pointers(words);
  std::vector<char*> environment = Pointers(variables);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  AddFile(actions, STDOUT_FILENO, spec.output);
  AddFile(actions, STDERR_FILENO, spec.errors);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  short flags = POSIX_SPAWN_SETSIGMASK;
  if (spec.group == ChildSpec::Group::kOwn) flags |= POSIX_SPAWN_SETPGROUP;
  posix_spawnattr_setflags(&attributes, flags);
  pid_t process = 0;
  const int error = posix_spawnp(&process, words.front().c_str(), &actions, &attributes,
                                 arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error == 0) return Child(process);
  const ErrorKind kind = error == ENOENT ? ErrorKind::kUnreachable : ErrorKind::kSystem;
  const std::string file = error == ENOENT ? FindProgram(words.front()) : "";
  if (const auto interpreter = InterpreterOf(file); !interpreter.empty()) {
    return FailAs(kind, "cannot run {}: its interpreter {} does not exist (correct its first line)",
                  file, Excerpt(interpreter.front()));
  }
  if (!file.empty()) {
    return FailAs(kind, "cannot run {}: its loader does not exist (is it built for this system?)",
                  file);
  }
  return SystemFail(error, fmt::format("cannot run {}", words.front()), Place{}, kind);
}

std::optional<int> Child::Status() {
  if (status_) return status_;
  int status = 0;
  const pid_t ended = waitpid(process_, &status, WNOHANG);
  if (ended == process_) {
    status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return status_;
}

// An ended child keeps its process ID until Status() has read its exit status. So the signal
// reaches no other process.
void Child::Signal(int number) const {
  if (!status_) kill(process_, number);
}

int Child::End(double patience_s) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_s);
  Signal(SIGTERM);
  while (!Status()) {
    if (std::chrono::steady_clock::now() > deadline) Signal(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return *status_;
}

Result<RunSignals> RunSignals::Take() {
  constexpr int kTaken[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
  RunSignals taken;
  PERSEUS_ASSIGN_OR_RETURN(taken.signals_, TakeSignals(kTaken));
  return taken;
}

std::vector<int> RunSignals::Wait(int timeout_ms) const {
  pollfd poll_signals{signals_.get(), POLLIN, 0};
  poll(&poll_signals, 1, timeout_ms);
  std::vector<int> numbers;
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    const bool is_of_terminal = info.ssi_code == SI_KERNEL;
    const auto number = static_cast<int>(info.ssi_signo);
    if (number != SIGCHLD && !is_of_terminal) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace perseus::cli
