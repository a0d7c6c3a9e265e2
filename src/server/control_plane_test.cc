#include "perseus/server/control_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "perseus/http/client.h"
#include "perseus/http/test_certificates.h"
#include "perseus/profile/synthetic_profile.h"
#include "perseus/server/rights.h"
#include "temporary_directory.h"

namespace perseus {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kPatience{60};

std::string JobBody(const std::string& key, int pipelines = 2) {
  return json{{"key", key},
              {"pipelines", pipelines},
              {"schedule", {{"kind", "1f1b"}, {"stages", 4}, {"microbatches", 8}}},
              {"gpu", {{"blocking_power_w", 80}}}}
      .dump();
}
std::string Csv() {
  SyntheticProfileSpec spec;
  spec.stages = 4;
  return FormatProfile(*SynthesizeProfile(spec));
}

// A node's stream, read on a thread of its own.
class NodeStream {
 public:
  NodeStream(const std::string& server, const std::string& node, std::string last_event_id = "",
             const std::string& instance = "")
      : thread_([this, server, node, last_event_id = std::move(last_event_id), instance] {
          auto client = http::Client::Create({.server = server});
          const auto listened =
              client->Listen({.target = "/v1/nodes/" + node + "/events?instance=" + instance,
                              .last_event_id = last_event_id,
                              .heard =
                                  [this](const http::Event& event) {
                                    const std::lock_guard lock(mutex_);
                                    events_.push_back(event);
                                    came_.notify_all();
                                    return true;
                                  },
                              .should_end = [this] { return ends_.load(); }});
          EXPECT_TRUE(listened) << listened.error().message;
        }) {}
  ~NodeStream() {
    ends_ = true;
    thread_.join();
  }

