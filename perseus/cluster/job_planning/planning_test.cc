#include "perseus/cluster/job_planning/planning.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "perseus/cluster/job_planning/first_step.h"
#include "perseus/cluster/job_planning/planning_workers.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::job_planning {
namespace {

using store::PlannedAssignment;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::string_view kPlanningJob = R"({"key": "run", "pipelines": 3,
  "schedule": {"kind": "1f1b", "pp_ranks": 4, "microbatches": 12},
  "gpu": {"blocking_power_w": 80}})";

std::string Csv(int stages = 4) {
  synthetic::SyntheticProfileSpec spec;
  spec.pp_ranks = stages;
  const auto profile = synthetic::SynthesizeProfile(spec);
  EXPECT_TRUE(profile);
  return profile::FormatProfile(*profile);
}

// A job in a store. The test plans the job as a worker does.
class PlanningTest : public testing::Test {
 protected:
  PlanningTest() { Register("run", std::string(kPlanningJob)); }

  // Registers a job. From now on, the other functions use this job.
  void Register(const std::string& key, const std::string& body) {
    job_ = store_->CreateJob({.key = key, .body = body, .target = ""}, now_)->job.id;
  }
  store::JobRecord Job() { return **store_->FindJob(job_); }
  // Plans until nothing is due. Returns the number of plannings.
  int Plan() {
    int plannings = 0;
    while (const auto task = *store_->ClaimPlanning("test", now_, 1000)) {
      const auto input = GatherPlanningInput(*store_, task->job, now_);
      EXPECT_TRUE(input && *input);
      const auto outcome = PlanJob(**input);
      EXPECT_TRUE(outcome) << outcome.error().Message();
      EXPECT_TRUE(*store_->CompletePlanning(*task, *outcome, now_));
      ++plannings;
    }
    return plannings;
  }
  // Uploads a profile and plans the job.
  void PlanWithProfile() {
    ASSERT_TRUE(store_->PutProfile(job_, Csv(), now_));
    Plan();
  }
  PlannedAssignment Assignment() { return (*store_->FindNewestAssignment(job_))->assignment; }
  // Compares the plan of the first pipeline with the highest clocks, under this noise.
  noise::NoisyDifference MeanOf(const PlannedAssignment& assignment, const noise::Noise& noise) {
    const PreparedJob job = PrepareJob(Job(), {.version = 1, .csv = Csv()}).value();
    const auto file = PlanOf(assignment);
    const auto options = plan_file::FindOptions(file, job.planner.graph(), "the plan").value();
    return noise::NoisyExecution(job.planner.graph(), job.planner.model(), noise, 2000, 9)
        .Compare(options, schedule::BaselineOptions(job.planner.graph()));
  }
  plan_file::PlanFile PlanOf(const PlannedAssignment& assignment) {
    const auto record = store_->FindPlanById(assignment.pipelines[0].plan);
    return plan_file::ParsePlan((*record)->body, "the plan").value();
  }
  // Registers another job. It is the same job, with a limit of two clock changes.
  void LimitClockChanges() {
    std::string body(kPlanningJob);
    body.insert(1, R"("max_switches": 2, )");
    body.replace(body.find("\"run\""), 5, "\"few\"");
    Register("few", body);
  }
  void Straggle(int dp_rank, double slowdown, Milliseconds starts, Milliseconds expires) {
    ASSERT_TRUE(store_->PutStraggler({.job = job_,
                                      .dp_rank = dp_rank,
                                      .source = store::StragglerSource::kReport,
                                      .slowdown = slowdown,
                                      .starts = starts,
                                      .expires = expires},
                                     now_));
  }

  std::unique_ptr<store::Store> store_ = *store::OpenStore("sqlite::memory:");
  Milliseconds now_ = 1'000'000;
  std::string job_;
};

TEST_F(PlanningTest, WaitsForAProfile) {
  Plan();
  EXPECT_EQ(Job().status, store::JobStatus::kWaiting);
  EXPECT_FALSE(*store_->FindNewestAssignment(job_));
}

