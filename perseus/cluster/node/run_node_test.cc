// Tests the node daemon with a real server. Threads, sockets and time are real.
#include "perseus/cluster/node/run_node.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/cluster/http/server.h"
#include "tests/support/rank_logs.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_plan.h"

namespace perseus::node {
namespace {

using http::Call;
using nlohmann::json;

// A minimal server: it has one job, sends the given events, and records the requests.
class HttpServer {
 public:
  HttpServer() { Start("127.0.0.1:0"); }
  ~HttpServer() { Die(); }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  void Die() {
    if (!thread_.joinable()) return;
    asio().post([this] {
      stream_.reset();
      server_->Stop(std::chrono::milliseconds(0));
    });
    thread_.join();
    server_.reset();
    loop_.reset();
  }
  // Sets the answer to streams that are opened from now on. Empty: the server accepts them.
  void Refuse(std::optional<http::Problem> problem) {
    const MutexLock lock(mutex_);
    refusal_ = std::move(problem);
  }
  void ComeBack() { Start("127.0.0.1:" + std::to_string(port_)); }
  // Sends an assignment to the stream once the stream is open.
  void Send(std::int64_t version, std::int64_t from_step, const std::string& plan) {
    const json data{{"job", "j-1"},
                    {"key", "run"},
                    {"version", version},
                    {"from_step", from_step},
                    {"plans", {{"0", plan}}}};
    auto text = std::make_shared<const std::string>(
        fmt::format("event: assignment\nid: j-1:{}\ndata: {}\n\n", version, data.dump()));
    asio().post([this, text] {
      if (stream_) stream_->Send(text);
    });
  }

  int Count(const std::string& request) const {
    const MutexLock lock(mutex_);
    return static_cast<int>(std::count(requests_.begin(), requests_.end(), request));
  }
  // Returns the job in the newest report, or null before the first report.
  json Reported() const {
    const MutexLock lock(mutex_);
    return reported_;
  }
  // Returns the event ids with which the streams began.
  std::vector<std::string> Positions() const {
    const MutexLock lock(mutex_);
    return positions_;
  }
  std::set<std::string> Instances() const {
    const MutexLock lock(mutex_);
    return instances_;
  }
  bool HasReported(std::int64_t step) const {
    const MutexLock lock(mutex_);
    return steps_.contains(step);
  }

 private:
  struct Loop {
    boost::asio::io_context context;
    void post(std::function<void()> work) { boost::asio::post(context, std::move(work)); }
  };
  Loop& asio() { return *loop_; }

  void Start(const std::string& address) {
    loop_ = std::make_unique<Loop>();
    auto server = http::Server::Listen(loop_->context, {.address = address}, Routes());
    ASSERT_TRUE(server) << server.error().Message();
    server_ = *std::move(server);
    port_ = server_->port();
    thread_ = std::thread([this] { loop_->context.run(); });
  }

  void Note(const http::Request& request) {
    const MutexLock lock(mutex_);
    requests_.push_back(request.method + " " + request.path);
    if (request.method == "PUT") instances_.insert(json::parse(request.body).at("instance"));
    if (request.method != "POST") return;
    reported_ = json::parse(request.body).at("jobs").at(0);
    for (const json& step : reported_.at("steps")) steps_.insert(step.at("step").get<int>());
  }

  http::Router Routes() {
    http::Router routes;
    const auto answer = [this](std::string body) {
      return [this, body](Call& call) -> boost::asio::awaitable<http::Response> {
        Note(call.request);
        co_return http::Response{.body = body};
      };
    };
    routes.Add("PUT", "/v1/nodes/{node}/jobs/{job}", answer(R"({"job": "j-1"})"));
    routes.Add("POST", "/v1/nodes/{node}/reports", answer("{}"));
    routes.Add("GET", "/v1/plans/{plan}", answer(TinyPlan()));
    routes.Add("GET", "/v1/jobs/{job}/assignments", answer("{}"), {.query = {"limit"}});
    routes.Add("GET", "/v1/nodes/{node}/events",
               [this](Call& call) -> boost::asio::awaitable<http::Response> {
                 Note(call.request);
                 {
                   const MutexLock lock(mutex_);
                   positions_.emplace_back(call.request.Field("last-event-id"));
                   instances_.insert(call.request.query.at("instance"));
                   if (refusal_) co_return http::ProblemResponse(*refusal_);
                 }
                 const auto stream = call.open_stream();
                 if (stream) stream_ = *stream;
                 co_return http::Response{};
               },
               {.query = {"instance"}});
    return routes;
  }

  std::unique_ptr<Loop> loop_;
  std::optional<http::Server> server_;
  std::shared_ptr<http::Stream> stream_;  // Used only on the loop.
  std::thread thread_;
  int port_ = 0;

  mutable Mutex mutex_;
  std::vector<std::string> requests_ PERSEUS_GUARDED_BY(mutex_);
  std::vector<std::string> positions_ PERSEUS_GUARDED_BY(mutex_);
  std::set<std::int64_t> steps_ PERSEUS_GUARDED_BY(mutex_);
  std::set<std::string> instances_ PERSEUS_GUARDED_BY(mutex_);
  std::optional<http::Problem> refusal_ PERSEUS_GUARDED_BY(mutex_);
  json reported_ PERSEUS_GUARDED_BY(mutex_);
};

// Counts warnings. Needs no mutex, because the counter is atomic.
class WarningCounter : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit WarningCounter(std::atomic<int>& warnings) : warnings_(warnings) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (message.level >= spdlog::level::warn) ++warnings_;
  }
  void flush_() override {}