  // The first event from `from` on that is as wanted; its index. -1: none came.
  template <typename Wanted>
  int Await(Wanted wanted, std::size_t from = 0) {
    std::unique_lock lock(mutex_);
    int found = -1;
    came_.wait_for(lock, kPatience, [&] {
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
    const std::lock_guard lock(mutex_);
    return events_.at(static_cast<std::size_t>(i));
  }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<http::Event> events_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

class ControlPlaneTest : public testing::Test {
 protected:
  ControlPlaneTest() {
    auto started =
        ControlPlane::Start({.address = "127.0.0.1:0", .database = "sqlite::memory:"}, log_);
    EXPECT_TRUE(started) << started.error().message;
    plane_ = *std::move(started);
    thread_ = std::thread([this] { plane_->Run(); });
    client_.emplace(*http::Client::Create({.server = url()}));
  }
  ~ControlPlaneTest() override {
    client_.reset();
    plane_->Stop();
    thread_.join();
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(plane_->port()); }
  http::Response Send(const std::string& method, const std::string& target,
                      const std::string& body = "") {
    auto response = client_->Send({.method = method, .target = target, .body = body});
    EXPECT_TRUE(response) << response.error().message;
    return response ? *std::move(response) : http::Response{.status = 0};
  }
  json Get(const std::string& target) {
    const http::Response response = Send("GET", target);
    EXPECT_EQ(response.status, 200) << target << "\n" << response.body;
    return json::parse(response.body, nullptr, false);
  }
  // Registered, with a profile and a plan.
  void PlanJob(const std::string& key, int pipelines = 2) {
    ASSERT_EQ(Send("POST", "/v1/jobs", JobBody(key, pipelines)).status, 201);
    ASSERT_EQ(Send("PUT", "/v1/jobs/" + key + "/profile", Csv()).status, 202);
    ASSERT_TRUE(Comes([&] { return Get("/v1/jobs/" + key).contains("orders"); }));
  }
  template <typename Condition>
  static bool Comes(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  void Attach(const std::string& node, const std::string& key, int pipeline) {
    const json ranks{
        {"ranks", {{{"pipeline", pipeline}, {"rank", 0}}, {{"pipeline", pipeline}, {"rank", 1}}}}};
    ASSERT_EQ(Send("PUT", "/v1/nodes/" + node + "/jobs/" + key, ranks.dump()).status, 200);
  }

  spdlog::logger log_{"test", std::make_shared<spdlog::sinks::null_sink_mt>()};
  std::unique_ptr<ControlPlane> plane_;
  std::thread thread_;
  std::optional<http::Client> client_;
};

bool IsOrders(const http::Event& event) { return event.name == "orders"; }

TEST_F(ControlPlaneTest, RegistersOnceByKey) {
  const auto first = Send("POST", "/v1/jobs", JobBody("run"));
  EXPECT_EQ(first.status, 201) << first.body;
  const auto second = Send("POST", "/v1/jobs", JobBody("run"));
  EXPECT_EQ(second.status, 200);
  EXPECT_EQ(json::parse(first.body)["id"], json::parse(second.body)["id"]);
  const auto other = Send("POST", "/v1/jobs", JobBody("run", 3));
  EXPECT_EQ(other.status, 409) << other.body;
  EXPECT_EQ(Get("/v1/jobs")["jobs"].size(), 1U);
  EXPECT_EQ(Get("/v1/jobs/run")["status"], "waiting");
  EXPECT_EQ(Send("POST", "/v1/jobs/run/end", "{}").status, 200);
  EXPECT_EQ(Send("POST", "/v1/jobs", JobBody("run", 3)).status, 201) << "the key is free again";
  EXPECT_EQ(Get("/v1/jobs?all=1")["jobs"].size(), 2U);
}

TEST_F(ControlPlaneTest, PlansWhatWasProfiled) {
  PlanJob("run");
  const json job = Get("/v1/jobs/run");
  EXPECT_EQ(job["status"], "planned");
  EXPECT_GT(job["saving_percent"].get<double>(), 3);
  EXPECT_LE(job["slowdown_percent"].get<double>(), 1e-9);
  EXPECT_EQ(Get("/v1/jobs/run/frontier")["profile_version"], 1);
  const json current = Get("/v1/jobs/run/plans/current");
  EXPECT_EQ(current["format"], "perseus-plan");
  const json slower = Get("/v1/jobs/run/plans/slowdown-10");
  EXPECT_GT(slower["time_s"], current["time_s"]);
  EXPECT_LT(slower["energy_j"], current["energy_j"]);
  EXPECT_EQ(Send("GET", "/v1/jobs/run/plans/nonsense").status, 404);
  EXPECT_EQ(Send("GET", "/v1/jobs/run/plans/deadline-0.001s").status, 422);
  EXPECT_EQ(Send("PUT", "/v1/jobs/run/target", R"({"kind": "slowdown", "value": 10})").status, 200);
  EXPECT_TRUE(Comes([&] { return Get("/v1/jobs/run")["orders"]["target"] == "10 % slowdown"; }));
}

TEST_F(ControlPlaneTest, RefusesATargetThatNothingCanMeet) {
  PlanJob("run");
  ASSERT_TRUE(Comes([&] { return Send("GET", "/v1/jobs/run/frontier").status == 200; }));
  const json frontier = Get("/v1/jobs/run/frontier");
  const double least_s = frontier["points"][0]["time_s"];
  for (const char* impossible :
       {R"({"kind": "deadline", "value": 0.001})", R"({"kind": "energy_budget", "value": 1})",
        R"({"kind": "power_cap", "value": 1})"}) {
    const auto refused = Send("PUT", "/v1/jobs/run/target", impossible);
    EXPECT_EQ(refused.status, 422) << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("the least is "));
  }
  EXPECT_EQ(Get("/v1/jobs/run")["target"]["kind"], "slowdown");
  EXPECT_EQ(Get("/v1/jobs/run")["status"], "planned");
  const json possible{{"kind", "deadline"}, {"value", least_s}};
  EXPECT_EQ(Send("PUT", "/v1/jobs/run/target", possible.dump()).status, 200);
}

// Costs of what no clock changes come out as `perseus plan` has them.
TEST_F(ControlPlaneTest, FixedOperationsHaveTheEnergyThatTheyWereRegisteredWith) {
  const auto energy = [this](const std::string& key, const json& fixed) {
    json body = json::parse(JobBody(key));
    body["fixed"] = fixed;
    EXPECT_EQ(Send("POST", "/v1/jobs", body.dump()).status, 201);
    EXPECT_EQ(Send("PUT", "/v1/jobs/" + key + "/profile", Csv()).status, 202);
    return Get("/v1/jobs/" + key + "/plans/slowdown-10")["energy_j"].get<double>();
  };
  // Of four GPUs, 0.2 s each, at 80 W: 64 J by default.
  const double by_default = energy("default", {{"all_reduce_s", 0.2}});
  EXPECT_NEAR(energy("said", {{"all_reduce_s", 0.2}, {"all_reduce_j", 30}}) - by_default, 4 * 14,
              0.5);
}

TEST_F(ControlPlaneTest, TheFirstTokenIsALastingOperators) {
  for (const char* other : {R"({"scope": "read"})", R"({"scope": "agent"})",
                            R"({"scope": "operator", "expires_in_days": 1})"}) {
    const auto refused = Send("POST", "/v1/tokens", other);
    EXPECT_EQ(refused.status, 409) << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("never expires first"));
  }
  EXPECT_EQ(Send("GET", "/v1/jobs").status, 200) << "nobody is shut out";

  const json lasting = json::parse(Send("POST", "/v1/tokens", R"({"scope": "operator"})").body);
  auto ann = http::Client::Create({.server = url(), .token = lasting["token"]});
  const http::Client::Outgoing brief{.method = "POST",
                                     .target = "/v1/tokens",
                                     .body = R"({"scope": "operator", "expires_in_days": 1})"};
  const json expiring = json::parse(ann->Send(brief)->body);
  const auto revoke = [&ann](const json& token) {
    const std::string target = "/v1/tokens/" + token["id"].get<std::string>();
    return ann->Send({.method = "DELETE", .target = target})->status;
  };
  EXPECT_EQ(revoke(lasting), 409) << "the other expires";
  EXPECT_EQ(revoke(expiring), 200);
}

TEST_F(ControlPlaneTest, TellsNodesWhatToDo) {
  PlanJob("run");
  Attach("n0", "run", 0);
  Attach("n1", "run", 1);
  NodeStream n0(url(), "n0");
  NodeStream n1(url(), "n1");
  const int first = n0.Await(IsOrders);
  ASSERT_GE(first, 0);
  const json orders = json::parse(n0.At(first).data);
  EXPECT_EQ(orders["key"], "run");
  EXPECT_EQ(orders["plans"].size(), 1U) << "its own pipelines' alone";
  const std::string plan = orders["plans"]["0"];
  const json file = orders["files"][plan];
  EXPECT_EQ(file["stages"][1]["instructions"].size(), 16U);
  EXPECT_FALSE(file["stages"][1].contains("cut"));
  EXPECT_EQ(file["stages"][3]["instructions"].size(), 1U) << "not one of its ranks";
  EXPECT_EQ(file["stages"][3]["cut"], true);
  ASSERT_GE(n1.Await(IsOrders), 0);

  ASSERT_EQ(Send("PUT", "/v1/jobs/run/stragglers/1", R"({"slowdown": 1.25})").status, 200);
  const auto says_straggler = [](const http::Event& event) {
    return IsOrders(event) && json::parse(event.data)["reason"].get<std::string>().find(
                                  "straggler 1: 1.25") != std::string::npos;
  };
  const int during = n0.Await(says_straggler);
  ASSERT_GE(during, 0);
  EXPECT_NE(json::parse(n0.At(during).data)["plans"]["0"], plan);
  const int of_straggler = n1.Await(says_straggler);
  ASSERT_GE(of_straggler, 0);

  ASSERT_EQ(Send("DELETE", "/v1/jobs/run/stragglers/1").status, 200);
  EXPECT_GE(
      n0.Await([&](const http::Event& event) { return IsOrders(event) && !says_straggler(event); },
               static_cast<std::size_t>(during) + 1),
      0);
  ASSERT_EQ(Send("POST", "/v1/jobs/run/end", "{}").status, 200);
  const auto ended = [](const http::Event& event) { return event.name == "ended"; };
  EXPECT_GE(n0.Await(ended), 0);
  EXPECT_GE(n1.Await(ended), 0);
}

TEST_F(ControlPlaneTest, AStreamGoesOnWhereItWas) {
  PlanJob("run");
  Attach("n0", "run", 0);
  std::string id;
  {
    NodeStream stream(url(), "n0");
    const int first = stream.Await(IsOrders);
    ASSERT_GE(first, 0);
    // The better plan comes by itself, two seconds later.
    const int refined = stream.Await(IsOrders, static_cast<std::size_t>(first) + 1);
    ASSERT_GE(refined, 0);
    id = stream.At(refined).id;
  }
  NodeStream again(url(), "n0", id);
  ASSERT_EQ(Send("PUT", "/v1/jobs/run/target", R"({"kind": "slowdown", "value": 7})").status, 200);
  const int next = again.Await(IsOrders);
  ASSERT_EQ(next, 0);
  EXPECT_EQ(json::parse(again.At(0).data)["target"], "7 % slowdown")
      << "what it had was not sent again";
}

TEST_F(ControlPlaneTest, AJobThatEndedMeanwhileIsToldOnReturn) {
  PlanJob("run");
  Attach("n0", "run", 0);
  std::string id;
  {
    NodeStream stream(url(), "n0");
    const int first = stream.Await(IsOrders);
    ASSERT_GE(first, 0);
    id = stream.At(first).id;
  }
  ASSERT_EQ(Send("POST", "/v1/jobs/run/end", "{}").status, 200);
  NodeStream again(url(), "n0", id);
  EXPECT_GE(again.Await([](const http::Event& event) { return event.name == "ended"; }), 0);
}

TEST_F(ControlPlaneTest, TellsANodeThatAJobWhichIsDeletedHasEnded) {
  NodeStream stream(url(), "n0", "j-0123456789abcdef:3");
  const int ended = stream.Await([](const http::Event& event) { return event.name == "ended"; });
  ASSERT_GE(ended, 0);
  EXPECT_THAT(stream.At(ended).data, HasSubstr("j-0123456789abcdef"));
}

TEST_F(ControlPlaneTest, TwoProcessesAreNotOneNode) {
  PlanJob("run");
  const auto attach = [&](const std::string& instance) {
    const json ranks{{"ranks", {{{"pipeline", 0}, {"rank", 0}}}}, {"instance", instance}};
    return Send("PUT", "/v1/nodes/n0/jobs/run", ranks.dump());
  };
  const auto listen = [&](const std::string& instance) {
    return Send("GET", "/v1/nodes/n0/events?instance=" + instance);
  };
  ASSERT_EQ(attach("a").status, 200);
  auto first = std::make_unique<NodeStream>(url(), "n0", "", "a");
  ASSERT_EQ(first->Await(IsOrders), 0);
  for (const http::Response& refused : {attach("b"), listen("b")}) {
    EXPECT_EQ(refused.status, 409) << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("give one of them another --name"));
  }
  EXPECT_EQ(json::parse(attach("b").body)["pointer"], "/instance");
  EXPECT_EQ(Get("/v1/nodes/n0/jobs")["jobs"][0]["ranks"].size(), 1U);
  EXPECT_EQ(listen("b%20c").status, 400);
  // The same process, before the old connection is known to be broken.
  {
    NodeStream again(url(), "n0", "", "a");
    EXPECT_EQ(again.Await(IsOrders), 0);
  }
  // Once it is gone, its successor is let in at once.
  first.reset();
  EXPECT_TRUE(Comes([&] { return attach("c").status == 200; }));
  EXPECT_GE(NodeStream(url(), "n0", "", "c").Await(IsOrders), 0);
}

TEST_F(ControlPlaneTest, NoticesAStragglerByItself) {
  PlanJob("run");
  Attach("n0", "run", 0);
  Attach("n1", "run", 1);
  const std::string id = Get("/v1/jobs/run")["id"];
  std::int64_t version = 0;
  const auto report = [&](int pipeline, int step, double busy_s) {
    const json body{{"jobs",
                     {{{"job", id},
                       {"acknowledged", 0},
                       {"following", 0},
                       {"steps",
                        {{{"step", step},
                          {"pipeline", pipeline},
                          {"time_s", 3},
                          {"busy_s", busy_s},
                          {"energy_j", 1000},
                          {"version", version},
                          {"ranks", 4}}}}}}}};
    const auto node = "/v1/nodes/n" + std::to_string(pipeline) + "/reports";
    ASSERT_EQ(Send("POST", node, body.dump()).status, 200);
  };
  int step = 0;
  for (; step < 4; ++step) {
    report(0, step, 2.5);
    report(1, step, 3.5);
  }
  EXPECT_TRUE(Get("/v1/jobs/run")["stragglers"].empty()) << "a perseus tune, say";
  version = 1;
  for (; step < 16; ++step) {
    report(0, step, 2.5);
    report(1, step, 2.5);
  }
  EXPECT_TRUE(Get("/v1/jobs/run")["stragglers"].empty());
  for (const int end = step + 3; step < end; ++step) {
    report(0, step, 2.5);
    report(1, step, 3.0);
  }
  const json stragglers = Get("/v1/jobs/run")["stragglers"];
  ASSERT_EQ(stragglers.size(), 1U) << "within three steps";
  EXPECT_EQ(stragglers[0]["pipeline"], 1);
  EXPECT_EQ(stragglers[0]["source"], "detected");
  EXPECT_NEAR(stragglers[0]["slowdown"].get<double>(), 1.2, 1e-6);
  EXPECT_TRUE(Comes([&] {
    const json orders = Get("/v1/jobs/run")["orders"];
    return orders["pipelines"][0]["plan"] != orders["pipelines"][1]["plan"];
  }));
  for (const int end = step + 5; step < end; ++step) {
    report(0, step, 2.5);
    report(1, step, 2.5);
  }
  EXPECT_TRUE(Get("/v1/jobs/run")["stragglers"].empty());
}

TEST_F(ControlPlaneTest, BadRequestsAreProblemsAndWriteNothing) {
  PlanJob("run");
  const json before = Get("/v1/jobs/run");
  struct Bad {
    const char* method;
    const char* target;
    const char* body;
    int status;
    const char* pointer;
  };
  for (const Bad& bad :
       {Bad{"POST", "/v1/jobs", "{", 400, nullptr},
        Bad{"POST", "/v1/jobs", R"({"key": "x y"})", 400, "/key"},
        Bad{"PUT", "/v1/jobs/run/profile", "stage,instruction\n", 400, nullptr},
        Bad{"PUT", "/v1/jobs/run/target", R"({"kind": "slowdown", "value": -1})", 400, "/value"},
        Bad{"PUT", "/v1/jobs/run/stragglers/2", R"({"slowdown": 1.2})", 404, nullptr},
        Bad{"PUT", "/v1/jobs/run/stragglers/x", R"({"slowdown": 1.2})", 404, nullptr},
        Bad{"PUT", "/v1/jobs/run/stragglers/1", R"({"slowdown": 0.9})", 400, "/slowdown"},
        Bad{"PUT", "/v1/jobs/run/stragglers/1",
            R"({"slowdown": 1.2, "starts_in": 5, "expires_in": 5})", 400, "/expires_in"},
        Bad{"POST", "/v1/jobs/run/forecasts", R"({"pipeline": 9, "slowdown": 1.1})", 400,
            "/pipeline"},
        Bad{"PUT", "/v1/nodes/n/jobs/run", R"({"ranks": [{"pipeline": 0, "rank": 4}]})", 400,
            "/ranks/0/rank"},
        Bad{"PUT", "/v1/nodes/a%2Fb/jobs/run", R"({"ranks": [{"pipeline": 0, "rank": 0}]})", 400,
            nullptr},
        Bad{"POST", "/v1/nodes/n/reports", R"({"jobs": [{"job": 7}]})", 400, "/jobs/0/job"},
        Bad{"GET", "/v1/jobs?limit=0", "", 400, "?limit"},
        Bad{"GET", "/v1/jobs/nobody", "", 404, nullptr},
        Bad{"POST", "/v1/jobs/run/measurements", R"({"rows": [{"stage": 0}]})", 400,
            "/rows/0/instruction"},
        Bad{"POST", "/v1/jobs/run/next-clocks", R"({"clocks_mhz": []})", 400, "/clocks_mhz"},
        Bad{"POST", "/register_job", R"({"pp_degree": 4})", 422, nullptr},
        Bad{"POST", "/v1/tokens", R"({"scope": "god"})", 400, "/scope"}}) {
    const auto response = Send(bad.method, bad.target, bad.body);
    EXPECT_EQ(response.status, bad.status) << bad.target << "\n" << response.body;
    EXPECT_EQ(response.content_type, "application/problem+json") << bad.target;
    const json problem = json::parse(response.body, nullptr, false);
    EXPECT_FALSE(problem.value("detail", "").empty()) << bad.target;
    if (bad.pointer != nullptr) {
      EXPECT_EQ(problem.value("pointer", ""), bad.pointer) << bad.target << response.body;
    }
  }
  EXPECT_EQ(Get("/v1/jobs/run")["orders"]["reason"], before["orders"]["reason"]);
  EXPECT_EQ(Get("/v1/jobs/run")["nodes"], before["nodes"]);
  EXPECT_EQ(Get("/v1/jobs")["jobs"].size(), 1U);
}

TEST_F(ControlPlaneTest, AnswersClientsOfZeus) {
  PlanJob("run");
  const auto registered = Send("POST", "/register_job",
                               R"({"job_id": "", "pp_degree": 4, "dp_degree": 2, "tp_degree": 1,
                                   "world_size": 8, "job_metadata": "run"})");
  ASSERT_EQ(registered.status, 200) << registered.body;
  const std::string id = json::parse(registered.body);
  EXPECT_EQ(registered.body, "\"" + id + "\"");
  // The answer comes when all ranks have registered.
  http::Response schedule;
  std::thread waits([&] {
    auto client = http::Client::Create({.server = url()});
    auto response = client->Send({.target = "/schedule/" + id + "?rank=5"});
    if (response) schedule = *std::move(response);
  });
  for (int rank = 0; rank < 8; ++rank) {
    const json body{{"rank", rank},
                    {"dp_rank", rank / 4},
                    {"pp_rank", rank % 4},
                    {"tp_rank", 0},
                    {"available_frequencies", {1410, 1200, 1005, 795, 210}}};
    const auto answer = Send("POST", "/register_rank/" + id, body.dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.body, "null");
  }
  waits.join();
  ASSERT_EQ(schedule.status, 200) << schedule.body;
  EXPECT_THAT(schedule.body, ::testing::StartsWith(R"({"rank":5,"frequencies":[["forward",)"));
  EXPECT_THAT(schedule.body, Not(HasSubstr(" ")));
  const json frequencies = json::parse(schedule.body)["frequencies"];
  EXPECT_EQ(frequencies.size(), 16U);
  for (const json& entry : frequencies) {
    const int mhz = entry[1];
    EXPECT_TRUE(mhz == 1410 || mhz == 1200 || mhz == 1005 || mhz == 795 || mhz == 210) << mhz;
  }
  const auto result = Send("POST", "/result/" + id,
                           R"({"rank": 5, "iter_time": [3.1], "iter_energy": [900],
                               "time_breakdown": {"forward": [[0.1]]}, "energy_breakdown": {}})");
  EXPECT_EQ(result.status, 200) << result.body;
  EXPECT_EQ(result.body, "null");
}

