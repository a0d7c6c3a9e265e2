// Tests planning, assignments and notices, with every database.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/store_fixture.h"

namespace perseus::store {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class StorePlanningTest : public StoreTest {
 protected:
  PlanningTask Claim(const std::string& worker, Milliseconds now, Milliseconds for_ms = 1000) {
    return Get(store_->ClaimPlanning(worker, now, for_ms)).value();
  }
  // Requests and claims a planning of the job.
  PlanningTask Begin() {
    Succeed(store_->RequestPlanning(job_, 1));
    return Claim("w", 1);
  }
  bool IsIdle(Milliseconds now) {
    return !Get(store_->ClaimPlanning("idle", now, 1000)).has_value();
  }
  PlanningOutcome Current() {
    PlanningOutcome outcome;
    outcome.generation = Job().generation;
    return outcome;
  }
  // Completes a planning with an assignment for this reason.
  void Assign(const std::string& reason, const std::string& plan = "p-1") {
    const PlanningTask task = Begin();
    PlanningOutcome outcome = Current();
    outcome.assignment = {.reason = reason, .pipelines = {{.plan = plan}}};
    ASSERT_TRUE(Get(store_->CompletePlanning(task, outcome, 1)));
  }
};

INSTANTIATE_TEST_SUITE_P(Every, StorePlanningTest, kBackends, NameOf);

TEST_P(StorePlanningTest, OneWorkerClaimsThePlanningThatIsDueLongest) {
  const std::string other = Register("run8");
  Succeed(store_->RequestPlanning(job_, 200));
  Succeed(store_->RequestPlanning(other, 100));
  Succeed(store_->RequestPlanning(job_, 900));
  EXPECT_EQ(Get(store_->NextPlanningTime()), 100);
  EXPECT_TRUE(IsIdle(99));
  EXPECT_EQ(Claim("w1", 200).job, other);
  EXPECT_EQ(Get(store_->NextPlanningTime()), 200) << "the earlier request counts";
  const PlanningTask second = Claim("w2", 200);
  EXPECT_EQ(second.job, job_);
  EXPECT_EQ(second.worker, "w2");
  EXPECT_EQ(second.until, 1200);
  EXPECT_TRUE(IsIdle(1199));
  EXPECT_EQ(Get(store_->NextPlanningTime()), 1200) << "when the first claim expires";
}

TEST_P(StorePlanningTest, AnotherWorkerTakesAnExpiredClaim) {
  const PlanningTask lost = Begin();
  const PlanningTask taken = Claim("w2", 1001);
  EXPECT_FALSE(Get(store_->CompletePlanning(lost, Current(), 1002)));
  EXPECT_EQ(Job().status, JobStatus::kWaiting);
  EXPECT_TRUE(Get(store_->CompletePlanning(taken, Current(), 1003)));
  EXPECT_EQ(Job().status, JobStatus::kPlanned);
  EXPECT_FALSE(Get(store_->CompletePlanning(taken, Current(), 1004))) << "it is completed";
  EXPECT_EQ(Get(store_->NextPlanningTime()), std::nullopt);
}

TEST_P(StorePlanningTest, AnExpiredClaimHoldsUntilAnotherWorkerTakesIt) {
  const PlanningTask task = Begin();
  EXPECT_TRUE(Get(store_->CompletePlanning(task, Current(), 9999)));
}

TEST_P(StorePlanningTest, ARenewedClaimDoesNotExpire) {
  const PlanningTask task = Begin();
  EXPECT_TRUE(Get(store_->RenewPlanning(task, 900, 1000)));
  EXPECT_EQ(Get(store_->NextPlanningTime()), 1900);
  EXPECT_TRUE(IsIdle(1899));
  EXPECT_TRUE(Get(store_->RenewPlanning(task, 5000, 1000))) << "late, but no other worker has it";
  const PlanningTask taken = Claim("w2", 6000);
  EXPECT_FALSE(Get(store_->RenewPlanning(task, 6000, 1000)));
  EXPECT_TRUE(Get(store_->RenewPlanning(taken, 6000, 2000)));
  EXPECT_TRUE(Get(store_->CompletePlanning(taken, Current(), 6001)));
  EXPECT_FALSE(Get(store_->RenewPlanning(taken, 6002, 1000))) << "it is completed";
}

TEST_P(StorePlanningTest, AReleasedPlanningIsDueAgain) {
  Get(store_->PutProfile(job_, "a", 1));
  const PlanningTask task = Claim("w1", 1);
  Succeed(store_->ReleasePlanning(task, 50));
  EXPECT_TRUE(IsIdle(49));
  const PlanningTask again = Claim("w2", 50);
  Succeed(store_->ReleasePlanning(task, 50));
  EXPECT_TRUE(IsIdle(51)) << "the first worker does not have it any more";
  Succeed(store_->RequestPlanning(job_, 60));
  Succeed(store_->ReleasePlanning(again, 5000));
  EXPECT_EQ(Get(store_->NextPlanningTime()), 60) << "it was requested in the meantime";
}

TEST_P(StorePlanningTest, RaisesVersionsAboveThoseOfALostDatabase) {
  Succeed(store_->RaiseAssignmentVersion(job_, 3, 5));
  EXPECT_EQ(Get(store_->FindNewestAssignment(job_)), std::nullopt);
  Assign("first");
  const PlannedAssignment first = Get(store_->FindNewestAssignment(job_))->assignment;
  EXPECT_EQ(Job().assignment_version, 4);
  Succeed(store_->RaiseAssignmentVersion(job_, 4, 5));
  EXPECT_EQ(Job().assignment_version, 4) << "the version is as high";
  Succeed(store_->RaiseAssignmentVersion(job_, 7, 5));
  Succeed(store_->RaiseAssignmentVersion(job_, 6, 6));
  EXPECT_EQ(Get(store_->FindNewestAssignment(job_)),
            (AssignmentRecord{.job = job_, .version = 8, .assignment = first, .created = 5}));
  EXPECT_EQ(Job().assignment_version, 8);
  const JobRecord earlier = Job();
  Assign("next");
  EXPECT_EQ(Get(store_->FindNewestAssignment(job_))->version, 9);
  EXPECT_EQ(Get(store_->FindNewestAssignment(job_, earlier.assignment_version))->version, 8);
  Succeed(store_->RaiseAssignmentVersion(job_, 1000, 5));
  EXPECT_THAT(Get(store_->ListAssignments(job_, 10)), SizeIs(4)) << "raised versions count, too";

  EXPECT_EQ(store_->RaiseAssignmentVersion(job_, 1'000'000'000'001, 5).error().kind,
            ErrorKind::kInput);
  Succeed(store_->EndJob(job_, 5));
  Succeed(store_->RaiseAssignmentVersion(job_, 2000, 5));
  EXPECT_EQ(Job().assignment_version, 1001);
  Succeed(store_->RaiseAssignmentVersion("j-none", 2, 5));
}

TEST_P(StorePlanningTest, StoresAllResultsOfAPlanning) {
  Get(store_->PutProfile(job_, "a", 1));
  const PlanningTask task = Claim("w", 1);
  PlanningOutcome outcome = Current();
  outcome.frontier = "[frontier]";
  outcome.plans = {NewPlan("edp", 1, "one"), NewPlan("straggler-1.25", 1, "two")};
  outcome.plans[1].id = "p-00000000000000ff";
  outcome.plans[1].created = 5;
  outcome.assignment = {.from_step = 7, .target = "edp"};
  outcome.again_at = 700;
  ASSERT_TRUE(Get(store_->CompletePlanning(task, outcome, 50)));
  EXPECT_EQ(Get(store_->FindFrontier(job_)), "[frontier]");
  EXPECT_EQ(Get(store_->FindPlan(job_, "edp"))->created, 50);
  EXPECT_EQ(Get(store_->FindPlanById("p-00000000000000ff"))->body, "two");
  EXPECT_EQ(Get(store_->FindPlanById("p-00000000000000ff"))->created, 5);
  EXPECT_EQ(Get(store_->FindNewestAssignment(job_)),
            (AssignmentRecord{
                .job = job_, .version = 1, .assignment = *outcome.assignment, .created = 50}));
  EXPECT_EQ(Job().assignment_version, 1);
  EXPECT_EQ(Job().planned_generation, Job().generation);
  EXPECT_TRUE(IsIdle(699));
  EXPECT_EQ(Get(store_->NextPlanningTime()), 700);

  Get(store_->PutProfile(job_, "b", 60));
  EXPECT_EQ(Get(store_->FindFrontier(job_)), std::nullopt) << "it belongs to an older profile";
}

TEST_P(StorePlanningTest, AChangeDuringAPlanningMakesItDueAgain) {
  Get(store_->PutProfile(job_, "a", 1));
  const PlanningTask task = Claim("w", 1);
  PlanningOutcome outcome = Current();
  outcome.frontier = "of a";
  outcome.again_at = 5000;
  Get(store_->PutProfile(job_, "b", 2));
  EXPECT_TRUE(IsIdle(3)) << "the claim still holds";
  ASSERT_TRUE(Get(store_->CompletePlanning(task, outcome, 4)));
  EXPECT_EQ(Get(store_->FindFrontier(job_)), std::nullopt);
  EXPECT_EQ(Job().planned_generation, 1);
  EXPECT_EQ(Job().generation, 2);
  const PlanningTask next = Claim("w", 4);
  ASSERT_TRUE(Get(store_->CompletePlanning(next, Current(), 5)));
  EXPECT_EQ(Get(store_->NextPlanningTime()), std::nullopt);
}

TEST_P(StorePlanningTest, ARequestDuringAPlanningIsKept) {
  const PlanningTask task = Begin();
  Succeed(store_->RequestPlanning(job_, 8000));
  ASSERT_TRUE(Get(store_->CompletePlanning(task, Current(), 4)));
  EXPECT_EQ(Get(store_->NextPlanningTime()), 8000);
}

TEST_P(StorePlanningTest, AFailureKeepsTheAssignmentInForce) {
  Assign("first");
  Succeed(store_->SetTarget(job_, "impossible", 2));
  const PlanningTask task = Claim("w", 2);
  PlanningOutcome outcome = Current();
  outcome.status = JobStatus::kFailed;
  outcome.problem = "no such deadline";
  ASSERT_TRUE(Get(store_->CompletePlanning(task, outcome, 3)));
  EXPECT_EQ(Job().status, JobStatus::kFailed);
  EXPECT_EQ(Job().problem, "no such deadline");
  EXPECT_EQ(Get(store_->FindNewestAssignment(job_))->assignment.reason, "first");
}

TEST_P(StorePlanningTest, StoresNothingForAnEndedJob) {
  const PlanningTask task = Begin();
  PlanningOutcome outcome = Current();
  outcome.assignment = {.from_step = 7, .target = "edp"};
  outcome.plans = {NewPlan("edp", 0)};
  Succeed(store_->EndJob(job_, 2));
  EXPECT_FALSE(Get(store_->CompletePlanning(task, outcome, 3)));
  EXPECT_THAT(Get(store_->ListAssignments(job_, 9)), IsEmpty());
  EXPECT_THAT(Get(store_->ListPlans(job_, 9)), IsEmpty());
}

TEST_P(StorePlanningTest, AFailedWriteStoresNothing) {
  const PlanRecord there = Get(store_->AddPlan(NewPlan("edp", 0), 1));
  const PlanningTask task = Begin();
  PlanningOutcome outcome = Current();
  outcome.plans = {NewPlan("new", 0), there};
  outcome.assignment = {.from_step = 7, .target = "edp"};
  EXPECT_EQ(store_->CompletePlanning(task, outcome, 2).error().kind, ErrorKind::kInput);
  EXPECT_THAT(Get(store_->ListPlans(job_, 9)), SizeIs(1));
  EXPECT_EQ(Job().assignment_version, 0);
  outcome.plans.clear();
  EXPECT_TRUE(Get(store_->CompletePlanning(task, outcome, 3))) << "the claim still holds";
}

TEST_P(StorePlanningTest, KeepsTheNewest50Assignments) {
  for (int i = 1; i <= 60; ++i) Assign(fmt::format("assignment {}", i));
  const std::vector<AssignmentRecord> kept = Get(store_->ListAssignments(job_, 1000));
  ASSERT_THAT(kept, SizeIs(50));
  EXPECT_EQ(kept.front().version, 60);
  EXPECT_EQ(kept.front().assignment.reason, "assignment 60");
  EXPECT_EQ(kept.back().version, 11);
  EXPECT_EQ(Job().assignment_version, 60);
}

TEST_P(StorePlanningTest, KeepsTheNewest200PlansAndThoseOfAssignments) {
  const PlanRecord in_force = Get(store_->AddPlan(NewPlan("no-slowdown", 0), 1));
  const PlanRecord deleted = Get(store_->AddPlan(NewPlan("edp", 0), 1));
  Assign("profile 1", in_force.id);
  PlanningOutcome outcome = Current();
  outcome.plans.assign(200, NewPlan("straggler-1.25", 0));
  ASSERT_TRUE(Get(store_->CompletePlanning(Begin(), outcome, 2)));
  EXPECT_THAT(Get(store_->ListPlans(job_, 1000)), SizeIs(201));
  EXPECT_EQ(Get(store_->FindPlanById(in_force.id)), in_force);
  EXPECT_EQ(Get(store_->FindPlanById(deleted.id)), std::nullopt);
}

TEST_P(StorePlanningTest, EachChangeSendsOneNotice) {
  ReceivedNotices received;
  Succeed(store_->Listen([&](const Notice& notice) { received.Add(notice); }));
  EXPECT_EQ(store_->Listen([](const Notice&) {}).error().kind, ErrorKind::kInput);
  using Kind = Notice::Kind;
  Succeed(store_->AttachNode(job_, "node 7", "[]", 1));
  EXPECT_EQ(received.Next(), (Notice{.kind = Kind::kNode, .name = "node 7"}));
  Succeed(store_->AttachNode(job_, "node 7", "[]", 2));  // The same ranks: no notice.
  EXPECT_EQ(store_->SetTarget("j-0", "u", 2).error().kind, ErrorKind::kInput);
  Succeed(store_->SetTarget(job_, "u", 2));
  EXPECT_EQ(received.Next(), (Notice{.kind = Kind::kPlanning, .name = ""}));
  PlanningOutcome outcome = Current();
  outcome.assignment = PlannedAssignment();
  ASSERT_TRUE(Get(store_->CompletePlanning(Claim("w", 2), outcome, 2)));
  EXPECT_EQ(received.Next(), (Notice{.kind = Kind::kAssignment, .name = job_}));
  Succeed(store_->AddToken({.id = "t"}));
  EXPECT_EQ(received.Next(), (Notice{.kind = Kind::kTokens, .name = ""}));
  Succeed(store_->EndJob(job_, 3));
  EXPECT_EQ(received.Next(), (Notice{.kind = Kind::kNode, .name = "node 7"}));
}

TEST_P(StorePlanningTest, AListenerSeesTheChangeAndMayUseTheStore) {
  ReceivedNotices received;
  std::vector<std::int64_t> seen;
  constexpr std::int64_t kChanges = 20;
  Succeed(store_->Listen([&](const Notice& notice) {
    seen.push_back(Job().generation);
    Succeed(store_->RecordSteps({{.job = job_, .step = Job().generation, .at = 1}}));
    received.Add(notice);
  }));
  for (std::int64_t i = 1; i <= kChanges; ++i) {
    Succeed(store_->SetTarget(job_, fmt::format("{}", i), 1));
    received.Next();
    ASSERT_EQ(seen.back(), i);
  }
}

TEST_P(StorePlanningTest, ConcurrentChangesAllCount) {
  constexpr std::size_t kThreads = 8;
  constexpr std::size_t kWrites = 200;
  std::vector<std::string> jobs(kThreads);
  for (std::string& job : jobs) job = Register(fmt::format("own {}", &job - jobs.data()));
  std::vector<std::vector<std::int64_t>> versions(kThreads);
  RunInThreads(kThreads, [&](std::size_t i) {
    for (std::size_t k = 0; k < kWrites; ++k) {
      // Each thread changes the shared job and its own job.
      const std::string mine = fmt::format("{} {}", i, k);
      versions[i].push_back(Get(store_->PutProfile(job_, mine, 1)));
      Succeed(store_->SetTarget(jobs[i], mine, 1));
      // A change is visible when the call returns.
      if (Job(jobs[i]).target != mine) throw std::runtime_error("not written");
      if (store_->SetTarget("j-none", mine, 1)) throw std::runtime_error("must fail");
    }
  });
  std::vector<std::int64_t> all;
  for (const auto& mine : versions) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  ASSERT_THAT(all, SizeIs(kThreads * kWrites));
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i], static_cast<std::int64_t>(i) + 1);
  }
  EXPECT_EQ(Job().profile_version, kThreads * kWrites);
  EXPECT_EQ(Job().generation, kThreads * kWrites);
  for (const std::string& job : jobs) EXPECT_EQ(Job(job).generation, kWrites);
}

}  // namespace
}  // namespace perseus::store
