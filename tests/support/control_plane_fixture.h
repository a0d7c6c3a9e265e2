// A control plane for one test, which sends requests over real sockets.
#pragma once

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/cluster/http/client.h"
#include "perseus/cluster/server/control_plane.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::server {

inline constexpr std::chrono::seconds kTimeout{60};

inline std::string JobBody(const std::string& key, int pipelines = 2) {
  return nlohmann::json{{"key", key},
                        {"pipelines", pipelines},
                        {"schedule", {{"kind", "1f1b"}, {"pp_ranks", 4}, {"microbatches", 8}}},
                        {"gpu", {{"blocking_power_w", 80}}}}
      .dump();
}
// The media type of the body that the target expects.
inline std::string ContentType(const std::string& target) {
  return target.ends_with("/profile") ? "text/csv" : "application/json";
}
inline std::string Csv() {
  synthetic::SyntheticProfileSpec spec;
  spec.pp_ranks = 4;
  return profile::FormatProfile(*synthetic::SynthesizeProfile(spec));
}

// The event stream of a node. Reads it on its own thread.
class NodeStream {
 public:
  NodeStream(const std::string& server, const std::string& node, std::string last_event_id = "",
             const std::string& instance = "")
      : thread_([this, server, last_event_id = std::move(last_event_id),
                 target = "/v1/nodes/" + node + "/events" +
                          (instance.empty() ? "" : "?instance=" + instance)] {
          auto client = http::Client::Create({.server = server});
          const auto listened = client->Listen({.target = target,
                                                .last_event_id = last_event_id,
                                                .on_event =
                                                    [this](const http::Event& event) {
                                                      const MutexLock lock(mutex_);
                                                      events_.push_back(event);
                                                      arrived_.notify_all();
                                                      return true;
                                                    },
                                                .should_end = [this] { return ends_.load(); }});
          EXPECT_TRUE(listened) << listened.error().Message();
        }) {}
  ~NodeStream() {
    ends_ = true;
    thread_.join();
  }

  // Waits for an event for which `wanted` is true, from index `from` on. Returns the index of the
  // event, or -1 after kTimeout.
  template <typename Wanted>
  int Await(Wanted wanted, std::size_t from = 0) {
    const MutexLock lock(mutex_);
    int found = -1;
    arrived_.wait_for(mutex_, kTimeout, [&]() PERSEUS_REQUIRES(mutex_) {
      for (std::size_t i = from; i < events_.size(); ++i) {
        if (!wanted(events_[i])) continue;
        found = static_cast<int>(i);
        return true;
      }
      return false;
    });
    return found;
  }
  http::Event At(int i) {
    const MutexLock lock(mutex_);
    return events_.at(static_cast<std::size_t>(i));
  }

 private:
  Mutex mutex_;
  std::condition_variable_any arrived_;
  std::vector<http::Event> events_ PERSEUS_GUARDED_BY(mutex_);
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// Returns whether the condition becomes true within this time.
template <typename Condition>
bool Comes(Condition condition, std::chrono::seconds within = kTimeout) {
  const auto until = std::chrono::steady_clock::now() + within;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// A control plane that runs on its own thread until its destructor. By default, it has any free
// port and a database in memory.
class RunningControlPlane {
 public:
  explicit RunningControlPlane(
      ControlPlaneOptions options,
      spdlog::sink_ptr sink = std::make_shared<spdlog::sinks::null_sink_mt>())
      : log_("test", std::move(sink)), scheme_(options.tls ? "https" : "http") {
    const ControlPlaneOptions defaults;
    if (options.address == defaults.address) options.address = "127.0.0.1:0";
    if (options.database == defaults.database) options.database = "sqlite::memory:";
    auto started = ControlPlane::Start(std::move(options), log_);
    if (!started) throw std::runtime_error(started.error().Message());
    plane_ = *std::move(started);
    thread_ = std::thread([this] { plane_->Run(); });
  }
  ~RunningControlPlane() {
    plane_->Stop();
    thread_.join();
  }
  ControlPlane* operator->() const { return plane_.get(); }
  std::string url() const { return fmt::format("{}://127.0.0.1:{}", scheme_, plane_->port()); }

 private:
  spdlog::logger log_;
  std::string scheme_;
  std::unique_ptr<ControlPlane> plane_;
  std::thread thread_;
};

class ControlPlaneTest : public testing::Test {
 protected:
  explicit ControlPlaneTest(const CallerLimitOptions& limits = {})
      : plane_({.caller_limits = limits,
                .maintenance_interval =
                    std::chrono::milliseconds(limits.streams_of_token > 0 ? 500 : 5'000)}),
        client_(*http::Client::Create({.server = url()})) {}

  std::string url() const { return plane_.url(); }
  http::Response Send(const std::string& method, const std::string& target,
                      const std::string& body = "") {
    auto response = client_.Send(
        {.method = method, .target = target, .body = body, .content_type = ContentType(target)});
    EXPECT_TRUE(response) << response.error().Message();
    return response ? *std::move(response) : http::Response{.status = 0};
  }
  nlohmann::json Get(const std::string& target) {
    const http::Response response = Send("GET", target);
    EXPECT_EQ(response.status, 200) << target << "\n" << response.body;
    return nlohmann::json::parse(response.body, nullptr, false);
  }
  // Registers the job, stores a profile, and waits for the assignment.
  void PlanJob(const std::string& key) {
    ASSERT_EQ(Send("POST", "/v1/jobs", JobBody(key)).status, 201);
    ASSERT_EQ(Send("PUT", "/v1/jobs/" + key + "/profile", Csv()).status, 202);
    ASSERT_TRUE(Comes([&] { return Get("/v1/jobs/" + key).contains("assignment"); }));
  }
  void Attach(const std::string& node, const std::string& key, int pipeline) {
    const nlohmann::json ranks{
        {"ranks",
         {{{"dp_rank", pipeline}, {"pp_rank", 0}}, {{"dp_rank", pipeline}, {"pp_rank", 1}}}}};
    ASSERT_EQ(Send("PUT", "/v1/nodes/" + node + "/jobs/" + key, ranks.dump()).status, 200);
  }

  RunningControlPlane plane_;
  http::Client client_;
};

inline bool IsAssignment(const http::Event& event) { return event.name == "assignment"; }

}  // namespace perseus::server
