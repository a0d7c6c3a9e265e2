#include "perseus/runtime/agent/leftovers.h"

#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "perseus/base/process_state.h"
#include "perseus/runtime/agent/agent_lock.h"
#include "perseus/runtime/agent/saved_state_file.h"
#include "perseus/runtime/protocol/messages.h"
#include "perseus/runtime/protocol/unix_socket.h"

namespace perseus::agent {
namespace {

// How long a killed agent may take to end.
constexpr std::chrono::milliseconds kEndTime{5'000};
constexpr std::chrono::milliseconds kLookAgain{20};

bool Answers(const std::filesystem::path& socket, std::chrono::milliseconds answer_time) {
  const auto connected = protocol::Connect(socket);
  return connected &&
         protocol::SendRequest(connected->get(), protocol::Format(protocol::List{}), answer_time);
}

}  // namespace

Result<void> EndUnresponsiveAgent(const std::filesystem::path& state,
                                  const std::filesystem::path& socket,
                                  std::chrono::milliseconds answer_time, spdlog::logger& log) {
  const std::filesystem::path lock_path = LockPathOf(state);
  if (!std::filesystem::exists(lock_path)) return {};
  PERSEUS_ASSIGN_OR_RETURN(const FileDescriptor free, LockFile(lock_path, answer_time));
  if (free) return {};
  if (Answers(socket, answer_time)) {
    return Fail("an agent runs on {}, and restores GPUs itself (perseus gpu release)",
                socket.string());
  }
  const auto holder = HolderOf(lock_path);
  const auto process = holder ? ReadProcessState(holder->pid) : std::nullopt;
  // The number may be of another PID namespace, and here of another process.
  if (!process || process->started != holder->started) {
    return FailAs(
        ErrorKind::kSystem,
        "a process that is not visible here has locked {}, and does not answer on {} (end "
        "it first, or run this in its PID namespace)",
        state.string(), socket.string());
  }
  log.warn("the agent (process {}) does not answer: killing it", holder->pid);
  if (::kill(holder->pid, SIGKILL) != 0 && errno != ESRCH) {
    return FailAs(ErrorKind::kSystem, "cannot kill the agent (process {}): {} (run as root)",
                  holder->pid, std::strerror(errno));
  }
  const auto end = std::chrono::steady_clock::now() + kEndTime;
  while (std::chrono::steady_clock::now() < end) {
    PERSEUS_ASSIGN_OR_RETURN(const FileDescriptor taken,
                             LockFile(lock_path, std::chrono::milliseconds(0)));
    if (taken) return {};
    std::this_thread::sleep_for(kLookAgain);
  }
  return FailAs(ErrorKind::kSystem, "the agent (process {}) was killed and still holds {}",
                holder->pid, state.string());
}

Result<int> GiveBackLeftovers(GpuManager::Setup setup, std::chrono::milliseconds timeout,
                              spdlog::logger& log) {
  boost::asio::io_context loop(1);
  const auto work = boost::asio::make_work_guard(loop);
  auto manager = GpuManager::Open(
      std::move(setup),
      [&loop](std::function<void()> call) { boost::asio::post(loop, std::move(call)); }, log);
  if (!manager) return Fail(manager);
  int held = 0;
  for (const GpuReport& gpu : (*manager)->Report().gpus) held += gpu.hold ? 1 : 0;
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!(*manager)->IsAllBack() && std::chrono::steady_clock::now() < end) {
    loop.run_one_for(std::chrono::milliseconds(10));
    (*manager)->Tick();
  }
  const AgentReport report = (*manager)->Report();
  std::string left = fmt::format("{}", fmt::join(report.missing_gpus, ", "));
  for (const GpuReport& gpu : report.gpus) {
    if (!gpu.hold) continue;
    left += fmt::format("{}{} ({})", left.empty() ? "" : ", ", gpu.info.uuid,
                        gpu.snapshot.setting_trouble);
  }
  if (left.empty()) return held;
  return FailAs(ErrorKind::kSystem,
                "not restored yet: {} (their saved settings remain, so try again)", left);
}

}  // namespace perseus::agent
