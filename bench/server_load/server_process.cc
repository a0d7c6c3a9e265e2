#include "bench/server_load/server_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>

namespace perseus::load {
namespace {

constexpr double kMegabyte = 1e6;
constexpr double kKilobyte = 1024;
constexpr int kTries = 500;

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

double Field(std::string_view status, std::string_view name) {
  const std::size_t at = status.find(name);
  if (at == std::string_view::npos) return 0;
  const std::string text(status.substr(at + name.size(), 40));
  return std::strtod(text.c_str(), nullptr);
}

// Returns the CPU time from fields 14 and 15 of /proc/PID/stat. Counts the fields from the end of
// the program's name.
double CpuSeconds(const std::string& stat) {
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  std::string field;
  double ticks = 0;
  for (int number = 3; fields >> field; ++number) {
    if (number == 14 || number == 15) ticks += std::strtod(field.c_str(), nullptr);
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Returns the port that the server's log names.
int PortIn(const std::string& log) {
  constexpr std::string_view kSays = "listening on 127.0.0.1:";
  const std::size_t at = log.find(kSays);
  if (at == std::string::npos || log.find('\n', at) == std::string::npos) return 0;
  return std::atoi(log.c_str() + at + kSays.size());
}

}  // namespace

ServerProcess::ServerProcess(const std::string& program, const std::string& keep_ended,
                             std::string database) {
  std::string name = (std::filesystem::temp_directory_path() / "perseus-load-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
  directory_ = name;
  const std::string log = directory_ / "log";
  if (database.empty()) database = "sqlite:" + (directory_ / "perseus.db").string();
  pid_ = fork();
  if (pid_ == 0) {
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    // --insecure: without tokens, the server would otherwise look for the user of each connection,
    // which takes long with thousands of connections.
    execl(program.c_str(), "perseus", "serve", "--listen", "127.0.0.1:0", "--insecure",
          "--database", database.c_str(), "--keep-ended", keep_ended.c_str(),
          "--max-streams-of-token", "0", static_cast<char*>(nullptr));
    _exit(127);
  }
  for (int i = 0; i < kTries; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (const int port = PortIn(Read(log)); port > 0) {
      endpoint_ = {boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)};
      return;
    }
  }
  throw std::runtime_error(fmt::format("{} serve does not start: {}", program, Read(log)));
}

ServerProcess::~ServerProcess() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
  const std::string log = Read(directory_ / "log");
  // Prints a long log, because it has warnings and errors. A short log only says that the server
  // listens.
  if (log.size() > 400)
    fmt::print("the server's log ends with:\n{}\n", log.substr(log.size() - 400));
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

Usage ServerProcess::Measure() const {
  const std::filesystem::path proc = fmt::format("/proc/{}", pid_);
  const std::string status = Read(proc / "status");
  Usage usage{.rss_mb = Field(status, "VmRSS:") * kKilobyte / kMegabyte,
              .peak_rss_mb = Field(status, "VmHWM:") * kKilobyte / kMegabyte,
              .cpu_s = CpuSeconds(Read(proc / "stat")),
              .threads = static_cast<int>(Field(status, "Threads:"))};
  std::error_code ignored;
  const std::filesystem::directory_iterator descriptors(proc / "fd", ignored);
  usage.descriptors = static_cast<int>(std::distance(begin(descriptors), end(descriptors)));
  for (const char* file : {"perseus.db", "perseus.db-wal"}) {
    const auto size = std::filesystem::file_size(directory_ / file, ignored);
    if (!ignored) usage.database_mb += static_cast<double>(size) / kMegabyte;
  }
  return usage;
}

std::string Describe(const Usage& usage) {
  return fmt::format(
      "rss {:.0f} MB (peak {:.0f}), {:.1f} s of CPU, {} threads, {} descriptors, database {:.1f} "
      "MB",
      usage.rss_mb, usage.peak_rss_mb, usage.cpu_s, usage.threads, usage.descriptors,
      usage.database_mb);
}

double LoadAverage() {
  double load = 0;
  getloadavg(&load, 1);
  return load;
}

}  // namespace perseus::load
