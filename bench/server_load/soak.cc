#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "bench/server_load/fleet.h"
#include "bench/server_load/scenarios.h"

namespace perseus::load {
namespace {

constexpr JobShape kShape{.pipelines = 2, .stages = 2, .microbatches = 4};
constexpr int kSoakClocks = 6;
constexpr int kReports = 3;
constexpr double kSampleEvery_s = 10;

struct Counts {
  std::int64_t jobs = 0;
  std::int64_t events = 0;
  std::int64_t requests = 0;
  int running = 0;
};

asio::awaitable<void> Report(Connection& connection, const Fleet& fleet, std::int64_t step) {
  for (const Fleet::Node& node : fleet.nodes()) {
    co_await connection.Must(
        "POST", fmt::format("/v1/nodes/{}/reports", node.name),
        fmt::format(R"({{"jobs": [{{"job": "{}", "acknowledged": {}, "following": {}, "steps": )"
                    R"([{{"step": {}, "dp_rank": {}, "time_s": 1, "busy_s": 0.9, "version": {}, )"
                    R"("ranks": 8}}]}}]}})",
                    fleet.job(), node.version, node.version, step, node.pipeline, node.version));
  }
}

// Waits until all nodes fulfill a condition. The condition is not a version, because several
// changes may be planned together, so versions cannot be predicted.
template <typename Condition>
asio::awaitable<void> UntilAll(const Fleet& fleet, Condition condition) {
  while (!std::ranges::all_of(fleet.nodes(), condition)) co_await Sleep(0.002);
}

bool FollowsStraggler(const Fleet::Node& node) {
  constexpr std::size_t kHead = 1'000;  // Plans come after this many characters.
  return std::string_view(node.assignment).substr(0, kHead).find("straggler 0:") !=
         std::string_view::npos;
}

// Runs the whole life of a job, with the streams of its nodes.
asio::awaitable<void> Live(asio::io_context& loop, const ServerProcess& server, int worker,
                           std::int64_t number, Counts& counts) {
  Connection connection(loop, server.endpoint());
  Fleet fleet(loop, server.endpoint(), kShape, fmt::format("node-{}", worker));
  const auto nodes = static_cast<std::int64_t>(fleet.nodes().size());
  fleet.OpenStreams();
  co_await fleet.Register(fmt::format("soak-{}-{}", worker, number), kSoakClocks,
                          static_cast<std::uint64_t>(number % 20) + 1);
  co_await fleet.Attach();
  co_await fleet.UntilAllHave(1);
  for (int step = 0; step < kReports; ++step) co_await Report(connection, fleet, step);
  const std::string stragglers = fmt::format("/v1/jobs/{}/stragglers/0", fleet.job());
  co_await connection.Must("PUT", stragglers, R"({"slowdown": 1.2})");
  co_await UntilAll(fleet, FollowsStraggler);
  co_await Report(connection, fleet, kReports);
  co_await connection.Must("DELETE", stragglers);
  co_await UntilAll(fleet, [](const Fleet::Node& node) { return !FollowsStraggler(node); });
  co_await connection.Must("POST", fmt::format("/v1/jobs/{}/end", fleet.job()));
  co_await UntilAll(fleet, [](const Fleet::Node& node) { return node.has_ended; });
  fleet.CloseStreams();
  co_await fleet.UntilStreamsEnded();
  ++counts.jobs;
  counts.events += fleet.events();
  counts.requests += 2 + nodes * (1 + kReports + 1) + 3;
}

asio::awaitable<void> LiveOn(asio::io_context& loop, const ServerProcess& server, int worker,
                             Clock::time_point until, Counts& counts) {
  for (std::int64_t number = 0; Clock::now() < until; ++number) {
    co_await Live(loop, server, worker, number, counts);
  }
  --counts.running;
}

void Print(std::string_view when, double at_s, const Counts& counts, const Usage& usage) {
  fmt::print("{:>6} {:>6.0f} s: {} jobs, {} events, {} requests; {}; load {:.1f}\n", when, at_s,
             counts.jobs, counts.events, counts.requests, Describe(usage), LoadAverage());
}

asio::awaitable<void> Sample(const ServerProcess& server, const Counts& counts,
                             Clock::time_point begin, double seconds) {
  struct Taken {
    double at_s;
    Counts counts;
    Usage usage;
  };
  std::vector<Taken> taken;
  while (counts.running > 0) {
    co_await Sleep(kSampleEvery_s);
    taken.push_back({SecondsSince(begin), counts, server.Measure()});
    const Taken& last = taken.back();
    if (taken.size() % 6 == 1) Print("", last.at_s, last.counts, last.usage);
  }
  const Taken& last = taken.back();
  for (const std::size_t index : {std::size_t{0}, taken.size() / 2, taken.size() - 1}) {
    const Taken& one = taken[index];
    Print(index == 0                  ? "first"
          : index + 1 == taken.size() ? "last"
                                      : "middle",
          one.at_s, one.counts, one.usage);
  }
  const double hours = seconds / 3600;
  fmt::print("in an hour: {:.0f} jobs, {:.0f} events, {:.0f} requests\n",
             static_cast<double>(last.counts.jobs) / hours,
             static_cast<double>(last.counts.events) / hours,
             static_cast<double>(last.counts.requests) / hours);
}

}  // namespace

void Soak(const ServerProcess& server, const Options& options) {
  asio::io_context loop(1);
  Counts counts{.running = options.width};
  const double seconds = 60 * options.minutes;
  const auto begin = Clock::now();
  const auto until = begin + std::chrono::seconds(static_cast<int>(seconds));
  for (int i = 0; i < options.width; ++i) {
    Spawn(loop, LiveOn(loop, server, i, until, counts));
  }
  Spawn(loop, Sample(server, counts, begin, seconds));
  loop.run();
}

}  // namespace perseus::load
