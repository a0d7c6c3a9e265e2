// Complete sweeps of the published profiles, with noise. They show how much energy the plan from
// ten clocks loses, compared with the plan from all clocks, in the true profile.
#include "perseus/runtime/profiler/sweep.h"

#include <gtest/gtest.h>

#include "perseus/base/file.h"
#include "perseus/base/random.h"
#include "perseus/planning/plan/evaluation.h"
#include "tests/support/results.h"
#include "tests/support/swept_job.h"

namespace perseus::profiler {
namespace {

class PublishedProfiles : public testing::TestWithParam<PublishedJob> {};

INSTANTIATE_TEST_SUITE_P(Both, PublishedProfiles, testing::ValuesIn(kPublishedJobs),
                         [](const auto& job) { return std::string(job.param.name); });

// The sweep measures ten of the 38 or 60 clocks. The tolerance in time: the margin of the plan is
// one standard error of each option, about 0.1 %. In a few seeds, no path is expected to exceed
// this margin by more than another 0.1 %. The limit on energy is the requirement.
TEST_P(PublishedProfiles, TenClocksGiveNearlyThePlanOfAllClocks) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SweptJob job(GetParam(), seed);
    const SweptJob::Outcome outcome = job.Sweep({});
    EXPECT_LE(outcome.most_frequencies, 10);
    EXPECT_LE(outcome.spent.steps, 60);
    EXPECT_LE(outcome.loss, 0.005) << "seed " << seed;
    EXPECT_LE(outcome.slowdown, 0.001) << "seed " << seed;
  }
}

// Ten evenly spaced clocks without a model lose more than the sweep, even with exact values.
TEST_P(PublishedProfiles, TenEvenlySpacedClocksLoseMore) {
  SweptJob job(GetParam(), 1);
  const double adaptive = job.Sweep({}).loss;
  const double even = job.EvenlySpaced(10).loss;
  EXPECT_GT(even, 0.005);
  EXPECT_LT(adaptive, even);
}

TEST_P(PublishedProfiles, BudgetsAreKept) {
  SweptJob job(GetParam(), 1);
  SweepBudget budget;
  budget.frequencies = 5;
  budget.steps = 24;
  budget.slowdown = 0.05;
  const SweptJob::Outcome outcome = job.Sweep(budget);
  EXPECT_LE(outcome.most_frequencies, 5);
  EXPECT_LE(outcome.spent.steps, 24);
  // All 24 steps count.
  EXPECT_LE(outcome.spent.Slowdown(job.baseline_s()) * outcome.spent.steps, 0.05 * 24);
}

// If a switch takes long, all kinds of a rank share one clock in a step. A step then measures less,
// and the plan loses 0.50 % on the A40. The sweep is still better than evenly spaced clocks.
TEST_P(PublishedProfiles, SlowSwitchesUseOneClockPerRank) {
  SweptJob job(GetParam(), 1);
  job.UseClocks(SweepJob::Clocks::kOneARank);
  const SweptJob::Outcome outcome = job.Sweep({});
  EXPECT_EQ(outcome.most_clocks_of_rank, 1);
  EXPECT_LE(outcome.most_frequencies, 10);
  EXPECT_LT(outcome.loss, job.EvenlySpaced(10).loss);
}

TEST(ChooseRound, BeginsWithTheHighestClocks) {
  SweepJob job;
  job.schedule = *schedule::GenerateSchedule({"1f1b", 2, 4, 1});
  job.clocks_mhz = {{1000, 1200, 1400}, {900, 1300}};
  const SweepRound round = ValueOf(ChooseRound(job, {}, {}, {}));
  ASSERT_EQ(round.clocks.size(), 4u);
  for (const protocol::KindClock& clock : round.clocks) {
    EXPECT_EQ(clock.frequency_mhz, clock.pp_rank == 0 ? 1400 : 1300);
  }
}

TEST(ChooseRound, RefusesMeasurementsOfAnotherJob) {
  SweepJob job;
  job.schedule = *schedule::GenerateSchedule({"1f1b", 2, 4, 1});
  job.clocks_mhz = {{1400}, {1400}};
  const MeasuredOption other{{5, 0, InstructionKind::kForward}, 1400, 24, 0.05, 0.001, 400, 1};
  EXPECT_THAT(
      ChooseRound(job, {}, std::vector{other}, {}),
      FailsWith("forward of chunk 0 on rank 5 was measured, but the schedule 1f1b has no such "
                "instruction (are the measurements of another job?)"));
  job.clocks_mhz.pop_back();
  EXPECT_FALSE(ChooseRound(job, {}, {}, {}));
}

