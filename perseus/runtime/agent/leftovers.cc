#include "perseus/runtime/agent/leftovers.h"

#include <fmt/format.h>

#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "perseus/base/process.h"
#include "perseus/runtime/agent/agent_lock.h"
#include "perseus/runtime/agent/saved_state_file.h"
#include "perseus/runtime/protocol/messages/messages.h"
#include "perseus/runtime/protocol/messages/unix_socket.h"

namespace perseus::agent {
namespace {

// The time that a killed agent has to end.
constexpr std::chrono::milliseconds kEndTime{5'000};
constexpr std::chrono::milliseconds kLookAgain{20};

bool IsThere(const ProcessId& process) {
  const auto state = ReadProcessState(process.pid);
  // Otherwise, the number may come from another PID namespace, and mean another process here.
  return state && state->started == process.started;
}

// Whether the process answers on `socket`. Fails if another process listens on `socket`.
Result<bool> Answers(const ProcessId& process, const std::filesystem::path& socket,
                     std::chrono::milliseconds answer_time) {
  const auto end = std::chrono::steady_clock::now() + answer_time;
  while (true) {
    PERSEUS_ASSIGN_OR_RETURN(const auto connected, protocol::Connect(socket));
    PERSEUS_ASSIGN_OR_RETURN(const auto peer, protocol::PeerOf(connected.get()));
    if (peer.pid != process.pid) {
      return Fail(InFile(socket.string()), "it is the socket of another process ({})", peer.pid);
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    if (protocol::SendRequest(connected.get(), protocol::Format(protocol::List{}), left)) {
      return true;
    }
    // A stopping agent ends its connections, and then closes its socket. Such an agent must not be
    // killed.
    std::this_thread::sleep_for(kLookAgain);
  }
}

}  // namespace

Result<std::optional<ProcessId>> FindUnresponsiveAgent(const std::filesystem::path& state,
                                                       const std::filesystem::path& socket,
                                                       std::chrono::milliseconds answer_time) {
  const std::filesystem::path lock_path = LockPathOf(state);
  if (!std::filesystem::exists(lock_path)) return std::nullopt;
  PERSEUS_ASSIGN_OR_RETURN(const FileDescriptor free, LockFile(lock_path, answer_time));
  if (free) return std::nullopt;
  const auto holder = HolderOf(lock_path);
  if (!holder || !IsThere(*holder)) {
    return FailAs(ErrorKind::kSystem,
                  "a process that is not visible here has locked {} (end it first, or run this in "
                  "its PID namespace)",
                  state.string());
  }
  std::filesystem::path asked = SocketOfHolder(lock_path);
  auto answers = Answers(*holder, asked, answer_time);
  // An agent in a container may have recorded its socket with a path that this process does not
  // have.
  if (!answers) {
    asked = socket;
    answers = Answers(*holder, asked, answer_time);
  }
  if (!answers) {
    return FailAs(ErrorKind::kSystem,
                  "process {} has locked {}, and cannot be asked whether it works: {} (give the "
                  "`socket` of this agent, or end this process: an agent restores its GPUs then)",
                  holder->pid, state.string(), answers.error().Message());
  }
  if (!*answers) return holder;
  return Fail(
      "an agent runs on {}, and restores GPUs itself (perseus gpu release, with its `socket`)",
      asked.string());
}

Result<void> EndUnresponsiveAgent(const std::filesystem::path& state, const ProcessId& agent,
                                  spdlog::logger& log) {
  if (IsThere(agent)) {
    log.warn("the agent (process {}) does not answer: killing it", agent.pid);
    if (::kill(agent.pid, SIGKILL) != 0 && errno != ESRCH) {
      return FailAs(ErrorKind::kSystem, "cannot kill the agent (process {}): {} (run as root)",
                    agent.pid, std::strerror(errno));
    }
  }
  const auto end = std::chrono::steady_clock::now() + kEndTime;
  while (std::chrono::steady_clock::now() < end) {
    PERSEUS_ASSIGN_OR_RETURN(const FileDescriptor taken,
                             LockFile(LockPathOf(state), std::chrono::milliseconds(0)));
    if (taken) return {};
    std::this_thread::sleep_for(kLookAgain);
  }
  return FailAs(ErrorKind::kSystem, "the agent (process {}) was killed and still holds {}",
                agent.pid, state.string());
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
