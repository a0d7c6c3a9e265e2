// Plans of the tuner that limit clock changes, with and without a margin for noise.
#include "perseus/runtime/tuner/tuned_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace perseus::tuner {
namespace {

constexpr int kRanks = 3;
constexpr int kHighestMhz = 1400;

// The time of an instruction is inverse to the clock, and its power rises with the clock. The last
// rank takes longer, so that the others have slack.
std::vector<profiler::MeasuredOption> MeasureAll(const profiler::SweepJob& job) {
  std::vector<profiler::MeasuredOption> measured;
  for (const profiler::InstructionGroup& group : profiler::GroupsOf(job.schedule)) {
    const double fastest_s = (group.kind == InstructionKind::kForward ? 0.01 : 0.02) *
                             (group.rank == kRanks - 1 ? 1.3 : 1);
    for (const int mhz : job.clocks_mhz[static_cast<std::size_t>(group.rank)]) {
      const double speed = static_cast<double>(mhz) / kHighestMhz;
      measured.push_back({.group = group,
                          .frequency_mhz = mhz,
                          .samples = 100,
                          .time_s = fastest_s / speed,
                          .time_ci_s = 1e-6,
                          .power_w = 100 + 250 * speed * speed * speed,
                          .power_ci_w = 0.01});
    }
  }
  return measured;
}

profiler::SweepJob MakeSweepJob(const few_switches::ChangeLimit& limit) {
  profiler::SweepJob job;
  job.schedule = *schedule::GenerateSchedule(
      {.name = "1f1b", .pp_ranks = kRanks, .microbatches = 6, .chunks = 1});
  job.model.blocking_power_w = 60;
  job.clocks_mhz.assign(kRanks, {800, 900, 1000, 1100, 1200, 1300, kHighestMhz});
  job.change_limit = limit;
  return job;
}

TunedPlan MakePlan(const few_switches::ChangeLimit& limit,
                   const std::optional<noise::Noise>& noise = {}, const plan::Target& target = {},
                   double time_ci_s = 1e-6) {
  const profiler::SweepJob job = MakeSweepJob(limit);
  plan_file::PlannedJob planned;
  planned.schedule = job.schedule;
  planned.model = job.model;
  auto measured = MeasureAll(job);
  for (profiler::MeasuredOption& option : measured) option.time_ci_s = time_ci_s;
  auto plan = TunedPlan::Make(job, planned, target, measured, noise);
  EXPECT_TRUE(plan) << plan.error().Message();
  return *std::move(plan);
}

// Returns the largest number of changes of a rank, including the change back at the end.
int MostChangesOf(const plan_file::PlanFile& plan) {
  int most = 0;
  for (const plan_file::PlannedRank& rank : plan.pp_ranks) {
    int changes = 0;
    double last = rank.instructions.back().frequency_mhz;
    for (const plan_file::PlannedInstruction& instruction : rank.instructions) {
      if (instruction.frequency_mhz != last) ++changes;
      last = instruction.frequency_mhz;
    }
    most = std::max(most, changes);
  }
  return most;
}

TEST(TunedPlan, KeepsALimitOfClockChanges) {
  const TunedPlan free = MakePlan({});
  ASSERT_GT(MostChangesOf(free.file()), 2);
  const TunedPlan limited = MakePlan({.most_changes = 2});
  EXPECT_LE(MostChangesOf(limited.file()), 2);
  EXPECT_EQ(limited.file().target, "no slowdown, at most 2 switches per GPU");
  EXPECT_GT(limited.saving(), 0);
  EXPECT_LE(limited.saving(), free.saving());
}

// The promise is computed without margins. Times with margins would make powers look lower.
TEST(TunedPlan, PromisesAPowerOrAnEnergyWithinItsTarget) {
  using Kind = plan::Target::Kind;
  const plan_file::PlanFile fast = MakePlan({}).file();
  for (const few_switches::ChangeLimit& limit :
       {few_switches::ChangeLimit(), few_switches::ChangeLimit{.most_changes = 2}}) {
    for (const double part : {0.99, 0.95, 0.9}) {
      SCOPED_TRACE(part);
      const double power_w = part * fast.energy_j / ToSeconds(fast.time);
      const auto capped =
          MakePlan(limit, {}, {.kind = Kind::kPowerCap, .value = power_w}, 2e-4).file();
      EXPECT_LE(capped.energy_j / ToSeconds(capped.time), power_w);
      const double energy_j = part * fast.energy_j;
      const auto within =
          MakePlan(limit, {}, {.kind = Kind::kEnergyBudget, .value = energy_j}, 2e-4).file();
      EXPECT_LE(within.energy_j, energy_j);
    }
  }
}

TEST(TunedPlan, KeepsALimitOfClockChangesWithAMargin) {
  const noise::Noise noise{0.02, 0};
  const few_switches::ChangeLimit limit{.most_changes = 2};
  const TunedPlan limited = MakePlan(limit, noise);
  EXPECT_LE(MostChangesOf(limited.file()), 2);
  EXPECT_LE(limited.slowdown(), 0);
  EXPECT_GT(limited.saving(), 0);
  const auto mean_of = [&](const TunedPlan& plan) {
    const auto judge = profiler::PlannerOf(MakeSweepJob(limit), plan.profile()).value();
    const auto options = plan_file::FindOptions(plan.file(), judge.graph(), "the plan").value();
    return noise::CompareWithBaseline(judge, options, noise);
  };
  EXPECT_LE(mean_of(limited).slowdown, 6e-4);
  EXPECT_GT(mean_of(MakePlan(limit)).slowdown, 1e-3);
}

// Returns the steps that the plan promises, with energies multiplied by these factors.
SeenSteps Seen(const TunedPlan& plan, double baseline_factor, double factor) {
  const plan_file::PlanFile& file = plan.file();
  const double pipelines = file.job.pipelines;
  return {ToSeconds(file.time), file.energy_j * factor * pipelines, ToSeconds(file.baseline_time),
          file.baseline_energy_j * baseline_factor * pipelines, 0};
}

TEST(TunedPlan, PromisesTheEnergyOfWholeSteps) {
  const profiler::SweepJob job = MakeSweepJob({});
  TunedPlan plan = MakePlan({});
  const SeenSteps seen = Seen(plan, 1.05, 0.95);
  ASSERT_GT(std::abs(seen.saving() - plan.saving()), 0.05);
  ASSERT_TRUE(plan.JudgeBy(job, MeasureAll(job), seen));
  EXPECT_NEAR(plan.saving(), seen.saving(), 1e-6);
}

// If errors of measurement cannot explain a part of the difference, this part stays in the promise.
TEST(TunedPlan, EnergiesAreScaledByAQuarterAtMost) {
  const profiler::SweepJob job = MakeSweepJob({});
  TunedPlan plan = MakePlan({});
  const double before_j = plan.file().energy_j;
  const SeenSteps seen = Seen(plan, 1, 0.5);
  ASSERT_TRUE(plan.JudgeBy(job, MeasureAll(job), seen));
  EXPECT_LT(plan.file().energy_j, before_j);
  EXPECT_GT(plan.file().energy_j, before_j / 1.25);
  EXPECT_LT(plan.saving(), seen.saving() - 0.05);
}

}  // namespace
}  // namespace perseus::tuner