// The counter never shows the power of an instruction that computes nothing. An example is the
// first stage's backward_input in a zero-bubble schedule.
TEST(ChooseRound, AnInstructionThatComputesNothingHoldsUpNothing) {
  SweepJob job;
  job.schedule = *schedule::GenerateSchedule({"zb-h1", 2, 4, 1});
  job.model.blocking_power_w = 80;
  job.clocks_mhz = {{660, 770, 880, 1000}, {660, 770, 880, 1000}};
  std::vector<MeasuredOption> measured;
  for (const InstructionGroup& group : GroupsOf(job.schedule)) {
    const bool is_nothing = group.rank == 0 && group.kind == InstructionKind::kBackwardInput;
    measured.push_back({group, 1000, 100, is_nothing ? 30e-6 : 0.05, 1e-6, is_nothing ? 0.0 : 400.0,
                        is_nothing ? 0.0 : 1.0});
  }
  const SweepRound round = ValueOf(ChooseRound(job, {}, measured, {.steps = 10, .seconds = 5}));
  EXPECT_EQ(round.reason, "descent");
  EXPECT_EQ(round.steps, 3);
  for (const protocol::KindClock& clock : round.clocks) EXPECT_EQ(clock.frequency_mhz, 880);

  // If the instruction computes something, its power is worth more steps at the highest clocks, but
  // not all steps.
  measured.front().power_w = 0;
  const auto clock_after = [&](int steps) {
    const Result<SweepRound> next =
        ChooseRound(job, {}, measured, {.steps = steps, .seconds = 0.5 * steps});
    EXPECT_TRUE(next) << next.error().Message();
    return next ? next->clocks.front().frequency_mhz : 0;
  };
  EXPECT_EQ(clock_after(10), 1000);
  EXPECT_EQ(clock_after(20), 880);
}

TEST(ChooseRound, AnOptimizerThatIsTooShortToMeasureHoldsUpNothing) {
  SweepJob job;
  job.schedule = *schedule::GenerateSchedule({"1f1b", 1, 4, 1});
  job.schedule.pp_ranks[0].push_back({InstructionKind::kOptimizerStep, 0, 0});
  job.model.blocking_power_w = 80;
  job.clocks_mhz = {{660, 770, 880, 1000}};
  job.clocks = SweepJob::Clocks::kOneARank;
  std::vector<MeasuredOption> measured;
  for (const InstructionKind kind : {InstructionKind::kForward, InstructionKind::kBackward}) {
    measured.push_back({{0, 0, kind}, 1000, 100, 0.05, 1e-5, 400, 0.1});
  }
  const auto expect_descent = [&] {
    const SweepRound round = ValueOf(ChooseRound(job, {}, measured, {.steps = 10, .seconds = 5}));
    EXPECT_EQ(round.reason, "descent");
    EXPECT_EQ(round.clocks.size(), 3U);
    for (const protocol::KindClock& clock : round.clocks) EXPECT_EQ(clock.frequency_mhz, 880);
  };
  expect_descent();
  // Its time is known, but not its power.
  measured.push_back({{0, 0, InstructionKind::kOptimizerStep}, 1000, 100, 0.0005, 1e-6, 0, 0});
  expect_descent();
}

TEST(ChooseRound, AGroupStopsWhereLowerClocksSaveNothing) {
  SweepJob job;
  job.schedule = *schedule::GenerateSchedule({"1f1b", 1, 4, 1});
  job.model.blocking_power_w = 80;
  job.clocks_mhz = {{660, 770, 880, 1000}};
  std::vector<MeasuredOption> measured;
  for (const InstructionKind kind : {InstructionKind::kForward, InstructionKind::kBackward}) {
    const bool loses = kind == InstructionKind::kForward;
    measured.push_back({{0, 0, kind}, 1000, 100, 0.05, 1e-5, 400, 0.1});
    // At a lower clock, the forward is slower and hardly saves power.
    measured.push_back({{0, 0, kind}, 880, 100, 0.055, 1e-5, loses ? 395.0 : 300.0, 0.1});
  }
  const SweepRound round = ValueOf(ChooseRound(job, {}, measured, {.steps = 6, .seconds = 3}));
  EXPECT_EQ(round.reason, "descent");
  for (const protocol::KindClock& clock : round.clocks) {
    EXPECT_EQ(clock.frequency_mhz, clock.kind == InstructionKind::kForward ? 1000 : 770);
  }
}

