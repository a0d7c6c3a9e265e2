#include "tests/support/postgres_server.h"

#include <fcntl.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "perseus/base/process.h"

extern char** environ;

namespace perseus {
namespace {

namespace fs = std::filesystem;

// PostgreSQL refuses to run as root. On Debian, it runs as this user.
constexpr const char* kUser = "postgres";

// Returns the program directory of the newest installed version. On Debian, this directory is not
// on the PATH. Empty if PostgreSQL is not installed.
std::string FindPrograms() {
  const fs::path versions = "/usr/lib/postgresql";
  std::string found;
  int newest = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(versions, error)) {
    const int version = std::atoi(entry.path().filename().c_str());
    if (version <= newest || !fs::exists(entry.path() / "bin/initdb")) continue;
    newest = version;
    found = entry.path() / "bin";
  }
  return found;
}

void RunOrThrow(const std::vector<std::string>& command) {
  const Result<std::string> run = RunProgram(command, "");
  if (!run) throw std::runtime_error(run.error().Message());
}

pid_t Spawn(const std::vector<std::string>& command, const std::string& log) {
  const std::vector<char*> arguments = ArgumentsOf(command);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + command[0]);
  return child;
}

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

std::string PostgresServer::WhyNot() {
  if (FindPrograms().empty()) return "PostgreSQL is not installed (scripts/test installs it)";
  if (::geteuid() == 0 && ::getpwnam(kUser) == nullptr) {
    return "PostgreSQL does not run as root, and there is no user postgres";
  }
  return {};
}

PostgresServer::PostgresServer(std::optional<Machine> machine)
    : machine_(std::move(machine)), programs_(FindPrograms()) {
  if (::geteuid() == 0) {
    const passwd* user = ::getpwnam(kUser);
    if (user == nullptr || ::chown(directory_.path().c_str(), user->pw_uid, user->pw_gid) != 0) {
      throw std::runtime_error("cannot give a directory to user postgres");
    }
  }
  RunOrThrow(CommandOf("initdb", {"-D", directory_ / "data", "-A", "trust", "-U", "test", "-E",
                                  "UTF8", "--locale=C.UTF-8", "--no-sync"}));
  if (machine_) {
    std::ofstream(directory_ / "data/pg_hba.conf", std::ios::app) << "host all all all trust\n";
  }
  Start();
}

PostgresServer::~PostgresServer() { Stop(); }

std::vector<std::string> PostgresServer::CommandOf(
    const std::string& program, const std::vector<std::string>& arguments) const {
  // The user may not have access to the current directory, so the program runs in the root
  // directory. setpriv replaces itself with the program, so the program is a child of this process.
  // When this process ends, the program receives SIGQUIT. It then ends at once, together with its
  // own children.
  std::vector<std::string> command = {"env", "-C", "/", "setpriv", "--pdeathsig", "QUIT"};
  if (::geteuid() == 0) {
    command.insert(command.end(), {std::string("--reuid=") + kUser, std::string("--regid=") + kUser,
                                   "--clear-groups"});
  }
  command.insert(command.end(), {"--", programs_ + "/" + program});
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

void PostgresServer::Start() {
  if (server_ != 0) return;
  const std::string log = directory_ / "log";
  std::vector<std::string> command =
      CommandOf("postgres", {"-D", directory_ / "data", "-k", directory_.path(), "-c",
                             "listen_addresses=" + (machine_ ? machine_->address : std::string()),
                             "-c", "fsync=off", "-c", "deadlock_timeout=50ms"});
  if (machine_) {
    command.insert(command.begin(), machine_->in_front.begin(), machine_->in_front.end());
  }
  server_ = Spawn(command, log);
  const std::vector<std::string> probe = {programs_ + "/pg_isready", "-q", "-h", directory_.path()};
  while (!RunProgram(probe, "")) {
    if (::waitpid(server_, nullptr, WNOHANG) == server_) {
      server_ = 0;
      throw std::runtime_error("PostgreSQL does not start: " + ReadAll(log));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void PostgresServer::Stop() {
  if (server_ == 0) return;
  ::kill(server_, SIGQUIT);
  while (::waitpid(server_, nullptr, 0) < 0 && errno == EINTR) {
  }
  server_ = 0;
}

void PostgresServer::Restart() {
  Stop();
  Start();
}

std::string PostgresServer::AddressOf(const std::string& database) const {
  if (machine_) return "postgresql://test@" + machine_->address + "/" + database;
  return "postgresql://test@/" + database + "?host=" + directory_.path().string();
}

std::string PostgresServer::MakeDatabase() {
  const std::string name = "test" + std::to_string(++databases_);
  RunOrThrow({programs_ + "/createdb", "-h", directory_.path(), "-U", "test", name});
  return AddressOf(name);
}

}  // namespace perseus
