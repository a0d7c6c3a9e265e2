#include "tests/control_plane/replicas.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "tests/support/rank_logs.h"

namespace perseus {

using nlohmann::json;
using std::chrono::milliseconds;

// ---- A stream ----

RecordedStream::RecordedStream(const std::string& servers, const std::string& node)
    : thread_([this, servers, node] {
        auto client = http::Client::Create({.server = servers});
        http::Client::Listening listening;
        listening.target = "/v1/nodes/" + node + "/events";
        listening.on_event = [this](const http::Event& event) {
          const MutexLock lock(mutex_);
          if (event.name == "assignment")
            versions_.push_back(json::parse(event.data).at("version"));
          return true;
        };
        listening.on_change = [this](std::string_view what) {
          constexpr std::string_view kConnected = "connected to ";
          const MutexLock lock(mutex_);
          server_ = what.starts_with(kConnected) ? what.substr(kConnected.size()) : "";
        };
        listening.should_end = [this] { return ends_.load(); };
        const auto listened = client->Listen(listening);
        EXPECT_TRUE(listened) << listened.error().Message();
      }) {}

RecordedStream::~RecordedStream() {
  ends_ = true;
  thread_.join();
}

std::vector<std::int64_t> RecordedStream::versions() const {
  const MutexLock lock(mutex_);
  return versions_;
}

std::string RecordedStream::server() const {
  const MutexLock lock(mutex_);
  return server_;
}

// ---- Load ----

StragglerLoad::StragglerLoad(const std::string& servers, const std::string& job)
    : thread_([this, servers, job] {
        auto client = http::Client::Create({.server = servers, .timeout = milliseconds(3000)});
        for (int i = 0; !ends_; ++i) {
          const int pipeline = i % 2;
          // The values repeat after a while, so the server also finds stored plans.
          const double slowdown = 1.05 + 0.01 * (i % 23);
          const auto put =
              client->Send({.method = "PUT",
                            .target = fmt::format("/v1/jobs/{}/stragglers/{}", job, pipeline),
                            .body = json{{"slowdown", slowdown}}.dump()});
          {
            const MutexLock lock(mutex_);
            if (put && put->status == 200) {
              reported_[pipeline].acknowledged = slowdown;
              reported_[pipeline].unknown.clear();
              ++acknowledged_;
            } else {
              reported_[pipeline].unknown.push_back(slowdown);
              if (!put) reported_[pipeline].unanswered.push_back(slowdown);
            }
          }
          std::this_thread::sleep_for(milliseconds(20));
        }
      }) {}

void StragglerLoad::End() {
  ends_ = true;
  if (thread_.joinable()) thread_.join();
}

std::map<int, StragglerLoad::Reported> StragglerLoad::reported() const {
  const MutexLock lock(mutex_);
  return reported_;
}

// ---- Replicas ----

Replicas::~Replicas() {
  ranks_end_ = true;
  if (ranks_.joinable()) ranks_.join();
}

void Replicas::RegisterJob() {
  RunWell("synth --gpu a100 --stages 4 -o profile.csv");
  RunWell(fmt::format(
      "job register {} --profile profile.csv --schedule 1f1b --pp-ranks 4 --microbatches 6 "
      "--pipelines 2 --blocking-power 84 --server {}",
      kKey, urls()));
}

void Replicas::StartNode() {
  const node::RankLogs logs(Directory() / "run");
  for (int rank = 0; rank < 4; ++rank) logs.Begin({0, rank, 0}, 100 + rank);
  Start(fmt::format("node --name n0 --job {}=run --server {} 2>node.log", kKey, urls()));
  ranks_ = std::thread([this, logs] {
    while (!ranks_end_) {
      const auto assignment = protocol::ReadAssignment(Directory() / "run");
      const std::int64_t version = assignment && *assignment ? (*assignment)->version : 0;
      for (int rank = 0; rank < 4; ++rank) logs.End({0, rank, 0}, steps_, version);
      ++steps_;
      std::this_thread::sleep_for(milliseconds(100));
    }
  });
}

std::int64_t Replicas::VersionInForce() const {
  const auto assignment = protocol::ReadAssignment(Directory() / "run");
  return assignment && *assignment && (*assignment)->server ? (*assignment)->server->version : 0;
}

http::Response Replicas::Send(const std::string& server, const std::string& method,
                              const std::string& target, const std::string& body) const {
  auto client = http::Client::Create({.server = server});
  auto response = client->Send({.method = method, .target = target, .body = body});
  return response ? *std::move(response) : http::Response{.status = 0};
}

json Replicas::Get(const std::string& target) const {
  const http::Response response = Send(urls(), "GET", target);
  EXPECT_EQ(response.status, 200) << target << "\n" << response.body;
  return json::parse(response.body, nullptr, false);
}

void Replicas::Attach(const std::string& node) const {
  auto ranks = json::array();
  for (int rank = 0; rank < 4; ++rank) ranks.push_back({{"dp_rank", 1}, {"pp_rank", rank}});
  const auto attached = Send(urls(), "PUT", fmt::format("/v1/nodes/{}/jobs/{}", node, kKey),
                             json{{"ranks", ranks}}.dump());
  ASSERT_EQ(attached.status, 200) << attached.body;
}

void Replicas::ExpectNothingLost(const StragglerLoad& load, const RecordedStream& stream,
                                 Unanswered unanswered) {
  const std::string job = std::string("/v1/jobs/") + kKey;
  ASSERT_TRUE(Comes([&] {
    const json shown = Get(job);
    return shown["planning"] == "done" && VersionInForce() == shown["assignment_version"] &&
           !stream.versions().empty() && stream.versions().back() == shown["assignment_version"];
  })) << Get(job).dump(1)
      << Read("node.log");

  std::map<int, double> stored;
  const json shown = Get(job);
  for (const json& straggler : shown["stragglers"]) {
    if (straggler["source"] != "detected") stored[straggler["dp_rank"]] = straggler["slowdown"];
  }
  for (const auto& [pipeline, reported] : load.reported()) {
    std::vector<double> possible = reported.unknown;
    possible.push_back(reported.acknowledged);
    if (unanswered == Unanswered::kMayComeLate) {
      possible.insert(possible.end(), reported.unanswered.begin(), reported.unanswered.end());
    }
    EXPECT_THAT(possible, testing::Contains(testing::DoubleNear(stored[pipeline], 1e-9)));
  }

  std::vector<std::int64_t> versions;
  const json listed = Get(job + "/assignments?limit=200");
  for (const json& assignment : listed["assignments"]) versions.push_back(assignment["version"]);
  std::ranges::reverse(versions);
  ASSERT_FALSE(versions.empty());
  for (std::size_t i = 1; i < versions.size(); ++i) EXPECT_EQ(versions[i], versions[i - 1] + 1);

  const std::vector<std::int64_t> received = stream.versions();
  for (std::size_t i = 1; i < received.size(); ++i) EXPECT_GT(received[i], received[i - 1]);
  std::cout << fmt::format(
      "{} stragglers acknowledged, {} assignment versions, {} of them received\n",
      load.acknowledged(), versions.back(), received.size());
}

}  // namespace perseus