  std::atomic<int>& warnings_;
};

// A clock that runs faster than real time by a factor.
class FastClock final : public Clock {
 public:
  explicit FastClock(int factor) : factor_(factor) {}
  Nanoseconds Now() override { return factor_ * real_.Now(); }
  Nanoseconds SinceEpoch() override { return real_.SinceEpoch(); }
  int Poll(std::span<pollfd> descriptors, Nanoseconds until) override {
    return real_.Poll(descriptors, until / factor_);
  }
  void WaitWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                 Nanoseconds until) override {
    real_.WaitWhile(word, value, until / factor_);
  }

 private:
  const int factor_;
  RealClock real_;
};

class RunNodeTest : public testing::Test {
 protected:
  void StartNode(int speed = 1) {
    is_over_ = false;
    node_ = std::thread([this, speed] {
      spdlog::logger log("node", std::make_shared<WarningCounter>(warnings_));
      FastClock clock(speed);
      http::ClientOptions options;
      options.server = "http://127.0.0.1:" + std::to_string(server_.port());
      const auto ran = RunNode(
          {"n7", {}, {{directory_ / "run", "run"}}}, options, [this] { return is_over_.load(); },
          clock, log);
      EXPECT_TRUE(ran) << ran.error().Message();
    });
  }
  void EndNode() {
    is_over_ = true;
    if (node_.joinable()) node_.join();
  }
  ~RunNodeTest() override { EndNode(); }

  static bool Comes(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < deadline) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  std::optional<protocol::Assignment> InForce() const {
    const auto assignment = protocol::ReadAssignment(directory_ / "run");
    return assignment ? *assignment : std::nullopt;
  }
  bool IsInForce(const std::string& plan) const {
    const auto assignment = InForce();
    return assignment && assignment->PlanOf(0) == PlanPath(plan);
  }
  bool IsAcknowledged(std::int64_t version) const {
    const json reported = server_.Reported();
    return reported.is_object() && reported.at("acknowledged") == version;
  }

  TemporaryDirectory directory_;
  RankLogs logs_{directory_ / "run"};
  HttpServer server_;
  std::atomic<int> warnings_ = 0;  // The number of warnings that the node has logged.
  std::atomic<bool> is_over_ = false;
  std::thread node_;
};

TEST_F(RunNodeTest, ReconnectsToARestartedServer) {
  logs_.Begin({0, 0, 0}, 100);
  StartNode();
  ASSERT_TRUE(Comes([&] { return server_.Count("PUT /v1/nodes/n7/jobs/run") == 1; }));
  ASSERT_TRUE(Comes([&] { return server_.Positions().size() == 1; }));
  server_.Send(1, 0, kPlanA);
  ASSERT_TRUE(Comes([&] { return IsInForce(kPlanA); }));
  ASSERT_TRUE(Comes([&] { return IsAcknowledged(1); }));
  logs_.End({0, 0, 0}, 0, InForce()->version);
  ASSERT_TRUE(Comes([&] { return server_.HasReported(0); }));
  EXPECT_EQ(server_.Reported().at("following"), 1);

  server_.Die();
  logs_.End({0, 0, 0}, 1, InForce()->version);
  EXPECT_TRUE(IsInForce(kPlanA));
  server_.ComeBack();
  ASSERT_TRUE(Comes([&] { return server_.Positions().size() == 2; }));
  EXPECT_EQ(server_.Positions().back(), "j-1:1");
  ASSERT_TRUE(Comes([&] { return server_.HasReported(1); }));

  const std::int64_t before = InForce()->version;
  server_.Send(1, 0, kPlanB);  // The same version with another plan is ignored.
  server_.Send(2, 0, kPlanB);  // This assignment is late, because step 2 already runs.
  ASSERT_TRUE(Comes([&] { return IsInForce(kPlanB); }));
  EXPECT_EQ(InForce()->version, before + 1);
  EXPECT_GT(InForce()->from_step, 2);
  ASSERT_TRUE(Comes([&] { return IsAcknowledged(2); }));
  EXPECT_EQ(server_.Count(std::string("GET /v1/plans/") + kPlanA), 1);
}

TEST_F(RunNodeTest, ANameConflictIsLoggedOnceAndTheStreamIsRetried) {
  server_.Refuse(http::Problem{.status = 409,
                               .title = "Another process is this node",
                               .detail = "another perseus node has the name n7",
                               .remedy = "give one of them another --name"});
  StartNode(20);
  ASSERT_TRUE(Comes([&] { return server_.Positions().size() == 3; }));
  EXPECT_EQ(warnings_, 1);
  server_.Refuse(std::nullopt);
  logs_.Begin({0, 0, 0}, 100);
  ASSERT_TRUE(Comes([&] { return server_.Positions().size() == 4; }));
  ASSERT_TRUE(Comes([&] { return server_.Count("PUT /v1/nodes/n7/jobs/run") == 1; }));
  EXPECT_EQ(server_.Instances().size(), 1U) << "one process";
  EndNode();
  StartNode();
  ASSERT_TRUE(Comes([&] { return server_.Instances().size() == 2; }));
}

TEST_F(RunNodeTest, EndsWhileTheServerIsUnreachable) {
  server_.Die();
  logs_.Begin({0, 0, 0}, 100);
  StartNode();
  ASSERT_TRUE(Comes([&] { return warnings_ > 0; }));
  EndNode();
}

}  // namespace
}  // namespace perseus::node
