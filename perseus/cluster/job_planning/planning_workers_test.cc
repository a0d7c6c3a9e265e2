#include "perseus/cluster/job_planning/planning_workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace perseus::job_planning {
namespace {

constexpr std::chrono::seconds kTimeout{60};

// Replaces PlanJob: plannings of the job "long" last until they are stopped or finished.
class SlowPlanner {
 public:
  Result<store::PlanningOutcome> Plan(const PlanningInput& input) {
    store::PlanningOutcome outcome;
    outcome.generation = input.job.generation;
    if (input.job.key != "long") return outcome;
    const std::stop_callback wake(input.stop, [this] { Finish({}); });
    std::unique_lock lock(mutex_);
    begun_.push_back(input.job.id);
    changed_.notify_all();
    changed_.wait(lock, [&] { return finished_ == input.job.id || input.stop.stop_requested(); });
    if (finished_ == input.job.id) return outcome;
    return FailAs(ErrorKind::kSystem, "stopped");
  }
  void Finish(const std::string& job) {
    const std::lock_guard lock(mutex_);
    finished_ = job;
    changed_.notify_all();
  }
  void Add(const PlanningReport& report) {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(report.is_kept);
    done_.push_back(report.job);
    changed_.notify_all();
  }

  // Whether a long planning of the job has begun, or `times` plannings of it have ended. Waits up
  // to kTimeout.
  bool HasBegun(const std::string& job) { return HappensInTime(begun_, job, 1); }
  bool IsDone(const std::string& job, std::ptrdiff_t times = 1) {
    return HappensInTime(done_, job, times);
  }

 private:
  bool HappensInTime(const std::vector<std::string>& jobs, const std::string& job,
                     std::ptrdiff_t times) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kTimeout,
                             [&] { return std::ranges::count(jobs, job) >= times; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> begun_;
  std::vector<std::string> done_;
  std::string finished_;
};

class PlanningWorkersTest : public testing::Test {
 protected:
  void Start(int threads) {
    workers_ = std::make_unique<PlanningWorkers>(
        *store_, PlanningWorkers::Options{
                     .threads = threads,
                     .now = [this] { return now_.load(); },
                     .planned = [this](const PlanningReport& report) { planner_.Add(report); },
                     .failed = [](const Error& error) { ADD_FAILURE() << error.message; },
                     .plan = [this](const PlanningInput& input) { return planner_.Plan(input); }});
  }
  std::string Register(const std::string& key) {
    return store_->CreateJob({.key = key, .body = "{}", .target = ""}, now_)->job.id;
  }
  void Change(const std::string& job) {
    ASSERT_TRUE(store_->SetTarget(job, std::to_string(++changes_), now_));
    workers_->Wake();
  }
  bool IsIdle() { return !store_->ClaimPlanning("other replica", now_, 1)->has_value(); }

  std::unique_ptr<store::Store> store_ = *store::OpenStore("sqlite::memory:");
  std::atomic<store::Milliseconds> now_ = 1'000'000;
  int changes_ = 0;
  SlowPlanner planner_;
  std::unique_ptr<PlanningWorkers> workers_;
};

TEST_F(PlanningWorkersTest, RenewsTheClaimOfALongPlanning) {
  Start(1);
  const std::string job = Register("long");
  Change(job);
  ASSERT_TRUE(planner_.HasBegun(job));
  const store::Milliseconds first = now_ + PlanningClaims::kClaim;
  now_ += PlanningClaims::kRenewAfter;
  workers_->Wake();
  const auto end = std::chrono::steady_clock::now() + kTimeout;
  while (**store_->NextPlanningTime() <= first && std::chrono::steady_clock::now() < end) {
  }
  now_ = first;
  EXPECT_TRUE(IsIdle());
  planner_.Finish(job);
  EXPECT_TRUE(planner_.IsDone(job));
}

TEST_F(PlanningWorkersTest, ReleasesRunningPlanningsWhenItEnds) {
  Start(1);
  const std::string job = Register("long");
  Change(job);
  ASSERT_TRUE(planner_.HasBegun(job));
  workers_.reset();
  EXPECT_FALSE(IsIdle()) << "another replica can claim it at once";
}

}  // namespace
}  // namespace perseus::job_planning