TEST_F(PlanningTest, AssignsThePlanOfTheTargetToAllPipelines) {
  ASSERT_TRUE(store_->PutProfile(job_, Csv(), now_));
  EXPECT_GE(Plan(), 1);
  EXPECT_EQ(Job().status, store::JobStatus::kPlanned) << Job().problem;
  EXPECT_EQ(Job().planned_generation, Job().generation);
  const PlannedAssignment assignment = Assignment();
  ASSERT_THAT(assignment.pipelines, SizeIs(3));
  EXPECT_EQ(assignment.pipelines[0], assignment.pipelines[2]);
  EXPECT_EQ(assignment.target, "no slowdown");
  EXPECT_LE(assignment.time_s, assignment.baseline_time_s);
  EXPECT_LT(assignment.pipelines[0].energy_j, 0.97 * assignment.baseline_energy_j);
  const auto frontier = nlohmann::json::parse(**store_->FindFrontier(job_));
  EXPECT_EQ(frontier["profile_version"], 1);
  EXPECT_NEAR(frontier["points"][0]["time_s"].get<double>(), assignment.baseline_time_s,
              0.01 * assignment.baseline_time_s);
}

// The plan with a margin keeps its mean time under noise. So it needs more energy.
TEST_F(PlanningTest, TheNoiseOfTheProfileGivesAMargin) {
  const auto without = profile::ParseProfile(Csv(), "p.csv").value();
  ASSERT_TRUE(store_->PutProfile(job_, profile::FormatProfile(without, {0.02, 0.01}), now_));
  Plan();
  const PlannedAssignment noisy = Assignment();
  EXPECT_EQ(noisy.reason, "profile 1, margin for noise of 2 % and 1 % in common");
  ASSERT_TRUE(store_->PutProfile(job_, profile::FormatProfile(without), now_));
  Plan();
  const PlannedAssignment quiet = Assignment();
  EXPECT_EQ(quiet.reason, "profile 2");
  EXPECT_GT(noisy.pipelines[0].energy_j, quiet.pipelines[0].energy_j);
  EXPECT_LT(noisy.pipelines[0].energy_j, 0.97 * noisy.baseline_energy_j);
  const noise::NoisyDifference with = MeanOf(noisy, {0.02, 0.01});
  EXPECT_LE(with.slowdown, 5e-4 + with.slowdown_ci);
  EXPECT_GT(MeanOf(quiet, {0.02, 0.01}).slowdown, 0.003);
}

TEST_F(PlanningTest, EqualSlowdownsKeepThePlansAndChangeTheTime) {
  PlanWithProfile();
  const PlannedAssignment before = Assignment();
  for (int dp_rank = 0; dp_rank < 3; ++dp_rank) Straggle(dp_rank, 1.25, now_, 0);
  Plan();
  EXPECT_EQ(Assignment().pipelines, before.pipelines) << "all are equally slow";
  EXPECT_DOUBLE_EQ(Assignment().time_s, 1.25 * before.time_s);
}

TEST_F(PlanningTest, WithoutAChangeThereIsNoNewVersion) {
  PlanWithProfile();
  const std::int64_t version = Job().assignment_version;
  ASSERT_TRUE(store_->RequestPlanning(job_, now_));
  EXPECT_EQ(Plan(), 1);
  EXPECT_EQ(Job().assignment_version, version);
  now_ += 100'000;
  EXPECT_EQ(Plan(), 0);
}

TEST_F(PlanningTest, NodesDoNotWaitForTheFrontierOfALargeJob) {
  Register("large", R"({"key": "large",
      "schedule": {"kind": "1f1b", "pp_ranks": 4, "microbatches": 300},
      "gpu": {"blocking_power_w": 80}})");
  ASSERT_TRUE(store_->PutProfile(job_, Csv(), now_));
  EXPECT_EQ(Plan(), 1);
  EXPECT_EQ(Job().assignment_version, 1);
  EXPECT_FALSE(store_->FindFrontier(job_)->has_value());
  now_ += 3000;
  EXPECT_EQ(Plan(), 1);
  EXPECT_EQ(Job().assignment_version, 1);
  EXPECT_TRUE(store_->FindFrontier(job_)->has_value());
  now_ += 100'000;
  EXPECT_EQ(Plan(), 0);
}

