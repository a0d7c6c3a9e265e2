#include "perseus/runtime/client/own_agent.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "perseus/base/environment.h"
#include "perseus/base/file.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/process.h"
#include "perseus/base/system_cause.h"
#include "perseus/runtime/protocol/messages/unix_socket.h"

extern char** environ;

namespace perseus::client {
namespace {

constexpr auto kOwnAgentTimeout = std::chrono::seconds(5);
constexpr auto kNap = std::chrono::milliseconds(20);
// The agent ends this long after its last client. A script that starts one job after another keeps
// the agent between its jobs.
constexpr const char* kIdleSeconds = "10";

bool Listens(const std::filesystem::path& socket) { return protocol::Connect(socket).has_value(); }

// Returns a directory that only this user can access: its files decide where clocks are requested.
Result<std::filesystem::path> OwnDirectory() {
  const std::string runtime = EnvironmentOr("XDG_RUNTIME_DIR");
  const std::filesystem::path path =
      runtime.empty() ? std::filesystem::path("/tmp/perseus-" + std::to_string(::getuid()))
                      : std::filesystem::path(runtime) / "perseus";
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return FailAs(ErrorKind::kSystem,
                  "no agent of one's own: cannot make {}: {} (set "
                  "XDG_RUNTIME_DIR to a directory of yours)",
                  path.string(), std::strerror(errno));
  }
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
      status.st_uid != ::geteuid() || (status.st_mode & 077) != 0) {
    return FailAs(ErrorKind::kSystem,
                  "no agent of one's own: {} is not a directory of this user's "
                  "alone (remove it, or set XDG_RUNTIME_DIR to another)",
                  path.string());
  }
  return path;
}

// Returns PERSEUS_PROGRAM, or the program that was installed with this library, or that in PATH.
std::string Program() {
  if (std::string chosen = EnvironmentOr("PERSEUS_PROGRAM"); !chosen.empty()) return chosen;
  Dl_info library{};
  if (::dladdr(reinterpret_cast<const void*>(&FindOrStartOwnAgent), &library) != 0 &&
      library.dli_fname != nullptr) {
    const std::filesystem::path directory = std::filesystem::path(library.dli_fname).parent_path();
    // lib/, or lib/x86_64-linux-gnu/.
    for (const char* up : {"..", "../.."}) {
      const std::filesystem::path program = directory / up / "bin" / "perseus";
      if (::access(program.c_str(), X_OK) == 0) return program.string();
    }
  }
  return "perseus";
}

// Unlocks the file before it closes it. Otherwise, a child that was forked meanwhile would keep the
// lock.
struct StartLock {
  explicit StartLock(FileDescriptor from) : file(std::move(from)) {}
  StartLock(StartLock&&) = default;
  StartLock& operator=(StartLock&&) = delete;
  ~StartLock() {
    if (file) ::flock(file.get(), LOCK_UN);
  }
  FileDescriptor file;
};

// The process that starts the agent holds this lock.
Result<StartLock> LockStart(const std::filesystem::path& path,
                            std::chrono::steady_clock::time_point until) {
  FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  while (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() > until) {
      return FailAs(ErrorKind::kSystem,
                    "no agent of one's own: somebody holds {} and starts none "
                    "(end that process)",
                    path.string());
    }
    std::this_thread::sleep_for(kNap);
  }
  if (lock) return StartLock(std::move(lock));
  return SystemFail(errno, fmt::format("no agent of one's own: cannot open {}", path.string()));
}

// Runs the command in a session of its own, and not as a child of this process. So it outlives this
// process, and training, which may wait for its own children, does not see it end. A shell starts
// the command, because training must not be forked.
bool SpawnDetached(const std::vector<std::string>& command, const std::filesystem::path& log) {
  std::vector<std::string> words = {"sh", "-c", "log=$1; shift; \"$@\" </dev/null >\"$log\" 2>&1 &",
                                    "sh", log.string()};
  words.insert(words.end(), command.begin(), command.end());
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t shell = 0;
  const int failed =
      ::posix_spawn(&shell, "/bin/sh", &actions, &attributes, ArgumentsOf(words).data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  // If the process ignores SIGCHLD, this call fails, and the agent still starts.
  if (failed == 0) static_cast<void>(::waitpid(shell, nullptr, 0));
  return failed == 0;
}

// The last line of the agent's log.
std::string Complaint(const std::filesystem::path& log) {
  std::string text = ReadRegularFile(log).value_or("");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t line = text.rfind('\n');
  if (line != std::string::npos) text.erase(0, line + 1);
  return text.empty() ? "it wrote nothing" : text;
}

}  // namespace

Result<std::filesystem::path> FindOrStartOwnAgent(const std::filesystem::path& nodes_socket,
                                                  const std::string& devices) {
  if (Listens(nodes_socket)) return nodes_socket;
  const auto until = std::chrono::steady_clock::now() + kOwnAgentTimeout;
  PERSEUS_ASSIGN_OR_RETURN(const auto directory, OwnDirectory());
  const std::filesystem::path socket = directory / "agent.sock";
  // The lock is held until this function returns.
  PERSEUS_ASSIGN_OR_RETURN(const auto lock, LockStart(directory / "start.lock", until));
  if (Listens(socket)) return socket;

  const std::filesystem::path log = directory / "agent.log";
  const bool is_started = SpawnDetached(
      {Program(), "agent", "--devices", devices, "--socket", socket.string(), "--state",
       (directory / "agent.json").string(), "--metrics", "off", "--exit-when-idle", kIdleSeconds},
      log);
  while (is_started && std::chrono::steady_clock::now() < until) {
    if (Listens(socket)) return socket;
    std::this_thread::sleep_for(kNap);
  }
  return FailAs(ErrorKind::kSystem,
                "the agent of one's own, {}, does not listen: {} (its log is {}; "
                "PERSEUS_PROGRAM names another program)",
                Program(), Complaint(log), log.string());
}

}  // namespace perseus::client
