#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "bench/server_load/fleet.h"
#include "bench/server_load/plain_server.h"
#include "bench/server_load/scenarios.h"

namespace perseus::load {
namespace {

constexpr int kStreamsStages = 8;
constexpr int kStreamsClocks = 63;
// The pause after a planning, in which its last events arrive.
constexpr double kQuiet_s = 1;
// The most nodes of the plain server. Both ends of each connection are open files of this process.
constexpr int kMostPlainNodes = 5'000;

// Returns the part of `text` after `mark`. Throws if `mark` is not in `text`.
std::string_view Behind(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) {
    throw std::runtime_error(fmt::format("assignment without {}: {}", mark, text.substr(0, 500)));
  }
  return text.substr(at + mark.size());
}

// Counts the nodes whose last event contains the plan that its assignment names. Runs after the
// measurement, because the count takes much time.
int CountWithPlan(const Fleet& fleet) {
  int with_plan = 0;
  for (const Fleet::Node& node : fleet.nodes()) {
    std::string_view plan =
        Behind(node.assignment, fmt::format("\"plans\":{{\"{}\":\"", node.pipeline));
    plan = plan.substr(0, plan.find('"'));
    const std::string_view files = Behind(node.assignment, "\"files\":{");
    if (files.find(fmt::format("\"{}\":{{", plan)) != std::string_view::npos) ++with_plan;
  }
  return with_plan;
}

// Sends the same bytes from a server that does no other work.
asio::awaitable<double> MeasurePlain(asio::io_context& loop, int nodes, const std::string& event) {
  PlainServer plain("");
  std::vector<std::unique_ptr<Connection>> streams;
  int have = 0;
  for (int i = 0; i < nodes; ++i) {
    streams.push_back(std::make_unique<Connection>(loop, plain.endpoint()));
    Spawn(loop, streams.back()->Listen("/", [&have](std::string) { ++have; }));
  }
  co_await Sleep(2);
  double least = 0;
  for (int round = 0; round < 3; ++round) {
    have = 0;
    const auto begin = Clock::now();
    plain.Broadcast(event + "\n\n");
    while (have < nodes) co_await Sleep(0.001);
    least = round == 0 ? SecondsSince(begin) : std::min(least, SecondsSince(begin));
  }
  for (const auto& stream : streams) stream->Close();
  co_await Sleep(0.1);
  co_return least;
}

struct Round {
  double first_s = 0;
  double last_s = 0;
};

asio::awaitable<Round> MeasureNotice(asio::io_context& loop, const ServerProcess& server,
                                     Fleet& fleet, int round) {
  Connection connection(loop, server.endpoint());
  const std::int64_t version = co_await fleet.UntilAssigned();
  co_await fleet.UntilAllHave(version);
  co_await Sleep(kQuiet_s);
  const Usage before = server.Measure();
  const std::int64_t bytes = fleet.bytes();
  const std::string straggler = fmt::format("/v1/jobs/{}/stragglers/{}", fleet.job(), round % 7);
  const auto begin = Clock::now();
  co_await connection.Must("PUT", straggler,
                           fmt::format("{{\"slowdown\": {:.2f}}}", 1.1 + 0.05 * round));
  const double answered_s = SecondsSince(begin);
  co_await fleet.UntilAllHave(version + 1);
  const Usage after = server.Measure();
  Round result{.first_s = 1e9};
  for (const Fleet::Node& node : fleet.nodes()) {
    const double at = std::chrono::duration<double>(node.came_at - begin).count();
    result = {std::min(result.first_s, at), std::max(result.last_s, at)};
  }
  fmt::print(
      "  round {}: answered {:.3f} s, first {:.3f} s, last {:.3f} s; {} of {} with their plan, "
      "{:.0f} MB; server {:.2f} s of CPU, rss {:.0f} MB; load {:.1f}\n",
      round + 1, answered_s, result.first_s, result.last_s, CountWithPlan(fleet),
      fleet.nodes().size(), static_cast<double>(fleet.bytes() - bytes) / 1e6,
      after.cpu_s - before.cpu_s, after.rss_mb, LoadAverage());
  co_await connection.Must("DELETE", straggler);
  co_await fleet.UntilAllHave(version + 2);
  co_await Sleep(kQuiet_s);
  co_return result;
}

asio::awaitable<void> RunStreamLoad(asio::io_context& loop, const ServerProcess& server,
                                    const Options& options) {
  Fleet fleet(loop, server.endpoint(),
              {.pipelines = options.nodes / kStreamsStages,
               .stages = kStreamsStages,
               .microbatches = options.microbatches});
  const int nodes = static_cast<int>(fleet.nodes().size());
  auto begin = Clock::now();
  co_await fleet.Register("streams", kStreamsClocks, 1);
  co_await fleet.Attach();
  fmt::print("{} nodes attached in {:.2f} s\n", nodes, SecondsSince(begin));
  co_await fleet.UntilAssigned();
  begin = Clock::now();
  const Usage before = server.Measure();
  fleet.OpenStreams();
  co_await fleet.UntilAllHave(1);
  const Usage after = server.Measure();
  fmt::print(
      "all have their first assignment {:.2f} s after the first connected ({:.2f} s of CPU); {}\n",
      SecondsSince(begin), after.cpu_s - before.cpu_s, Describe(after));
  std::vector<double> last;
  for (int round = 0; round < options.rounds; ++round) {
    const Round measured = co_await MeasureNotice(loop, server, fleet, round);
    last.push_back(measured.last_s);
  }
  std::ranges::sort(last);
  const std::string event = fleet.nodes().front().assignment;
  const int plain_nodes = std::min(nodes, kMostPlainNodes);
  const double plain_s = co_await MeasurePlain(loop, plain_nodes, event);
  fmt::print(
      "notice to the last of {} nodes: min {:.3f}, median {:.3f}, max {:.3f} s; a bare server's "
      "writing of {} bytes to {}: {:.3f} s; load {:.1f}\n{}\n",
      nodes, last.front(), Quantile(last, 0.5), last.back(), event.size(), plain_nodes, plain_s,
      LoadAverage(), Describe(server.Measure()));
  fleet.CloseStreams();
  co_await fleet.UntilStreamsEnded();
}

}  // namespace

void MeasureStreams(const ServerProcess& server, const Options& options) {
  RunOnLoop([&](asio::io_context& loop) { return RunStreamLoad(loop, server, options); });
}

}  // namespace perseus::load