// Counts the clock changes of each pp_rank in an iteration that repeats.
std::vector<int> CountChanges(const plan_file::PlanFile& plan) {
  std::vector<int> changes;
  for (const plan_file::PlannedRank& rank : plan.pp_ranks) {
    std::vector<double> clocks;
    for (const auto& instruction : rank.instructions) {
      if (instruction.frequency_mhz > 0) clocks.push_back(instruction.frequency_mhz);
    }
    int& count = changes.emplace_back(0);
    for (std::size_t i = 0; i < clocks.size(); ++i) {
      if (clocks[i] != clocks[(i + 1) % clocks.size()]) ++count;
    }
  }
  return changes;
}

TEST_F(PlanningTest, KeepsTheLimitOfClockChangesAlsoForStragglers) {
  LimitClockChanges();
  ASSERT_TRUE(store_->PutProfile(job_, Csv(), now_));
  Straggle(1, 1.2, now_, 0);
  Plan();
  ASSERT_EQ(Job().status, store::JobStatus::kPlanned) << Job().problem;
  for (const char* slug : {"no-slowdown", "no-slowdown+straggler-1.2"}) {
    SCOPED_TRACE(slug);
    const auto record = *store_->FindPlan(job_, slug);
    ASSERT_TRUE(record);
    const auto plan = plan_file::ParsePlan(record->body, slug);
    ASSERT_TRUE(plan) << plan.error().Message();
    EXPECT_THAT(CountChanges(*plan), testing::Each(testing::Le(2)));
    EXPECT_THAT(plan->target, HasSubstr("at most 2 switches per GPU"));
    EXPECT_LE(plan->time, plan->deadline);
    EXPECT_LT(plan->energy_j, plan->baseline_energy_j);
  }
}

// A plan that a client requests keeps its target, even with a limit of clock changes and with
// noise.
TEST_F(PlanningTest, APlanKeepsItsPowerCapOrEnergyBudget) {
  using Kind = plan::Target::Kind;
  const auto profile = profile::ParseProfile(Csv(2), "p.csv").value();
  const std::string noisy = profile::FormatProfile(profile, noise::Noise{0.02, 0});
  for (const bool is_limited : {false, true}) {
    // The job is small, so that the search for plans with few clock changes is short.
    Register(is_limited ? "limited" : "free",
             fmt::format(R"({{"key": "small", {}"pipelines": 3,
               "schedule": {{"kind": "1f1b", "pp_ranks": 2, "microbatches": 2}},
               "gpu": {{"blocking_power_w": 80}}}})",
                         is_limited ? R"("max_switches": 2, )" : ""));
    const PreparedJob job = PrepareJob(Job(), {.version = 1, .csv = noisy}).value();
    const auto plan_of = [&](const plan::Target& target) {
      const auto made = MakePlan(job, target, {});
      EXPECT_TRUE(made) << made.error().Message();
      return plan_file::ParsePlan(made->body, "the plan").value();
    };
    const plan_file::PlanFile fast = plan_of({});
    for (const double part : {1.0, 0.99, 0.96}) {
      SCOPED_TRACE(part);
      const double energy_j = part * fast.energy_j;
      const double power_w = energy_j / ToSeconds(fast.time);
      EXPECT_LE(plan_of({.kind = Kind::kEnergyBudget, .value = energy_j}).energy_j, energy_j);
      const auto capped = plan_of({.kind = Kind::kPowerCap, .value = power_w});
      EXPECT_LE(capped.energy_j / ToSeconds(capped.time), power_w);
      if (is_limited) {
        EXPECT_THAT(CountChanges(capped), testing::Each(testing::Le(2)));
      }
    }
  }
}

TEST_F(PlanningTest, AMarginForNoiseKeepsTheLimitOfClockChanges) {
  const noise::Noise noise{0.02, 0};
  LimitClockChanges();
  const auto profile = profile::ParseProfile(Csv(), "p.csv").value();
  ASSERT_TRUE(store_->PutProfile(job_, profile::FormatProfile(profile, noise), now_));
  Plan();
  const PlannedAssignment noisy = Assignment();
  ASSERT_TRUE(store_->PutProfile(job_, profile::FormatProfile(profile), now_));
  Plan();
  const PlannedAssignment quiet = Assignment();
  EXPECT_THAT(CountChanges(PlanOf(noisy)), testing::Each(testing::Le(2)));
  EXPECT_LT(noisy.pipelines[0].energy_j, noisy.baseline_energy_j);
  // Not 0, because the server checks with fewer samples.
  EXPECT_LE(MeanOf(noisy, noise).slowdown, 7e-4);
  EXPECT_GT(MeanOf(quiet, noise).slowdown, 1e-3);
}