TEST_F(ControlPlaneTest, MeasurementsBecomeAProfile) {
  ASSERT_EQ(Send("POST", "/v1/jobs", JobBody("run")).status, 201);
  const json clocks(4, json{1410, 1200, 1005, 795, 600});
  const auto next = Send("POST", "/v1/jobs/run/next-clocks", json{{"clocks_mhz", clocks}}.dump());
  ASSERT_EQ(next.status, 200) << next.body;
  const json asked = json::parse(next.body)["clocks"];
  ASSERT_EQ(asked.size(), 8U);
  for (const json& clock : asked) EXPECT_EQ(clock["mhz"], 1410) << "the highest comes first";
  json rows = json::array();
  for (int stage = 0; stage < 4; ++stage) {
    for (const char* kind : {"forward", "backward"}) {
      for (const int mhz : {1410, 1200, 1005, 795}) {
        const double work_s = kind[0] == 'f' ? 0.05 : 0.1;
        rows.push_back({{"stage", stage},
                        {"instruction", kind},
                        {"frequency", mhz},
                        {"time", work_s * (0.3 + 0.7 * 1410 / mhz)},
                        {"energy", work_s * (100 + 200.0 * mhz * mhz / 1410 / 1410)}});
      }
    }
  }
  const auto half = Send("POST", "/v1/jobs/run/measurements", json{{"rows", rows}}.dump());
  EXPECT_EQ(half.status, 200) << half.body;
  EXPECT_EQ(Get("/v1/jobs/run")["profile_version"], 0);
  const auto ready = Send("POST", "/v1/jobs/run/measurements", R"({"rows": [], "ready": true})");
  EXPECT_EQ(ready.status, 202) << ready.body;
  EXPECT_TRUE(Comes([&] { return Get("/v1/jobs/run").contains("orders"); }));
}

