#include "perseus/cluster/server/api/job_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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

TEST(StragglerJson, WarnsOfAnOldOneThatNeverExpires) {
  store::StragglerRecord straggler;
  straggler.dp_rank = 3;
  straggler.source = store::StragglerSource::kReport;
  straggler.slowdown = 1.2;
  straggler.starts = kNow - 3'600'000;
  EXPECT_FALSE(StragglerJson(straggler, kNow).contains("warning"));
  straggler.starts -= 1;
  EXPECT_THAT(StragglerJson(straggler, kNow)["warning"].get<std::string>(),
              HasSubstr("reported 1 hours ago, and never expires (when the pipeline is fast again: "
                        "perseus job straggler JOB 3 --over)"));
  straggler.expires = kNow + 1;
  EXPECT_FALSE(StragglerJson(straggler, kNow).contains("warning"));
  straggler.expires = 0;
  straggler.starts = kNow + 1;
  EXPECT_EQ(StragglerJson(straggler, kNow)["state"], "announced");
  EXPECT_FALSE(StragglerJson(straggler, kNow).contains("warning"));
}

}  // namespace
}  // namespace perseus::server