TEST_F(PlanningTest, AStoppedPlanningIsASystemError) {
  ASSERT_TRUE(store_->PutProfile(job_, Csv(), now_));
  std::stop_source stop;
  stop.request_stop();
  auto input = **GatherPlanningInput(*store_, job_, now_);
  input.stop = stop.get_token();
  const auto stopped = PlanJob(input);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().kind, ErrorKind::kSystem);
}

TEST_F(PlanningTest, SlowsTheOtherPipelinesForAStragglerUntilItEnds) {
  PlanWithProfile();
  const PlannedAssignment before = Assignment();
  Straggle(1, 1.2, now_, now_ + 60'000);
  Plan();
  const PlannedAssignment during = Assignment();
  EXPECT_EQ(during.pipelines[1], before.pipelines[1]) << "the straggler keeps its plan";
  EXPECT_GT(during.pipelines[0].time_s, 1.05 * before.time_s);
  EXPECT_LE(during.pipelines[0].time_s, 1.2 * before.time_s * (1 + 1e-9));
  EXPECT_LT(during.pipelines[0].energy_j, before.pipelines[0].energy_j);
  EXPECT_EQ(during.pipelines[0], during.pipelines[2]);
  EXPECT_NEAR(during.time_s, 1.2 * before.time_s, 1e-9);
  EXPECT_THAT(during.reason, HasSubstr("straggler 1: 20.00 %"));
  EXPECT_THAT(during.upcoming, IsEmpty()) << "the nodes already have the plans that follow";
  now_ += 60'000;
  Plan();
  EXPECT_EQ(Assignment().pipelines, before.pipelines) << "the same plans";
}

// A plan that an older program stored has no numbers in its row.
TEST_F(PlanningTest, ReadsTheNumbersOfAnOldPlanFromItsFile) {
  PlanWithProfile();
  const PlannedAssignment before = Assignment();
  auto input = **GatherPlanningInput(*store_, job_, now_);
  input.assignment.reset();
  input.find_plan = [this](std::string_view slug) {
    auto record = store_->FindPlan(job_, slug);
    (**record).time_s = (**record).energy_j = 0;
    (**record).baseline_time_s = (**record).baseline_energy_j = 0;
    return record;
  };
  const auto outcome = PlanJob(input);
  ASSERT_TRUE(outcome) << outcome.error().Message();
  EXPECT_EQ(outcome->assignment, before);
  EXPECT_THAT(outcome->plans, IsEmpty());
}

// The iteration takes about 2 s, so 2 changes per second allow a few changes.
TEST_F(PlanningTest, PlansKeepTheRateOfClockChanges) {
  Register("limited", R"({"key": "limited", "pipelines": 2,
      "schedule": {"kind": "1f1b", "pp_ranks": 4, "microbatches": 12},
      "gpu": {"blocking_power_w": 80, "most_changes_per_s": 2}})");
  PlanWithProfile();
  Straggle(1, 1.2, now_, 0);
  Plan();
  const auto plans = *store_->ListPlans(job_, 100);
  ASSERT_EQ(plans.size(), 2U);
  const auto numbers_of = [](const plan_file::PlanFile& plan) {
    return std::vector{ToSeconds(plan.time), plan.energy_j, ToSeconds(plan.baseline_time),
                       plan.baseline_energy_j};
  };
  for (const auto& record : plans) {
    const auto file = plan_file::ParsePlan((*store_->FindPlanById(record.id))->body, "plan");
    ASSERT_TRUE(file) << file.error().Message();
    EXPECT_EQ(numbers_of(*file), (std::vector{record.time_s, record.energy_j,
                                              record.baseline_time_s, record.baseline_energy_j}));
    const int most = static_cast<int>(0.95 * 2 * ToSeconds(file->deadline));
    EXPECT_LE(file->switches, 4 * most);
    EXPECT_THAT(file->target, HasSubstr("at most " + std::to_string(most) + " switches per GPU"));
  }
}