TEST_F(ControlPlaneTest, MeasurementsThatCannotBePlannedWithAreNotKept) {
  ASSERT_EQ(Send("POST", "/v1/jobs", JobBody("run")).status, 201);
  const auto row = [](int stage, int mhz) {
    return json{{"stage", stage},
                {"instruction", "forward"},
                {"frequency", mhz},
                {"time", 100.0 / mhz},
                {"energy", 20.0 * mhz / 1410}};
  };
  const auto add = [&](const json& body) {
    return Send("POST", "/v1/jobs/run/measurements", body.dump());
  };
  const auto beyond = add({{"rows", {row(0, 1410), row(4, 1410)}}});
  EXPECT_EQ(beyond.status, 400) << beyond.body;
  EXPECT_EQ(json::parse(beyond.body)["pointer"], "/rows/1/stage");
  // Stages are missing: refused as a whole, so that it can be mended by sending it again.
  const auto half = add({{"rows", {row(0, 1410)}}, {"ready", true}});
  EXPECT_EQ(half.status, 400) << half.body;
  json rows = json::array();
  for (int stage = 0; stage < 4; ++stage) {
    for (const char* kind : {"forward", "backward"}) {
      for (const int mhz : {1410, 1005}) {
        rows.push_back(row(stage, mhz));
        rows.back()["instruction"] = kind;
      }
    }
  }
  const auto whole = add({{"rows", rows}, {"ready", true}});
  EXPECT_EQ(whole.status, 202) << whole.body;
  const std::string csv = Send("GET", "/v1/jobs/run/profile").body;
  EXPECT_EQ(std::ranges::count(csv, '\n'), 17) << "no row stands twice\n" << csv;
}

