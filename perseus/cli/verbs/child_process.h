// Programs that `perseus run` starts: the training, and the verbs of Perseus beside it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus::cli {

struct ChildSpec {
  std::vector<std::string> command;  // A program, searched along PATH, and its arguments.
  // Variables that are set in addition to the environment of this process.
  std::map<std::string, std::string> environment;
  // The standard output and standard error of the child. Empty: the streams of this process.
  FileDescriptor output;
  FileDescriptor errors;
  // The process group of the child. The terminal sends Ctrl-C only to the group in the foreground.
  enum class Group { kOfParent, kOwn } group = Group::kOfParent;
};

// Returns the file of this program.
std::filesystem::path OwnProgram();
// Returns the file that the command runs, searched along PATH. Empty if no such file exists.
std::string FindProgram(const std::string& command);
// Returns the words after "#!" in the first line of a script. Empty if the file is no script.
std::vector<std::string> InterpreterOf(const std::string& file);

class Child {
 public:
  // Fails (kUnreachable) if the program does not exist. Fails (kSystem) if the program cannot run.
  // The child has the signal mask of this process before EndSignals or RunSignals blocked signals.
  static Result<Child> Start(const ChildSpec& spec);

  // Returns the exit status, or 128 + the signal that killed the child. Empty while the child runs.
  std::optional<int> Status();
  void Signal(int number) const;
  // Sends SIGTERM, and SIGKILL after `patience_s`. Waits for the end of the process.
  int End(double patience_s);

 private:
  explicit Child(pid_t process) : process_(process) {}
  pid_t process_ = 0;
  std::optional<int> status_;
};

// Blocks SIGCHLD and the signals that `perseus run` passes on, and waits for them.
class RunSignals {
 public:
  static Result<RunSignals> Take();
  // Waits for a signal, at most this long. Returns the signals to pass on to the training. A signal
  // of the terminal (Ctrl-C) is not among them, because it has already reached the training.
  std::vector<int> Wait(int timeout_ms) const;

 private:
  FileDescriptor signals_;
};

}  // namespace perseus::cli
