#include "bench/server_load/fleet.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::load {
namespace {

using nlohmann::json;

constexpr int kGpusOfNode = 8;
constexpr int kAtOnce = 64;

std::string RanksBody(const Fleet::Node& node) {
  auto ranks = json::array();
  for (int gpu = 0; gpu < kGpusOfNode; ++gpu) {
    ranks.push_back({{"dp_rank", node.pipeline}, {"pp_rank", node.rank}, {"tp_rank", gpu}});
  }
  return json{{"ranks", std::move(ranks)}}.dump();
}

// Returns the version of an assignment, or 0 for another event. The version is before the plans in
// the text.
std::int64_t VersionOf(std::string_view event) {
  constexpr std::string_view kKey = "\"version\":";
  if (!event.starts_with("event: assignment")) return 0;
  const std::size_t at = event.find(kKey);
  return at == std::string_view::npos ? 0 : std::atoll(event.data() + at + kKey.size());
}

}  // namespace

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double Quantile(const std::vector<double>& sorted, double part) {
  if (sorted.empty()) return 0;
  const auto index = static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1));
  return sorted[index];
}

std::string JobBody(const std::string& key, const JobShape& shape) {
  return json{
      {"key", key},
      {"pipelines", shape.pipelines},
      {"tensor_parallel", kGpusOfNode},
      {"schedule",
       {{"kind", "1f1b"}, {"pp_ranks", shape.stages}, {"microbatches", shape.microbatches}}},
      {"gpu", {{"blocking_power_w", 83.6}}}}
      .dump();
}

std::string SyntheticCsv(int stages, int clocks, std::uint64_t seed) {
  synthetic::SyntheticProfileSpec spec;
  spec.pp_ranks = stages;
  spec.seed = seed;
  const auto profile = synthetic::SynthesizeProfile(spec);
  if (!profile) throw std::runtime_error(profile.error().Message());
  std::vector<profile::ProfileEntry> entries;
  for (profile::ProfileEntry entry : profile->entries()) {
    // Distributes the requests over all servers.
    std::vector<profile::Option> kept;
    const auto all = static_cast<int>(entry.options.size());
    for (int i = 0; i < clocks; ++i) {
      const int index = clocks == 1 ? 0 : i * (all - 1) / (clocks - 1);
      kept.push_back(entry.options[static_cast<std::size_t>(index)]);
    }
    entry.options = std::move(kept);
    entries.push_back(std::move(entry));
  }
  return profile::FormatProfile(profile::Profile("load", {}, std::move(entries)));
}

std::string FieldOf(const std::string& text, const std::string& key) {
  return json::parse(text).at(key).get<std::string>();
}

Fleet::Fleet(asio::io_context& loop, const asio::ip::tcp::endpoint& server, JobShape shape,
             const std::string& name)
    : loop_(loop), server_(server), shape_(shape), all_have_(loop) {
  for (int i = 0; i < shape.pipelines * shape.stages; ++i) {
    nodes_.push_back({.name = fmt::format("{}-{}", name, i),
                      .pipeline = i / shape.stages,
                      .rank = i % shape.stages,
                      .stream = std::make_unique<Connection>(loop, server),
                      .version = 0,
                      .assignment = {},
                      .came_at = {}});
  }
}

asio::awaitable<std::string> Fleet::Register(const std::string& key, int clocks,
                                             std::uint64_t seed) {
  Connection connection(loop_, server_);
  const std::string answer = co_await connection.Must("POST", "/v1/jobs", JobBody(key, shape_));
  job_ = FieldOf(answer, "id");
  const std::string profile = SyntheticCsv(shape_.stages, clocks, seed);
  co_await connection.Must("PUT", "/v1/jobs/" + job_ + "/profile", profile);
  co_return job_;
}

asio::awaitable<void> Fleet::Attach() {
  const auto attach = [this](Connection& connection, int i) -> asio::awaitable<void> {
    const Node& node = nodes_[static_cast<std::size_t>(i)];
    const std::string target = fmt::format("/v1/nodes/{}/jobs/{}", node.name, job_);
    co_await connection.Must("PUT", target, RanksBody(node));
  };
  co_await ForEach(loop_, static_cast<int>(nodes_.size()), kAtOnce, attach, server_);
}

void Fleet::OpenStreams() {
  for (Node& node : nodes_) {
    const auto listen = [](Fleet& fleet, Node& of) -> asio::awaitable<void> {
      const std::string target = fmt::format("/v1/nodes/{}/events", of.name);
      co_await of.stream->Listen(
          target, [&fleet, &of](std::string event) { fleet.Heard(of, std::move(event)); });
      --fleet.open_streams_;
    };
    ++open_streams_;
    Spawn(loop_, listen(*this, node));
  }
}

void Fleet::CloseStreams() {
  for (Node& node : nodes_) node.stream->Close();
}

asio::awaitable<void> Fleet::UntilStreamsEnded() {
  while (open_streams_ > 0) co_await Sleep(0.001);
}

void Fleet::Heard(Node& node, std::string event) {
  ++events_;
  bytes_ += static_cast<std::int64_t>(event.size());
  node.has_ended = node.has_ended || event.starts_with("event: ended");
  const std::int64_t version = VersionOf(event);
  if (version <= node.version) return;
  const bool had = node.version >= wanted_;
  node.version = version;
  node.came_at = Clock::now();
  node.assignment = std::move(event);
  if (!had && version >= wanted_ && ++have_ == nodes_.size()) all_have_.cancel();
}

asio::awaitable<void> Fleet::UntilAllHave(std::int64_t version) {
  wanted_ = version;
  have_ = static_cast<std::size_t>(
      std::ranges::count_if(nodes_, [&](const Node& node) { return node.version >= version; }));
  all_have_.expires_at(Clock::time_point::max());
  boost::system::error_code ignored;
  if (have_ < nodes_.size()) {
    co_await all_have_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

asio::awaitable<std::int64_t> Fleet::UntilAssigned() {
  Connection connection(loop_, server_);
  for (;;) {
    const std::string text =
        co_await connection.Must("GET", "/v1/jobs/" + job_ + "/assignments?limit=1");
    const json assignment = json::parse(text).at("assignments");
    if (!assignment.empty()) {
      co_return assignment[0].at("version").get<std::int64_t>();
    }
    co_await Sleep(0.2);
  }
}

}  // namespace perseus::load
