#include "perseus/cluster/job_planning/planning_workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <semaphore>
#include <string>

namespace perseus::job_planning {
namespace {

constexpr std::chrono::seconds kTimeout{60};

// A job whose planning lasts until it is stopped, or until may_end_.
class PlanningWorkersTest : public testing::Test {
 protected:
  void StartLongPlanning() {
    workers_ = std::make_unique<PlanningWorkers>(
        *store_, PlanningWorkers::Options{
                     .threads = 1,
                     .now = [this] { return now_.load(); },
                     .planned =
                         [this](const PlanningReport& report) {
                           EXPECT_TRUE(report.is_kept);
                           has_ended_.release();
                         },
                     .failed = [](const Error& error) { ADD_FAILURE() << error.Message(); },
                     .plan = [this](const PlanningInput& input) { return Plan(input); }});
    const auto job = store_->CreateJob({.key = "long", .body = "{}", .target = ""}, now_)->job;
    ASSERT_TRUE(store_->SetTarget(job.id, "other", now_));
    workers_->Wake();
    ASSERT_TRUE(has_begun_.try_acquire_for(kTimeout));
  }
  Result<store::PlanningOutcome> Plan(const PlanningInput& input) {
    has_begun_.release();
    const std::stop_callback wake(input.stop, [this] { may_end_.release(); });
    may_end_.acquire();
    if (input.stop.stop_requested()) return FailAs(ErrorKind::kSystem, "stopped");
    return store::PlanningOutcome{.generation = input.job.generation};
  }
  bool IsIdle() { return !store_->ClaimPlanning("other replica", now_, 1)->has_value(); }

  std::unique_ptr<store::Store> store_ = *store::OpenStore("sqlite::memory:");
  std::atomic<Milliseconds> now_{1'000'000};
  std::counting_semaphore<> has_begun_{0};
  std::counting_semaphore<> may_end_{0};
  std::counting_semaphore<> has_ended_{0};
  std::unique_ptr<PlanningWorkers> workers_;
};

TEST_F(PlanningWorkersTest, RenewsTheClaimOfALongPlanning) {
  StartLongPlanning();
  const Milliseconds first = now_.load() + PlanningClaims::kClaim;
  now_ = now_.load() + PlanningClaims::kRenewAfter;
  workers_->Wake();
  const auto end = std::chrono::steady_clock::now() + kTimeout;
  while (**store_->NextPlanningTime() <= first && std::chrono::steady_clock::now() < end) {
  }
  now_ = first;
  EXPECT_TRUE(IsIdle());
  may_end_.release();
  EXPECT_TRUE(has_ended_.try_acquire_for(kTimeout));
}

TEST_F(PlanningWorkersTest, ReleasesRunningPlanningsWhenItEnds) {
  StartLongPlanning();
  workers_.reset();
  EXPECT_FALSE(IsIdle()) << "another replica can claim it at once";
}

}  // namespace
}  // namespace perseus::job_planning