TEST_F(ControlPlaneTest, AJobThatHasEndedTakesNoRanksAndResults) {
  PlanJob("run");
  const std::string id = Get("/v1/jobs/run")["id"];
  ASSERT_EQ(Send("POST", "/v1/jobs/run/end", "{}").status, 200);
  EXPECT_EQ(Send("POST", "/register_rank/" + id,
                 R"({"rank": 0, "dp_rank": 0, "pp_rank": 0, "tp_rank": 0,
                     "available_frequencies": []})")
                .status,
            409);
  EXPECT_EQ(
      Send("POST", "/result/" + id, R"({"rank": 0, "iter_time": [], "iter_energy": []})").status,
      409);
}

TEST_F(ControlPlaneTest, TokensCloseTheDoor) {
  PlanJob("run");
  const auto created = Send("POST", "/v1/tokens", R"({"scope": "operator", "name": "ann"})");
  ASSERT_EQ(created.status, 201) << created.body;
  EXPECT_EQ(Send("GET", "/v1/jobs").status, 401);
  EXPECT_EQ(Send("GET", "/healthz").status, 200);
  auto ann = http::Client::Create({.server = url(), .token = json::parse(created.body)["token"]});
  EXPECT_TRUE(ann->Ask({.target = "/v1/jobs"}));
  const auto mine = ann->Ask(
      {.method = "POST", .target = "/v1/tokens", .body = R"({"scope": "job", "job": "other"})"});
  ASSERT_TRUE(mine) << mine.error().message;
  auto other = http::Client::Create({.server = url(), .token = json::parse(*mine)["token"]});
  EXPECT_EQ(other->Send({.target = "/v1/jobs/run"})->status, 403);
  EXPECT_EQ(other->Send({.target = "/v1/jobs/nobody"})->status, 403) << "not even whether it is";
  EXPECT_EQ(other->Send({.target = "/v1/jobs"})->status, 403);
  EXPECT_EQ(other->Send({.method = "POST", .target = "/v1/jobs", .body = JobBody("other")})->status,
            201);
  EXPECT_EQ(other->Send({.target = "/v1/jobs/other"})->status, 200);
}

