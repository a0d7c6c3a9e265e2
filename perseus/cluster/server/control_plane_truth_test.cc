// Tests how the server compares the measurements of nodes with the reports of people and the
// promises of plans.
#include <csignal>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>

#include <sys/resource.h>

#include "perseus/cluster/server/database_probe.h"
#include "tests/support/control_plane_fixture.h"
#include "tests/support/postgres_server.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/watched_database.h"

namespace perseus::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class TruthTest : public ControlPlaneTest {
 protected:
  void SetUp() override {
    PlanJob("run");
    for (int pipeline = 0; pipeline < 2; ++pipeline) {
      Attach("n" + std::to_string(pipeline), "run", pipeline);
    }
  }
  json Assignment() { return Get("/v1/jobs/run")["assignment"]; }
  // Runs `count` steps of both pipelines with the active assignment. Pipeline p takes `slow[p]`
  // times as long as its plan, and both wait for the slower pipeline.
  void Run(int count, const std::vector<double>& slow, double energy = 1) {
    for (int i = 0; i < count; ++i, ++step_) {
      const json assignment = Assignment();
      if (assignment["pipelines"].empty()) return;  // The plan was withdrawn.
      double longest_s = 0;
      for (std::size_t p = 0; p < 2; ++p) {
        const double time_s = assignment["pipelines"][p]["time_s"];
        longest_s = std::max(longest_s, slow[p] * time_s);
      }
      for (std::size_t p = 0; p < 2; ++p) {
        const json& share = assignment["pipelines"][p];
        Report(static_cast<int>(p), assignment["version"], longest_s,
               slow[p] * share["time_s"].get<double>(), energy * share["energy_j"].get<double>());
      }
    }
  }
  // Runs steps that take 8 % longer than planned, until the trial at the default clocks begins.
  // Returns the planned time at the default clocks.
  double StartTrial() {
    const double baseline_s = Assignment()["baseline"]["time_s"];
    EXPECT_TRUE(Comes([&] {
      Run(1, {1.08, 1.08});
      return Assignment()["pipelines"].empty();
    }));
    return baseline_s;
  }
  // Runs steps of an assignment without plans, until the condition holds.
  template <typename Condition>
  void RunAtDefaultClocks(double time_s, Condition condition) {
    EXPECT_TRUE(Comes([&] {
      if (condition()) return true;
      const json version = Assignment()["version"];
      for (int p = 0; p < 2; ++p) Report(p, version, time_s, time_s, 100);
      ++step_;
      return condition();
    }));
  }
  // Reports `count` equal steps at once, from step_ on.
  void Report(int p, const json& version, double time_s, double busy_s, double energy_j,
              int count = 1) {
    json steps = json::array();
    for (int i = 0; i < count; ++i) {
      steps.push_back({{"step", step_ + i},
                       {"dp_rank", p},
                       {"time_s", time_s},
                       {"busy_s", busy_s},
                       {"energy_j", energy_j},
                       {"version", version},
                       {"ranks", 4}});
    }
    const json report{{"job", "run"},
                      {"acknowledged", version},
                      {"following", version},
                      {"since_step", 0},
                      {"steps", steps}};
    const auto answer = Send("POST", "/v1/nodes/n" + std::to_string(p) + "/reports",
                             json{{"jobs", {report}}}.dump());
    ASSERT_EQ(answer.status, 200) << answer.body;
  }
  bool IsPlannedFor(double time_s) {
    return Comes([&] { return std::abs(Assignment()["time_s"].get<double>() - time_s) < 1e-9; });
  }
  std::string Metric(const std::string& name) {
    const std::string text = Send("GET", "/metrics").body;
    const std::size_t at = text.find("\n" + name + " ");
    if (at == std::string::npos) return "";
    const std::size_t begin = at + name.size() + 2;
    return text.substr(begin, text.find('\n', begin) - begin);
  }

  int step_ = 0;
};

TEST_F(TruthTest, AFalseNoticeIsSuspendedAndTheJobIsFastAgain) {
  const double fast_s = Assignment()["time_s"];
  Run(3, {1, 1});
  ASSERT_EQ(Send("PUT", "/v1/jobs/run/stragglers/1", R"({"slowdown": 1.5})").status, 200);
  ASSERT_TRUE(IsPlannedFor(1.5 * fast_s)) << "the job waits for a pipeline that is not slow";
  Run(12, {1, 1});
  ASSERT_TRUE(IsPlannedFor(fast_s));
  const json straggler = Get("/v1/jobs/run")["stragglers"][0];
  EXPECT_EQ(straggler["state"], "suspended");
  EXPECT_NEAR(straggler["measured"].get<double>(), 1, 0.01);
  EXPECT_THAT(straggler["reinstated"].get<std::string>(), HasSubstr("at least 25.00 % longer"));
  EXPECT_EQ(Metric("perseus_server_straggler_notices_total{event=\"suspended\"}"), "1");

  // The same notice again changes nothing. Then the pipeline really becomes slow, and the notice
  // counts.
  ASSERT_EQ(Send("PUT", "/v1/jobs/run/stragglers/1", R"({"slowdown": 1.5})").status, 200);
  EXPECT_EQ(Get("/v1/jobs/run")["stragglers"][0]["state"], "suspended");
  Run(8, {1, 1.5});
  ASSERT_TRUE(Comes([&] { return Assignment()["time_s"].get<double>() > 1.4 * fast_s; }));
  EXPECT_EQ(Metric("perseus_server_straggler_notices_total{event=\"reinstated\"}"), "1");
}

