#include "perseus/runtime/agent/leftovers.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

namespace perseus::agent {

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
