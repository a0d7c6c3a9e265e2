#include "perseus/cluster/server/api/job_view.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "perseus/base/time_text.h"

namespace perseus::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr Milliseconds kNow = 100'000'000;
constexpr std::string_view kJobViewJob = R"({"key": "run", "pipelines": 2,
  "schedule": {"kind": "1f1b", "pp_ranks": 4, "microbatches": 12}})";

class JobViewTest : public testing::Test {
 protected:
  JobViewTest() {
    job_ = store_->CreateJob({.key = "run", .body = std::string(kJobViewJob), .target = ""}, 1)
               ->job.id;
  }

  // Stores version 1 of the assignment of the job, from step 100 on.
  void Assign() {
    EXPECT_TRUE(store_->RequestPlanning(job_, 1));
    store::PlannedAssignment assignment;
    assignment.from_step = 100;
    assignment.pipelines = {{.plan = "p-0", .time_s = 1, .energy_j = 1}};
    assignment.baseline_time_s = assignment.baseline_energy_j = 1;
    store::PlanningOutcome outcome;
    outcome.assignment = std::move(assignment);
    EXPECT_TRUE(*store_->CompletePlanning(**store_->ClaimPlanning("w", 1, 1000), outcome, 1));
  }
  void Step(std::int64_t step) {
    EXPECT_TRUE(store_->RecordSteps({{.job = job_, .step = step, .at = kNow}}));
  }
  // Returns the state of a node that follows this version and reported at `seen`.
  std::string State(std::int64_t following, Milliseconds seen = kNow) {
    EXPECT_TRUE(store_->AttachNode(job_, "n0", "[]", seen));
    EXPECT_TRUE(store_->Acknowledge(
        {{.job = job_, .node = "n0", .ranks = {}, .following = following, .seen = seen}}));
    const auto view = ViewJob(services_, **store_->FindJob(job_), kNow);
    EXPECT_TRUE(view) << view.error().Message();
    return view->at("nodes").at(0).at("state");
  }

  std::unique_ptr<store::Store> store_ = *store::OpenStore("sqlite::memory:");
  std::string job_;
  Rights rights_{Rights::WithoutTokens::kOpen};
  telemetry::JobWatches watches_;
  telemetry::NodeReports reports_{*store_, watches_};
  PlanCuts cuts_{*store_};
  CallerLimits limits_{{}};
  WaitingRequests waiting_;
  Places large_bodies_{1};
  Places plans_on_request_{1};
  Services services_{*store_,       rights_, watches_, reports_, cuts_, limits_,           waiting_,
                     large_bodies_, {},      {},       {},       {},    plans_on_request_, {}};
};