TEST_F(TruthTest, AReportExpiresByDefault) {
  const json put =
      json::parse(Send("PUT", "/v1/jobs/run/stragglers/1", R"({"slowdown": 1.5})").body);
  EXPECT_TRUE(put.contains("expires")) << put;
}

TEST_F(TruthTest, ThePromiseOfThePlanIsCompared) {
  // With the default limit of harm, the server would withdraw the plan.
  ASSERT_EQ(Send("POST", "/v1/jobs/run/end", "{}").status, 200);
  json body = json::parse(JobBody("run"));
  body["most_harm_percent"] = 100;
  ASSERT_EQ(Send("POST", "/v1/jobs", body.dump()).status, 201);
  ASSERT_EQ(Send("PUT", "/v1/jobs/run/profile", Csv()).status, 202);
  ASSERT_TRUE(Comes([&] { return Get("/v1/jobs/run").contains("assignment"); }));
  for (int p = 0; p < 2; ++p) Attach("n" + std::to_string(p), "run", p);
  Run(12, {1.1, 1.1}, 1.2);
  ASSERT_TRUE(Comes([&] {
    Run(1, {1.1, 1.1}, 1.2);
    return Get("/v1/jobs/run")["measured"].contains("promise");
  }));
  const json job = Get("/v1/jobs/run");
  const json& promise = job["measured"]["promise"];
  EXPECT_EQ(promise["version"], job["assignment"]["version"]);
  EXPECT_NEAR(promise["measured_s"].get<double>() / promise["promised_s"].get<double>(), 1.1, 1e-6);
  EXPECT_NEAR(promise["measured_j"].get<double>() / promise["promised_j"].get<double>(), 1.2, 1e-6);
  EXPECT_THAT(promise["problem"].get<std::string>(), HasSubstr("10.00 % longer than planned"));
  ASSERT_TRUE(Comes([&] { return Metric("perseus_job_promise_broken{key=\"run\"}") == "1"; }));
  EXPECT_EQ(Metric("perseus_server_nodes{state=\"following\"}"), "2");
  EXPECT_NE(Metric("perseus_job_step_promised_joules{key=\"run\"}"), "");
  const double baseline_j = std::stod(Metric("perseus_server_baseline_joules_total"));
  EXPECT_GT(baseline_j, 0);
  EXPECT_NE(Metric("perseus_server_measured_joules_total"), "0");
  EXPECT_NE(Metric("perseus_job_saving_ratio{key=\"run\"}"), "");
}

// Steps take 8 % longer than planned with the plan, and as long as planned without it.
TEST_F(TruthTest, APlanThatCostsThroughputIsTakenBack) {
  const double baseline_s = StartTrial();
  EXPECT_THAT(Assignment()["reason"].get<std::string>(), HasSubstr("trial"));
  RunAtDefaultClocks(baseline_s, [&] {
    return Assignment()["reason"].get<std::string>().find("taken back") != std::string::npos;
  });
  EXPECT_TRUE(Assignment()["pipelines"].empty());
  EXPECT_EQ(Metric("perseus_server_plan_guards_total{event=\"withdrawn\"}"), "1");
  EXPECT_TRUE(Comes([&] { return Metric("perseus_job_plan_taken_back{key=\"run\"}") == "1"; }));
  const json guard = Get("/v1/jobs/run")["guard"];
  EXPECT_EQ(guard["state"], "withdrawn");
  EXPECT_NEAR(guard["with_plan"].get<double>(), 1.08, 1e-6);
  EXPECT_NEAR(guard["without_plan"].get<double>(), 1, 1e-6);
  EXPECT_THAT(guard["why"].get<std::string>(), HasSubstr("8.00 % longer than planned"));
  EXPECT_EQ(Send("GET", "/v1/jobs/run/plans/current").status, 404);

  // If the user sets the target again, the plan gets another chance.
  ASSERT_EQ(Send("PUT", "/v1/jobs/run/target", R"({"kind": "slowdown", "value": 0})").status, 200);
  EXPECT_TRUE(Comes([&] { return !Assignment()["pipelines"].empty(); }));
  EXPECT_FALSE(Get("/v1/jobs/run").contains("guard"));
  std::vector<std::string> actions;
  const json trail = Get("/v1/audit?action=plan&order=oldest");
  for (const json& record : trail["records"]) {
    actions.push_back(record["action"]);
  }
  EXPECT_EQ(actions, (std::vector<std::string>{"plan.try", "plan.withdraw"}));
}