TEST_F(PlanningTest, SaysWhatIsProbablyWrongWithAProfile) {
  EXPECT_THAT(PrepareJob(Job(), {.version = 1, .csv = Csv()})->warnings, IsEmpty());
  std::string in_other_unit = "stage,instruction,frequency,time,energy\n";
  for (int stage = 0; stage < 4; ++stage) {
    for (const char* kind : {"forward", "backward"}) {
      in_other_unit += fmt::format("{0},{1},14,0.010,4\n{0},{1},12,0.012,3.2\n", stage, kind);
    }
  }
  EXPECT_THAT(PrepareJob(Job(), {.version = 1, .csv = in_other_unit})->warnings,
              ElementsAre(HasSubstr("probably in GHz")));
}

TEST_F(PlanningTest, NamesThePlansForAnAnnouncedStraggler) {
  PlanWithProfile();
  const PlannedAssignment before = Assignment();
  Straggle(0, 1.3, now_ + 30'000, 0);
  Plan();
  const PlannedAssignment announced = Assignment();
  EXPECT_EQ(announced.pipelines, before.pipelines);
  ASSERT_THAT(announced.upcoming, SizeIs(1));
  now_ += 30'000;
  Plan();
  EXPECT_NE(Assignment().pipelines[1], before.pipelines[1]);
}

TEST_F(PlanningTest, ReusesThePlansOfTheStore) {
  PlanWithProfile();
  for (int i = 0; i < 5; ++i) {
    Straggle(1, 1.2501 + 0.001 * i, now_, 0);
    Plan();
    ASSERT_TRUE(*store_->DeleteStraggler(job_, 1, store::StragglerSource::kReport, now_));
    Plan();
  }
  EXPECT_EQ(store_->ListPlans(job_, 100)->size(), 2U);
}

TEST_F(PlanningTest, AnImpossibleTargetFailsAndKeepsTheAssignment) {
  PlanWithProfile();
  const auto before = store_->FindNewestAssignment(job_);
  ASSERT_TRUE(store_->SetTarget(job_, R"({"kind": "deadline", "value": 0.001})", now_));
  Plan();
  EXPECT_EQ(Job().status, store::JobStatus::kFailed);
  EXPECT_THAT(Job().problem, HasSubstr("0.001"));
  EXPECT_EQ(**store_->FindNewestAssignment(job_), **before);
  ASSERT_TRUE(store_->SetTarget(job_, R"({"kind": "slowdown", "value": 10})", now_));
  Plan();
  EXPECT_EQ(Job().status, store::JobStatus::kPlanned);
  EXPECT_EQ(Job().problem, "");
  EXPECT_EQ(Assignment().target, "10 % slowdown");
}

TEST(FirstStep, LeavesTimeForTheAssignmentToArrive) {
  store::JobRecord job;
  EXPECT_EQ(FirstStep(job, 3, 5000, 0.5), 0) << "no step was reported yet";
  job.last_step = 100;
  job.last_step_at = 5000;
  EXPECT_EQ(FirstStep(job, 3, 5000, 0.5), 102);
  EXPECT_EQ(FirstStep(job, 3, 8000, 0.5), 103);
  EXPECT_EQ(FirstStep(job, 0.1, 5000, 0.5), 106);
  EXPECT_EQ(FirstStep(job, 3, 5'000'000, 0.5), 112) << "a job that stands still";
  EXPECT_EQ(FirstStep(job, 1e-300, 5000, 0.5), 100 + 500'000 + 1) << "an impossible step time";
  EXPECT_EQ(FirstStep(job, 0, 5000, 0.5), 100 + 500'000 + 1);
}

TEST(FirstStep, UsesTheShortestPossibleSteps) {
  store::JobRecord job;
  job.last_step = 100;
  job.last_step_at = 5000;
  PlannedAssignment assignment;
  assignment.time_s = 4;
  store::AssignmentRecord in_force;
  in_force.assignment.time_s = 1;
  const auto from = [&](const std::optional<store::AssignmentRecord>& before) {
    return FirstStep(job, assignment, before, 7000, 0.5);
  };
  EXPECT_EQ(from({}), 102);
  EXPECT_EQ(from(in_force), 104);
  job.summary = R"({"step_s": 0.5})";
  EXPECT_EQ(from(in_force), 106);
}

TEST_F(PlanningTest, AStragglerEndsWhileTheTargetIsImpossible) {
  PlanWithProfile();
  Straggle(1, 1.25, now_, now_ + 60'000);
  Plan();
  ASSERT_TRUE(store_->SetTarget(job_, R"({"kind": "deadline", "value": 0.001})", now_));
  Plan();
  EXPECT_EQ(Job().status, store::JobStatus::kFailed);
  EXPECT_EQ(*store_->NextPlanningTime(), now_ + 60'000);
}

// Returns the targets of the audit trail, and the role that set each.
std::vector<std::string> TargetsOf(store::Store& store) {
  std::vector<std::string> targets;
  const auto records = store.ListAudit({.action = "job.target"});
  for (const store::AuditRecord& record : *records) {
    targets.push_back(fmt::format("{}: {}", store::RoleOf(record.by), record.after));
  }
  return targets;
}

TEST_F(PlanningTest, ATargetThatExpiresGivesWayToTheTargetBefore) {
  PlanWithProfile();
  const store::Author ann{.id = "t-1", .name = "ann", .role = store::Scope::kOperator};
  JobTarget cap{.target = {.value = 10}, .expires = now_ + 60'000, .then = {.value = 5}};
  ASSERT_TRUE(store_->SetTarget(job_, JobTargetJson(cap).dump(), now_, ann));
  Plan();
  EXPECT_EQ(Assignment().target, "10 % slowdown");
  now_ += 59'999;
  EXPECT_EQ(Plan(), 0);
  now_ += 1;
  // Two replicas find the expired target. One of them replaces it.
  ASSERT_TRUE(GatherPlanningInput(*store_, job_, now_));
  ASSERT_TRUE(GatherPlanningInput(*store_, job_, now_));
  EXPECT_GE(Plan(), 1);
  EXPECT_EQ(Assignment().target, "5 % slowdown");
  EXPECT_THAT(TargetsOf(*store_), ElementsAre(HasSubstr("operator: {\"kind\":\"slowdown\""),
                                              R"(server: {"kind":"slowdown","value":5.0})"));
  now_ += 60'000;
  EXPECT_EQ(Plan(), 0);
}

TEST_F(PlanningTest, ATargetOfAPersonStaysWhenTheOneBeforeWouldExpire) {
  PlanWithProfile();
  const JobTarget cap{.target = {.value = 10}, .expires = now_ + 60'000};
  ASSERT_TRUE(store_->SetTarget(job_, JobTargetJson(cap).dump(), now_));
  Plan();
  ASSERT_TRUE(store_->SetTarget(job_, R"({"kind":"slowdown","value":20})", now_));
  now_ += 60'000;
  Plan();
  EXPECT_EQ(Assignment().target, "20 % slowdown");
}

// Also without a profile, and if no plan is possible.
TEST_F(PlanningTest, ATargetWithoutAPlanExpires) {
  const JobTarget first{.target = {.value = 10}, .expires = now_ + 60'000};
  ASSERT_TRUE(store_->SetTarget(job_, JobTargetJson(first).dump(), now_));
  Plan();
  now_ += 60'000;
  Plan();
  EXPECT_EQ(Job().target, R"({"kind":"slowdown","value":0.0})");
  PlanWithProfile();
  using Kind = plan::Target::Kind;
  const JobTarget second{.target = {.kind = Kind::kDeadline, .value = 0.001},
                         .expires = now_ + 60'000};
  ASSERT_TRUE(store_->SetTarget(job_, JobTargetJson(second).dump(), now_));
  Plan();
  EXPECT_EQ(Job().status, store::JobStatus::kFailed);
  now_ += 60'000;
  Plan();
  EXPECT_EQ(Job().status, store::JobStatus::kPlanned);
}

}  // namespace
}  // namespace perseus::job_planning