// A server that others reach is never without an operator's token, and open to nobody without one.
TEST(ExposedControlPlane, IsClosedWithoutTokens) {
  const TemporaryDirectory directory;
  const std::string database = "sqlite:" + (directory.path() / "perseus.db").string();
  {
    auto store = OpenStore(database);
    ASSERT_TRUE(store) << store.error().message;
    const TokenRecord token{
        .id = "t-1", .hash = HashOfSecret("secret"), .scope = "operator", .job = "", .name = ""};
    ASSERT_TRUE((*store)->AddToken(token));
    TokenRecord expired = token;  // No operator any more.
    expired.id = "t-2";
    expired.hash = HashOfSecret("old secret");
    expired.expires = 1;
    ASSERT_TRUE((*store)->AddToken(expired));
  }
  http::TestAuthority authority(directory.path(), "authority");
  const auto files = authority.Issue("server", "perseus", "IP:127.0.0.1");
  spdlog::logger log("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  auto started = ControlPlane::Start(
      {.address = "0.0.0.0:0",
       .database = database,
       .tls = http::TlsFiles{.certificate = files.certificate, .key = files.key}},
      log);
  ASSERT_TRUE(started) << started.error().message;
  std::thread runs([&] { (*started)->Run(); });
  const std::string url = "https://127.0.0.1:" + std::to_string((*started)->port());
  auto client =
      http::Client::Create({.server = url, .token = "secret", .authority = authority.file()});
  EXPECT_TRUE(client) << client.error().message;
  EXPECT_EQ(client->Send({.target = "/v1/jobs"})->status, 200);
  EXPECT_EQ(client->Send({.method = "DELETE", .target = "/v1/tokens/t-1"})->status, 409)
      << "nobody could make another";
  auto nobody = http::Client::Create({.server = url, .authority = authority.file()});
  EXPECT_EQ(nobody->Send({.target = "/v1/jobs"})->status, 401);
  (*started)->Stop();
  runs.join();
}