// Pipeline 1 becomes slow while the ranks run at the default clocks.
TEST_F(TruthTest, StragglersAreFoundInATrial) {
  const double baseline_s = StartTrial();
  EXPECT_TRUE(Comes([&] {
    const json version = Assignment()["version"];
    for (int p = 0; p < 2; ++p) {
      Report(p, version, 1.5 * baseline_s, (p == 1 ? 1.5 : 1) * baseline_s, 100);
    }
    ++step_;
    const json stragglers = Get("/v1/jobs/run")["stragglers"];
    return !stragglers.empty() && stragglers[0]["dp_rank"] == 1;
  }));
}

// The reports of pipeline 1 are so late that the detector ignores them. But they contain enough
// slow steps for a trial.
TEST_F(TruthTest, ANewStragglerIsNoFaultOfThePlan) {
  Run(10, {1, 1});
  const json assignment = Assignment();
  const double time_s = assignment["time_s"];
  constexpr int kLate = 12;
  Report(0, assignment["version"], 1.5 * time_s, time_s, 100, kLate);
  // The server judges a plan at most twice a second.
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  Report(1, assignment["version"], 1.5 * time_s, 1.5 * time_s, 100, kLate);
  step_ += kLate;
  ASSERT_GE(Get("/v1/jobs/run")["measured"]["promise"]["steps"], 12);
  EXPECT_FALSE(Get("/v1/jobs/run").contains("guard"));
  Run(4, {1, 1.5});
  EXPECT_TRUE(IsPlannedFor(1.5 * time_s));
}

// Steps take 8 % longer than planned, with the plan and without it, because the profile is
// optimistic.
TEST_F(TruthTest, AnOptimisticProfileKeepsItsPlan) {
  const double baseline_s = StartTrial();
  RunAtDefaultClocks(1.08 * baseline_s, [&] { return !Assignment()["pipelines"].empty(); });
  EXPECT_EQ(Metric("perseus_server_plan_guards_total{event=\"cleared\"}"), "1");
  Run(20, {1.08, 1.08});
  EXPECT_FALSE(Assignment()["pipelines"].empty());
}

// With a full disk, a database still answers queries. With this limit on the file size, every
// change of the file fails, as on a full disk.
TEST(DatabaseProbe, NoticesADatabaseThatRefusesChanges) {
  const TemporaryDirectory directory;
  const auto store = *store::OpenStore("sqlite:" + (directory / "test.db").string());
  std::atomic<int> probes = 0;
  DatabaseProbe probe(
      *store, [] { return Milliseconds{1}; }, [&] { ++probes; });
  ASSERT_TRUE(Comes([&] { return probes > 0; }));
  EXPECT_EQ(probe.Problem(), "");
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit full{1, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  const auto refused = store->CreateJob({.key = "run", .body = "{}", .target = ""}, 1);
  const bool has_noticed = Comes([&] { return !probe.Problem().empty(); });
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  EXPECT_FALSE(refused);
  EXPECT_TRUE(has_noticed);
  EXPECT_GT(store->failed_writes(), 0);
  EXPECT_TRUE(Comes([&] { return probe.Problem().empty(); }));
}

TEST(DatabaseProbe, NoticesADeadDatabase) {
  if (!PostgresServer::WhyNot().empty()) GTEST_SKIP() << PostgresServer::WhyNot();
  PostgresServer server;
  const auto store = *store::OpenStore(server.MakeDatabase());
  DatabaseProbe probe(
      *store, [] { return Milliseconds{1}; }, [] {});
  EXPECT_EQ(probe.Problem(), "");
  EXPECT_EQ(probe.Outage(), "");
  server.Stop();
  EXPECT_TRUE(Comes([&] { return !probe.Outage().empty(); }));
  EXPECT_THAT(probe.Problem(), HasSubstr("does not answer"));
  EXPECT_THAT(probe.Outage(), HasSubstr("the database at postgresql:///"));
  server.Start();
  EXPECT_TRUE(Comes([&] { return probe.Outage().empty(); }));
}

TEST(DatabaseProbe, NoticesSilence) {
  auto database = std::make_unique<store::WatchedDatabase>();
  std::promise<void> may_answer;
  database->after_read = [ready = may_answer.get_future().share()](std::string_view) {
    ready.wait();
  };
  store::Store store(std::move(database));
  DatabaseProbe probe(
      store, [] { return Milliseconds{1}; }, [] {});
  EXPECT_TRUE(Comes([&] { return probe.Problem() == "the database does not answer"; }));
  EXPECT_EQ(probe.Outage(), "") << "it may be busy";
  EXPECT_EQ(probe.Outage(std::chrono::steady_clock::now() + DatabaseProbe::kSilence),
            "the database does not answer");
  may_answer.set_value();
  EXPECT_TRUE(Comes([&] { return probe.Problem().empty(); }));
}

}  // namespace
}  // namespace perseus::server