// Clocks of 1000 and 1400 MHz, of which `slower` is the time at the lower one.
profile::Profile PlanningProfileOf(SweepJob job, double slower) {
  job.schedule = *schedule::GenerateSchedule({"1f1b", 1, 2, 1});
  job.schedule.pp_ranks[0].push_back({InstructionKind::kOptimizerStep, 0, 0});
  job.clocks_mhz = {{1000, 1400}};
  std::vector<MeasuredOption> measured;
  for (const InstructionGroup& group : GroupsOf(job.schedule)) {
    measured.push_back({group, 1400, 100, 0.05, 1e-5, 400, 0.1});
    measured.push_back({group, 1000, 100, 0.05 * slower, 1e-5, 250, 0.1});
  }
  return ValueOf(PlanningProfile(job, measured));
}

TEST(PlanningProfile, TakesNoOptionThatIsLongerThanTheLongest) {
  SweepJob job;
  job.longest[{0, 0, InstructionKind::kForward}] = 60 * kMillisecond;
  job.longest[{0, 0, InstructionKind::kBackward}] = 40 * kMillisecond;  // The highest clock stays.
  const profile::Profile profile = PlanningProfileOf(job, 1.4);
  EXPECT_EQ(profile.Find(0, 0, InstructionKind::kForward)->options.size(), 1U);
  EXPECT_EQ(profile.Find(0, 0, InstructionKind::kBackward)->options.size(), 1U);
  EXPECT_EQ(profile.Find(0, 0, InstructionKind::kOptimizerStep)->options.size(), 2U);
  job.longest.clear();
  EXPECT_EQ(PlanningProfileOf(job, 1.4).Find(0, 0, InstructionKind::kForward)->options.size(), 2U);
}

TEST(PlanningProfile, AnOptimizerThatMemoryLimitsIsAsFastAtALowerClock) {
  const auto is_as_fast = [](InstructionKind kind, double slower) {
    const profile::Profile profile = PlanningProfileOf({}, slower);
    const std::vector<profile::Option>& options = profile.Find(0, 0, kind)->options;
    return options.front().time == options.back().time;
  };
  EXPECT_TRUE(is_as_fast(InstructionKind::kOptimizerStep, 1.001));
  EXPECT_TRUE(is_as_fast(InstructionKind::kOptimizerStep, 0.999));
  EXPECT_FALSE(is_as_fast(InstructionKind::kOptimizerStep, 1.01));
  EXPECT_FALSE(is_as_fast(InstructionKind::kForward, 1.001));
}

TEST(PlanningProfile, AnOptimizerThatIsTooShortToMeasureIsAPartOfABackward) {
  SweepJob job;
  job.schedule = *schedule::GenerateSchedule({"1f1b", 1, 2, 1});
  job.schedule.pp_ranks[0].push_back({InstructionKind::kOptimizerStep, 0, 0});
  job.clocks_mhz = {{1000, 1400}};
  std::vector<MeasuredOption> measured;
  for (const InstructionKind kind : {InstructionKind::kForward, InstructionKind::kBackward}) {
    measured.push_back({{0, 0, kind}, 1400, 100, 0.05, 1e-5, 400, 0.1});
    measured.push_back({{0, 0, kind}, 1000, 100, 0.07, 1e-5, 250, 0.1});
  }
  const auto part = [&] {
    const profile::Profile profile = ValueOf(PlanningProfile(job, measured, 0));
    const auto times = [&](InstructionKind kind) {
      std::vector<double> times_s;
      for (const profile::Option& option : profile.Find(0, 0, kind)->options) {
        times_s.push_back(ToSeconds(option.time));
      }
      return times_s;
    };
    const auto backward = times(InstructionKind::kBackward);
    const auto optimizer = times(InstructionKind::kOptimizerStep);
    EXPECT_EQ(optimizer.size(), 2U);
    EXPECT_NEAR(optimizer[1] / optimizer[0], backward[1] / backward[0], 1e-3);
    return optimizer[0] / backward[0];
  };
  EXPECT_LT(part(), 0.001);
  // Its time is known, but not its power.
  measured.push_back({{0, 0, InstructionKind::kOptimizerStep}, 1400, 100, 0.0005, 1e-6, 0, 0});
  EXPECT_NEAR(part(), 0.01, 1e-3);
}

}  // namespace
}  // namespace perseus::profiler