// What people ask for is in the log; renewed certificates are taken up without a signal.
TEST(ControlPlaneLog, TellsOfChangesAndOfRenewedCertificates) {
  const TemporaryDirectory directory;
  http::TestAuthority old_authority(directory.path(), "old");
  http::TestAuthority new_authority(directory.path(), "new");
  const auto files = old_authority.Issue("server", "perseus", "IP:127.0.0.1");
  std::ostringstream logged;
  spdlog::logger log("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(logged));
  auto started = ControlPlane::Start(
      {.address = "127.0.0.1:0",
       .database = "sqlite::memory:",
       .tls = http::TlsFiles{.certificate = files.certificate, .key = files.key},
       .housekeeping = std::chrono::milliseconds(10)},
      log);
  ASSERT_TRUE(started) << started.error().message;
  std::thread runs([&] { (*started)->Run(); });
  const std::string url = "https://127.0.0.1:" + std::to_string((*started)->port());
  const auto answers = [&url](const http::TestAuthority& authority) {
    auto client = http::Client::Create({.server = url, .authority = authority.file()});
    return client && client->Ask({.target = "/v1/jobs"});
  };
  EXPECT_TRUE(answers(old_authority));
  EXPECT_FALSE(answers(new_authority));
  {
    auto client = http::Client::Create({.server = url, .authority = old_authority.file()});
    EXPECT_EQ(
        client->Send({.method = "POST", .target = "/v1/jobs", .body = JobBody("run")})->status,
        201);
    EXPECT_EQ(client
                  ->Send({.method = "PUT",
                          .target = "/v1/nodes/n0/jobs/run",
                          .body = R"({"ranks": [{"pipeline": 0, "rank": 0}]})"})
                  ->status,
              200);
  }
  new_authority.Issue("server", "perseus", "IP:127.0.0.1");
  // Had both been written within the clock's resolution, they are newer all the same.
  for (const std::string& file : {files.certificate, files.key}) {
    std::filesystem::last_write_time(
        file, std::filesystem::last_write_time(file) + std::chrono::seconds(1));
  }
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!answers(new_authority) && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(answers(new_authority));
  (*started)->Stop();
  runs.join();
  EXPECT_THAT(logged.str(), HasSubstr("method=POST path=/v1/jobs status=201"));
  EXPECT_THAT(logged.str(), Not(HasSubstr("/v1/nodes")));
  EXPECT_THAT(logged.str(), HasSubstr("certificates read again"));
}

}  // namespace
}  // namespace perseus
