// Tests clients of Zeus: several runs of a job, and refused requests. control_plane_test.cc tests a
// whole run.
#include "perseus/cluster/server/api/zeus_api.h"
#include "tests/support/control_plane_fixture.h"

namespace perseus::server {
namespace {

using nlohmann::json;

json RankBody(int rank, int place) {
  return {{"rank", rank},
          {"dp_rank", place / 4},
          {"pp_rank", place % 4},
          {"tp_rank", 0},
          {"available_frequencies", {1410, 1005}}};
}

// The server looks for the plan of a run every 250 ms.
constexpr std::chrono::milliseconds kTwoPolls{600};

class ZeusTest : public ControlPlaneTest {
 protected:
  static json JobInfo(int pipelines = 2) {
    return {{"job_id", ""},
            {"pp_degree", 4},
            {"dp_degree", pipelines},
            {"tp_degree", 1},
            {"world_size", 4 * pipelines}};
  }
  std::string RegisterRun() {
    const auto answer = Send("POST", "/register_job", JobInfo().dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json::parse(answer.body);
  }
  http::Response RegisterRank(const std::string& job, const json& body) {
    return Send("POST", "/register_rank/" + job, body.dump());
  }
  // Expects status 422 with the place of the mistake.
  void ExpectRefused(const http::Response& response, const std::string& pointer) {
    EXPECT_EQ(response.status, 422) << response.body;
    EXPECT_EQ(json::parse(response.body).value("pointer", ""), pointer) << response.body;
  }
  // Whether /schedule answers within this time.
  bool IsScheduled(const std::string& job, std::chrono::milliseconds timeout) {
    auto client = http::Client::Create({.server = url(), .timeout = timeout});
    const auto response = client->Send({.target = "/schedule/" + job + "?rank=3"});
    return response && response->status == 200;
  }
};

TEST_F(ZeusTest, ARunWaitsForItsOwnRanks) {
  PlanJob("run");
  const std::string job = RegisterRun();
  for (int rank = 0; rank < 8; ++rank)
    EXPECT_EQ(RegisterRank(job, RankBody(rank, rank)).status, 200);
  EXPECT_TRUE(IsScheduled(job, kTimeout));
  EXPECT_EQ(RegisterRun(), job);
  EXPECT_FALSE(IsScheduled(job, kTwoPolls));
  // The ranks of the new run may have other positions.
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(RegisterRank(job, RankBody(rank, 7 - rank)).status, 200);
  }
  EXPECT_TRUE(IsScheduled(job, kTimeout));
}

TEST_F(ZeusTest, EachRankHasItsOwnPosition) {
  PlanJob("run");
  const std::string job = RegisterRun();
  for (const char* key : {"rank", "dp_rank", "pp_rank", "tp_rank"}) {
    json body = RankBody(0, 0);
    body[key] = 99;
    ExpectRefused(RegisterRank(job, body), std::string("/") + key);
  }
  json body = RankBody(0, 0);
  body["available_frequencies"] = json(4097, 1410);
  ExpectRefused(RegisterRank(job, body), "/available_frequencies");
  body["available_frequencies"] = json::array();
  ExpectRefused(RegisterRank(job, body), "/available_frequencies");
  EXPECT_EQ(RegisterRank(job, RankBody(0, 5)).status, 200);
  EXPECT_EQ(RegisterRank(job, RankBody(0, 5)).status, 200) << "the same again";
  ExpectRefused(RegisterRank(job, RankBody(1, 5)), "/rank");
}

TEST_F(ZeusTest, ARefusedRankIsNamed) {
  PlanJob("run");
  const std::string job = RegisterRun();
  const auto missing = Send("GET", "/schedule/" + job);
  ExpectRefused(missing, "?rank");
  EXPECT_THAT(missing.body, ::testing::HasSubstr("the query has no rank"));
  for (const char* wrong : {"-1", "x", "1.5", ""}) {
    const auto refused = Send("GET", "/schedule/" + job + "?rank=" + wrong);
    ExpectRefused(refused, "?rank");
    EXPECT_THAT(refused.body, ::testing::HasSubstr(std::string(wrong) + "\\\" is not a rank"));
  }
}

TEST_F(ZeusTest, IgnoresUnknownKeys) {
  PlanJob("run");
  json info = JobInfo();
  info["framework"] = {{"name", "a fork"}};
  EXPECT_EQ(Send("POST", "/register_job", info.dump()).status, 200);
  json rank = RankBody(0, 0);
  rank["gpu_uuid"] = "GPU-1";
  EXPECT_EQ(RegisterRank("run", rank).status, 200);
  const json result{{"rank", 0}, {"iter_time", {1}}, {"iter_energy", {1}}, {"steps", 7}};
  EXPECT_EQ(Send("POST", "/result/run", result.dump()).status, 200);
}

TEST_F(ZeusTest, ChecksBreakdowns) {
  PlanJob("run");
  const auto send = [this](const json& breakdown) {
    const json result{
        {"rank", 0}, {"iter_time", {1}}, {"iter_energy", {1}}, {"time_breakdown", breakdown}};
    return Send("POST", "/result/run", result.dump());
  };
  EXPECT_EQ(send({{"forward", {{0.1, 0.2}, {0.1}}}, {"backward", json::array()}}).status, 200);
  ExpectRefused(send("long text"), "/time_breakdown");
  ExpectRefused(send({{"forward", 1}}), "/time_breakdown/forward");
  ExpectRefused(send({{"forward", {0.1}}}), "/time_breakdown/forward/0");
  ExpectRefused(send({{"forward", {{"0.1"}}}}), "/time_breakdown/forward/0/0");
}

TEST_F(ZeusTest, FindsAJobByItsDegreesAmongMany) {
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(Send("POST", "/v1/jobs", JobBody("other" + std::to_string(i))).status, 201);
  }
  ASSERT_EQ(Send("POST", "/v1/jobs", JobBody("run", 3)).status, 201);
  const auto found = Send("POST", "/register_job", JobInfo(3).dump());
  EXPECT_EQ(found.status, 200) << found.body;
  ASSERT_EQ(Send("POST", "/v1/jobs", JobBody("another", 3)).status, 201);
  ExpectRefused(Send("POST", "/register_job", JobInfo(3).dump()), "/job_metadata");
}

TEST_F(ZeusTest, AllRanksShareOneReadOfTheirPlan) {
  const auto store = *store::OpenStore("sqlite::memory:");
  const auto job = store->CreateJob({.key = "run", .body = JobBody("run"), .target = "{}"}, 1);
  PlanJob("run");
  store::PlanRecord record;
  record.id = Get("/v1/jobs/run")["assignment"]["pipelines"][0]["plan"];
  record.job = job->job.id;
  record.body = Send("GET", "/v1/plans/" + record.id).body;
  ASSERT_TRUE(store->AddPlan(record, 1));
  ZeusJobs jobs;
  const auto plan = jobs.Plan(*store, record.id);
  ASSERT_TRUE(plan) << plan.error().Message();
  ASSERT_NE(*plan, nullptr);
  EXPECT_EQ(*jobs.Plan(*store, record.id), *plan);
  EXPECT_EQ(*jobs.Plan(*store, "p-none"), nullptr) << "the plan may be stored later";
  EXPECT_EQ(*jobs.Degrees(job->job), (ZeusDegrees{.pp = 4, .dp = 2, .tp = 1}));
}

}  // namespace
}  // namespace perseus::server
