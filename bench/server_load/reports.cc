#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <vector>

#include "bench/server_load/fleet.h"
#include "bench/server_load/plain_server.h"
#include "bench/server_load/scenarios.h"

namespace perseus::load {
namespace {

constexpr int kReportsStages = 8;
constexpr int kReportsClocks = 63;
// The most nodes that send reports to the plain server. Both ends of each connection are open files
// of this process.
constexpr std::size_t kMostReportsToPlain = 5'000;

struct Duration {
  std::chrono::seconds step;
  int steps;
};

struct Tally {
  std::vector<double> seconds;  // From the planned time of a report until its answer.
  int errors = 0;
  std::string first_error;
  int skipped = 0;  // Reports that were not sent, because the previous report had no answer yet.
};

std::string ReportBody(const std::string& job, const Fleet::Node& node, std::int64_t step) {
  // The pipelines differ only a little, so that none is a straggler.
  const double busy_s = 2.7 + 0.001 * (node.pipeline % 7);
  return fmt::format(
      R"({{"jobs": [{{"job": "{}", "acknowledged": {}, "following": {}, "since_step": 0, "steps": )"
      R"([{{"step": {}, "dp_rank": {}, "time_s": 2.91, "busy_s": {}, "energy_j": 5120.5, )"
      R"("version": {}, "ranks": 8}}]}}]}})",
      job, node.version, node.version, step, node.pipeline, busy_s, node.version);
}

// One node sends a report after each step. The nodes begin at different times within the first
// step.
asio::awaitable<void> ReportOn(asio::io_context& loop, const asio::ip::tcp::endpoint& server,
                               const Fleet& fleet, std::size_t number, Duration duration,
                               Tally& tally, int& running) {
  const Fleet::Node& node = fleet.nodes()[number];
  const std::string target = fmt::format("/v1/nodes/{}/reports", node.name);
  Connection connection(loop, server);
  asio::steady_timer timer(loop);
  const auto begin =
      Clock::now() + std::chrono::microseconds(duration.step) * number / fleet.nodes().size();
  for (int i = 0; i < duration.steps; ++i) {
    const auto due = begin + i * duration.step;
    if (i > 0 && Clock::now() > due + duration.step) {
      ++tally.skipped;
      continue;
    }
    timer.expires_at(due);
    co_await timer.async_wait(asio::use_awaitable);
    const Reply reply = co_await connection.Ask("POST", target, ReportBody(fleet.job(), node, i));
    if (reply.status != 200 && tally.errors++ == 0) tally.first_error = reply.body;
    tally.seconds.push_back(SecondsSince(due));
  }
  --running;
}

asio::awaitable<Tally> ReportAll(asio::io_context& loop, const asio::ip::tcp::endpoint& server,
                                 const Fleet& fleet, Duration duration) {
  Tally tally;
  int running = static_cast<int>(fleet.nodes().size());
  for (std::size_t i = 0; i < fleet.nodes().size(); ++i) {
    Spawn(loop, ReportOn(loop, server, fleet, i, duration, tally, running));
  }
  while (running > 0) co_await Sleep(0.01);
  std::ranges::sort(tally.seconds);
  co_return tally;
}

void Print(std::string_view what, const Tally& tally, double took) {
  fmt::print(
      "{}: {:.0f} a second, p50 {:.2f} ms, p99 {:.2f} ms, {} errors, {} skipped; load {:.1f}\n",
      what, static_cast<double>(tally.seconds.size()) / took, 1e3 * Quantile(tally.seconds, 0.5),
      1e3 * Quantile(tally.seconds, 0.99), tally.errors, tally.skipped, LoadAverage());
  if (tally.errors > 0) fmt::print("the first error: {}\n", tally.first_error);
}

asio::awaitable<void> RunReportLoad(asio::io_context& loop, const ServerProcess& server,
                                    const Options& options) {
  Fleet fleet(loop, server.endpoint(),
              {.pipelines = options.nodes / kReportsStages,
               .stages = kReportsStages,
               .microbatches = options.microbatches});
  co_await fleet.Register("reports", kReportsClocks, 1);
  co_await fleet.Attach();
  co_await fleet.UntilAssigned();
  fleet.OpenStreams();
  co_await fleet.UntilAllHave(1);
  const std::chrono::seconds step(options.step_s);
  const Duration duration{step, static_cast<int>(options.seconds) / options.step_s};
  const Usage before = server.Measure();
  auto begin = Clock::now();
  const Tally tally = co_await ReportAll(loop, server.endpoint(), fleet, duration);
  const double took = SecondsSince(begin);
  const Usage after = server.Measure();
  Print(fmt::format("{} nodes", fleet.nodes().size()), tally, took);
  fmt::print("{:.2f} of a core; {}\n", (after.cpu_s - before.cpu_s) / took, Describe(after));
  if (fleet.nodes().size() <= kMostReportsToPlain) {
    PlainServer plain("{}");
    begin = Clock::now();
    const Tally bare = co_await ReportAll(loop, plain.endpoint(), fleet, duration);
    Print("a bare server", bare, SecondsSince(begin));
  }
  fleet.CloseStreams();
  co_await fleet.UntilStreamsEnded();
}

}  // namespace

void MeasureReports(const ServerProcess& server, const Options& options) {
  RunOnLoop([&](asio::io_context& loop) { return RunReportLoad(loop, server, options); });
}

}  // namespace perseus::load