// The store does not have the time of every report, so the view uses the time in memory.
TEST_F(JobViewTest, HasTheTimeOfTheLastReport) {
  EXPECT_TRUE(store_->AttachNode(job_, "n0", R"([{"dp_rank": 0, "pp_rank": 0, "tp_rank": 0}])",
                                 kNow - 4'000));
  protocol::JobReport report;
  report.job = "run";
  for (const Milliseconds ago : {4'000, 500}) {
    EXPECT_TRUE(reports_.Take("n0", {report}, kNow - ago));
  }
  const auto view = ViewJob(services_, **store_->FindJob(job_), kNow);
  ASSERT_TRUE(view) << view.error().Message();
  EXPECT_EQ(view->at("nodes").at(0).at("seen_s_ago"), 0.5);
}

// Each pipeline of a node has its own steps. The last one counts.
TEST_F(JobViewTest, CountsTheRanksWithoutALease) {
  EXPECT_TRUE(store_->AttachNode(job_, "n0",
                                 R"([{"dp_rank": 0, "pp_rank": 0}, {"dp_rank": 0, "pp_rank": 1},
                                     {"dp_rank": 1, "pp_rank": 0}])",
                                 kNow));
  const auto without_lease = [&](std::vector<protocol::StepReport> steps) {
    protocol::JobReport report;
    report.job = "run";
    report.steps = std::move(steps);
    EXPECT_TRUE(reports_.Take("n0", {report}, kNow));
    return ViewJob(services_, **store_->FindJob(job_), kNow)
        ->at("nodes")
        .at(0)
        .at("without_lease")
        .get<int>();
  };
  const auto step = [](std::int64_t number, int dp_rank, int without_clocks) {
    return protocol::StepReport{.step = number,
                                .dp_rank = dp_rank,
                                .busy_s = 1,
                                .ranks = 2,
                                .without_clocks = without_clocks};
  };
  EXPECT_EQ(without_lease({step(70, 0, 2), step(70, 1, 1)}), 3);
  EXPECT_EQ(without_lease({step(71, 0, 0)}), 1);
  EXPECT_EQ(without_lease({}), 1);
  EXPECT_EQ(without_lease({step(0, 0, 1)}), 1) << "after a restart without pipeline 1";
}

TEST_F(JobViewTest, HasTheStateOfEachNode) {
  Assign();
  EXPECT_EQ(State(0), "pending");
  Step(100);
  EXPECT_EQ(State(0), "pending");
  Step(101);
  EXPECT_EQ(State(0), "late");
  EXPECT_EQ(State(1), "following");
  EXPECT_EQ(State(2), "ahead");
  EXPECT_EQ(State(1, kNow - 15'000), "following");
  EXPECT_FALSE(SummarizeJob(services_, **store_->FindJob(job_), kNow)->contains("lost_nodes"));
  EXPECT_EQ(State(1, kNow - 15'001), "lost");
  EXPECT_EQ(SummarizeJob(services_, **store_->FindJob(job_), kNow)->at("lost_nodes"), 1);
}

// Two ranks on n0 and two on n1, which last ended a step at kNow.
class TrainingViewTest : public JobViewTest {
 protected:
  TrainingViewTest() {
    Assign();
    for (const char* node : {"n0", "n1"}) {
      EXPECT_TRUE(store_->AttachNode(
          job_, node,
          fmt::format(R"([{{"dp_rank": {0}, "pp_rank": 0}}, {{"dp_rank": {0}, "pp_rank": 1}}])",
                      node[1] - '0'),
          kNow));
    }
    EXPECT_TRUE(store_->RecordSteps(
        {{.job = job_, .step = 8, .summary = R"({"step_s": 10, "pipelines": {}})", .at = kNow}}));
  }
  // Node n0 reports at this time how many of its ranks run, and how many have no lease.
  void Report(Milliseconds now, int running, int without_lease = 0) {
    for (const char* node : {"n0", "n1"}) {
      const bool is_first = node == std::string("n0");
      EXPECT_TRUE(store_->Acknowledge({{.job = job_,
                                        .node = node,
                                        .ranks = {},
                                        .following = 1,
                                        .seen = now,
                                        .running = is_first ? running : 2,
                                        .without_lease = is_first ? without_lease : 0}}));
    }
  }
  nlohmann::ordered_json Summary(Milliseconds now) {
    return *SummarizeJob(services_, **store_->FindJob(job_), now);
  }
};

TEST_F(TrainingViewTest, StepsAreFreshForThreeOfThem) {
  Report(kNow + 30'000, 2);
  EXPECT_EQ(Summary(kNow + 30'000)["training"],
            nlohmann::ordered_json::parse(
                R"({"state": "runs", "ranks": 4, "running": 4, "without_lease": 0,
                            "last_step_s_ago": 30.0})"));
  EXPECT_TRUE(Summary(kNow + 30'000).contains("measured"));
  // A checkpoint takes longer than a step.
  const auto later = Summary(kNow + 30'001);
  EXPECT_EQ(later["training"]["state"], "paused");
  EXPECT_FALSE(later.contains("measured"));
  EXPECT_FALSE(later.contains("saving_percent"));
  EXPECT_FALSE(later.contains("needs"));
  Report(kNow + 600'001, 2);
  EXPECT_EQ(Summary(kNow + 600'001)["training"]["state"], "stopped");
}

TEST_F(TrainingViewTest, AKilledTrainingHasStopped) {
  Report(kNow + 40'000, 1);
  const auto view = *ViewJob(services_, **store_->FindJob(job_), kNow + 40'000);
  EXPECT_EQ(view["training"]["state"], "stopped");
  EXPECT_EQ(view["training"]["running"], 3);
  EXPECT_EQ(view["nodes"][0]["state"], "stopped");
  EXPECT_EQ(view["nodes"][1]["state"], "following");
  EXPECT_EQ(
      view["needs"].at(0),
      "the training has stopped: 3 of 4 ranks run, and the last step ended 40 s ago (start it "
      "again, or end the job: perseus job end run)");
}

// A node detaches the ranks of a training that has ended.
TEST_F(TrainingViewTest, ATrainingThatEndedNeedsNobody) {
  for (const char* node : {"n0", "n1"}) EXPECT_TRUE(store_->DetachNode(job_, node));
  const auto view = Summary(kNow + 40'000);
  EXPECT_EQ(view["training"]["state"], "ended");
  EXPECT_EQ(view["training"]["ended"], TimeText(kNow));
  for (const char* member : {"needs", "measured", "saving_percent"}) {
    EXPECT_FALSE(view.contains(member)) << member;
  }
}

TEST_F(TrainingViewTest, RanksOfALostNodeDoNotRun) {
  Report(kNow + 20'000, 2);
  const auto view = Summary(kNow + 35'001);
  EXPECT_EQ(view["training"]["state"], "stopped");
  EXPECT_EQ(view["training"]["running"], 0);
  EXPECT_EQ(view["lost_nodes"], 2);
  EXPECT_EQ(view["needs"].size(), 2U);
}

TEST_F(TrainingViewTest, RanksWithoutALeaseHaveNoSaving) {
  Report(kNow + 1'000, 2, 1);
  const auto view = Summary(kNow + 1'000);
  EXPECT_EQ(view["training"]["without_lease"], 1);
  EXPECT_FALSE(view.contains("saving_percent"));
  EXPECT_THAT(view["needs"].dump(), HasSubstr("do not follow the plan: n0 (1 of 2 ranks) (start"));
  Report(kNow + 1'000, 2);
  EXPECT_TRUE(Summary(kNow + 1'000).contains("saving_percent"));
}

TEST_F(TrainingViewTest, OfManyNodesInNeedThreeAreNamed) {
  for (int node = 2; node < 6; ++node) {
    EXPECT_TRUE(store_->AttachNode(job_, fmt::format("n{}", node),
                                   fmt::format(R"([{{"dp_rank": 0, "pp_rank": {}}}])", node),
                                   kNow));
  }
  EXPECT_THAT(Summary(kNow + 35'001)["needs"].dump(),
              HasSubstr("6 nodes sent no report for 15 s: n0, n1, n2 and 3 more (check"));
}

// An older node does not report which ranks run.
TEST_F(TrainingViewTest, TheRanksOfAnOlderNodeCountUntilItsStepsAreOld) {
  Report(kNow + 40'000, -1);
  EXPECT_EQ(Summary(kNow + 40'000)["training"]["state"], "paused");
  EXPECT_EQ(Summary(kNow + 40'000)["training"]["running"], 4);
}

TEST(StragglerJson, WarnsOfAnOldOneThatNeverExpires) {
  store::StragglerRecord straggler;
  straggler.dp_rank = 3;
  straggler.source = store::StragglerSource::kReport;
  straggler.slowdown = 1.2;
  straggler.starts = kNow - 3'600'000;
  EXPECT_FALSE(StragglerJson(straggler, {}, kNow).contains("warning"));
  straggler.starts -= 1;
  EXPECT_THAT(StragglerJson(straggler, {}, kNow)["warning"].get<std::string>(),
              HasSubstr("reported 1 hours ago, and never expires (when the pipeline is fast again: "
                        "perseus job straggler JOB 3 --over)"));
  straggler.expires = kNow + 1;
  EXPECT_FALSE(StragglerJson(straggler, {}, kNow).contains("warning"));
  straggler.expires = 0;
  straggler.starts = kNow + 1;
  EXPECT_EQ(StragglerJson(straggler, {}, kNow)["state"], "announced");
  EXPECT_FALSE(StragglerJson(straggler, {}, kNow).contains("warning"));
}

TEST(StragglerJson, HasTheMeasurementBesideAReport) {
  store::StragglerRecord report;
  report.dp_rank = 1;
  report.source = store::StragglerSource::kReport;
  report.slowdown = 1.25;
  report.starts = kNow;
  report.expires = kNow + 1'000;
  store::StragglerRecord measured = report;
  measured.source = store::StragglerSource::kDetected;
  const auto with = [&](double slowdown) {
    measured.slowdown = slowdown;
    return StragglerJson(report, {report, measured}, kNow);
  };
  EXPECT_EQ(with(1.24)["measured"], 1.24);
  EXPECT_FALSE(with(1.24).contains("warning"));
  for (const double far : {1.126, 1.5}) {
    EXPECT_THAT(with(far)["warning"].get<std::string>(),
                HasSubstr("the report is far from the measurement, and the larger one counts"));
  }
  EXPECT_FALSE(StragglerJson(measured, {report, measured}, kNow).contains("measured"));
  measured.dp_rank = 2;
  EXPECT_FALSE(with(1.126).contains("measured"));
}

}  // namespace
}  // namespace perseus::server
