#include "perseus/runtime/tuner/pooled_measurements.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace perseus::tuner {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kRunningW = 200;
constexpr double kWaitingW = 80;

// Returns the energy until `at` of a GPU that alternately runs for `run` and waits for `run`.
double EnergyAt(Nanoseconds at, Nanoseconds run) {
  const Nanoseconds periods = at / (2 * run);
  const Nanoseconds rest = at % (2 * run);
  return ToSeconds(periods * run + std::min(rest, run)) * kRunningW +
         ToSeconds(periods * run + std::max<Nanoseconds>(0, rest - run)) * kWaitingW;
}

// Returns a step with forwards of this length at 1000 MHz, each followed by a wait of the same
// length. The counter changes every 13 ms.
protocol::RanStep MakeStep(Nanoseconds run) {
  protocol::RanStep step;
  step.on_plan = true;
  for (int i = 0; i < 40; ++i) {
    step.instructions.push_back({InstructionKind::kForward, i, 0, i * 2 * run, run, 1000});
  }
  step.end = 80 * run;
  for (Nanoseconds at = 0; at <= step.end; at += 13 * kMillisecond) {
    step.energy.push_back({at, at, EnergyAt(at, run)});
  }
  return step;
}

profiler::KnownGpu GpuThatRan(const std::vector<protocol::RanStep>& steps) {
  profiler::GpuMeasurements measurements{profiler::MeasuringSettings()};
  for (const protocol::RanStep& step : steps) measurements.Add(step);
  return {"GPU-1", "A100", std::move(measurements)};
}

TEST(PooledOptionsTest, PipelinesAreRepetitions) {
  std::map<protocol::RankId, profiler::KnownGpu> gpus;
  // There are twice as many samples of 10 ms as of 13 ms.
  gpus.emplace(protocol::RankId{0, 2, 0},
               GpuThatRan({MakeStep(10 * kMillisecond), MakeStep(10 * kMillisecond)}));
  gpus.emplace(protocol::RankId{1, 2, 0}, GpuThatRan({MakeStep(13 * kMillisecond)}));
  const std::vector<profiler::MeasuredOption> options = PooledOptions(gpus);
  ASSERT_THAT(options, SizeIs(1));
  EXPECT_EQ(options[0].group, (profiler::InstructionGroup{2, 0, InstructionKind::kForward}));
  EXPECT_EQ(options[0].frequency_mhz, 1000);
  EXPECT_EQ(options[0].samples, 120);
  EXPECT_NEAR(options[0].time_s, 0.011, 1e-9);
  // The windows are exact in this test, so the powers are exact, too.
  EXPECT_NEAR(options[0].power_w, kRunningW, 1e-3);
  EXPECT_NEAR(*PooledBlockingPower(gpus), kWaitingW, 1e-3);
}

// Two GPUs of a stage are at their power limit. One of them reaches 905 MHz. The list of clocks has
// steps of 50 MHz.
TEST(ReachedClocksTest, AreTheHighestThatAnyGpuReaches) {
  const ClocksOfRanks clocks = {{}, {}, {800, 850, 900, 950, 1000}};
  const profiler::InstructionGroup forward{2, 0, InstructionKind::kForward};
  const auto at_limit = [](int mhz) {
    protocol::RanStep step = MakeStep(10 * kMillisecond);
    step.limited_by = {"power"};
    step.is_limited = true;
    for (const protocol::RanInstruction& ran : step.instructions) {
      step.reached.push_back({ran.begin + ran.duration / 2, mhz - ran.microbatch % 4});
    }
    return step;
  };
  std::map<protocol::RankId, profiler::KnownGpu> gpus;
  gpus.emplace(protocol::RankId{0, 2, 0}, GpuThatRan({at_limit(905)}));
  protocol::RanStep lower = at_limit(880);
  for (protocol::RanInstruction& ran : lower.instructions) ran.frequency_mhz = 900;
  gpus.emplace(protocol::RankId{1, 2, 0}, GpuThatRan({at_limit(880), lower}));
  const auto reached = ReachedClocks(gpus, clocks);
  EXPECT_THAT(reached, ElementsAre(std::pair(forward, 950)));
  EXPECT_THAT(UsualClocks(gpus, clocks), ElementsAre(std::pair(forward, 900)));

  // A run with a request of 1000 MHz counts at 950 MHz.
  const ClocksOfRanks reachable = WithoutUnreached(clocks, reached);
  EXPECT_THAT(reachable[2], ElementsAre(800, 850, 900, 950));
  const std::vector<profiler::MeasuredOption> options = PooledOptions(gpus, reachable);
  ASSERT_THAT(options, SizeIs(2));
  EXPECT_EQ(options[0].frequency_mhz, 900);
  EXPECT_EQ(options[0].samples, 40);
  EXPECT_EQ(options[1].frequency_mhz, 950);
  EXPECT_EQ(options[1].samples, 80);

  // A GPU without a limit reaches all clocks. A lower request would slow it down.
  gpus.emplace(protocol::RankId{2, 2, 0}, GpuThatRan({MakeStep(10 * kMillisecond)}));
  EXPECT_THAT(ReachedClocks(gpus, clocks), ElementsAre(std::pair(forward, 1000)));
  EXPECT_THAT(UsualClocks(gpus, clocks), IsEmpty());
}

// Three GPUs take 10 ms, and one GPU takes 12 ms. Each has a narrow interval. The interval of their
// mean must nevertheless be wide.
TEST(PooledOptionsTest, SlowGpuAmongOthersWidensTheInterval) {
  const auto jittered = [](Nanoseconds run) {
    protocol::RanStep step = MakeStep(run);
    for (std::size_t i = 0; i < step.instructions.size(); ++i) {
      step.instructions[i].duration += i % 2 == 0 ? -10'000 : 10'000;
    }
    return step;
  };
  std::map<protocol::RankId, profiler::KnownGpu> gpus;
  for (int pipeline = 0; pipeline < 3; ++pipeline) {
    gpus.emplace(protocol::RankId{pipeline, 0, 0}, GpuThatRan({jittered(10 * kMillisecond)}));
  }
  EXPECT_LT(PooledOptions(gpus)[0].time_ci_s, 1e-5);
  gpus.emplace(protocol::RankId{3, 0, 0}, GpuThatRan({jittered(12 * kMillisecond)}));
  const profiler::MeasuredOption mean = PooledOptions(gpus)[0];
  EXPECT_NEAR(mean.time_s, 0.0105, 1e-6);
  // The standard deviation of the four times is 1 ms. The standard deviation of their mean is 0.5
  // ms, and 1.96 times this is 0.98 ms.
  EXPECT_NEAR(mean.time_ci_s, 0.00098, 2e-5);
}

profiler::PowerEstimate Estimate(double power_w, double standard_error_w) {
  return {power_w, standard_error_w, true};
}

TEST(PooledBlockingPowerTest, GpusThatHardlyWaitTellNothing) {
  protocol::RanStep step;
  step.on_plan = true;
  constexpr Nanoseconds kRun = 30 * kMillisecond;
  for (int i = 0; i < 40; ++i) {
    step.instructions.push_back({InstructionKind::kForward, i, 0, i * (kRun + i % 3), kRun, 1000});
  }
  step.end = 40 * (kRun + 2);
  for (Nanoseconds at = 0; at <= step.end; at += 13 * kMillisecond) {
    const double error_j = at % (26 * kMillisecond) == 0 ? 0.001 : -0.001;
    step.energy.push_back({at, at, ToSeconds(at) * kRunningW + error_j});
  }
  std::map<protocol::RankId, profiler::KnownGpu> gpus;
  gpus.emplace(protocol::RankId{0, 0, 0}, GpuThatRan({step}));
  ASSERT_TRUE(gpus.begin()->second.measurements.BlockingPower().is_identified);
  EXPECT_EQ(PooledBlockingPower(gpus), std::nullopt);
}

TEST(ConsensusPowerTest, EstimatesThatAgreeAreWeightedByTheirErrors) {
  const std::vector<profiler::PowerEstimate> estimates = {Estimate(83, 1), Estimate(85, 2)};
  EXPECT_NEAR(*ConsensusPower(estimates), (83 * 4 + 85) / 5.0, 1e-12);
}

// The measurements of a run on eight virtual GPUs that draw 84 W. One interval is far too narrow.
// With weights from standard errors alone, the mean would be 89.4 W.
TEST(ConsensusPowerTest, GpuWithAnErrorThatIsTooSmallDoesNotDecide) {
  const std::vector<profiler::PowerEstimate> estimates = {
      Estimate(83.91, 0.55), Estimate(85.94, 1.5), Estimate(94.88, 3.6), Estimate(86.94, 4.9),
      Estimate(91.82, 0.34), Estimate(88.58, 1),   Estimate(79.75, 3.3), Estimate(83.97, 5.4)};
  EXPECT_NEAR(*ConsensusPower(estimates), 87, 0.6);
}

TEST(ConsensusPowerTest, GpusThatDifferCountEqually) {
  const std::vector<profiler::PowerEstimate> estimates = {Estimate(70, 0.01), Estimate(90, 0.1)};
  EXPECT_NEAR(*ConsensusPower(estimates), 80, 0.1);
}

TEST(ConsensusPowerTest, WhatIsNotIdentifiedDoesNotCount) {
  const std::vector<profiler::PowerEstimate> estimates = {{500, 1, false}, Estimate(84, 3)};
  EXPECT_EQ(*ConsensusPower(estimates), 84);
  EXPECT_EQ(ConsensusPower(std::span(estimates).first(1)), std::nullopt);
  EXPECT_EQ(ConsensusPower({}), std::nullopt);
}

TEST(PooledOptionsTest, ClocksThatWereNotRequestedAreNoOptions) {
  protocol::RanStep step = MakeStep(10 * kMillisecond);
  for (protocol::RanInstruction& ran : step.instructions) ran.frequency_mhz = 0;
  std::map<protocol::RankId, profiler::KnownGpu> gpus;
  gpus.emplace(protocol::RankId{}, GpuThatRan({step}));
  EXPECT_THAT(PooledOptions(gpus), IsEmpty());
  EXPECT_FALSE(PooledBlockingPower({}));
}

// A plan changes the clock in almost every window, so powers measured with a plan are arbitrary.
TEST(WithTimesOfTest, TakesTimesAndKeepsPowers) {
  const profiler::InstructionGroup forward{2, 0, InstructionKind::kForward};
  const profiler::MeasuredOption known[] = {{forward, 960, 500, 0.0281, 0.0001, 257.2, 65.2},
                                            {forward, 990, 500, 0.0275, 0.0001, 260.0, 60.0}};
  const profiler::MeasuredOption with_plan[] = {{forward, 960, 26, 0.0283, 0.0002, 8687.6, 53506.4},
                                                {forward, 1200, 26, 0.02, 0.0002, 300.0, 5.0}};
  const auto both = WithTimesOf(with_plan, {std::begin(known), std::end(known)});
  ASSERT_THAT(both, SizeIs(2));
  EXPECT_EQ(both[0].samples, 26);
  EXPECT_EQ(both[0].time_s, 0.0283);
  EXPECT_EQ(both[0].time_ci_s, 0.0002);
  EXPECT_EQ(both[0].power_w, 257.2);
  EXPECT_EQ(both[0].power_ci_w, 65.2);
  EXPECT_EQ(both[1].time_s, 0.0275);
}

TEST(MeasuredProfileTest, HasConfidenceAndOmitsOptionsWithoutPower) {
  profiler::MeasuredOption known{{1, 0, InstructionKind::kForward}, 1000, 12, 0.01, 0.0001, 300, 6};
  profiler::MeasuredOption unknown{{1, 0, InstructionKind::kForward}, 900, 2, 0.011, 0.0001, 0, 0};
  const profiler::MeasuredOption both[] = {known, unknown};
  const profile::Profile profile = MeasuredProfile(both);
  const profile::ProfileEntry* entry = profile.Find(1, 0, InstructionKind::kForward);
  ASSERT_NE(entry, nullptr);
  ASSERT_THAT(entry->options, SizeIs(1));
  EXPECT_EQ(entry->options[0].samples, 12);
  EXPECT_NEAR(entry->options[0].energy_j, 3, 1e-12);
  EXPECT_NEAR(entry->options[0].time_ci_s, 0.0001, 1e-12);
  EXPECT_GT(entry->options[0].energy_ci_j, 0);
}

}  // namespace
}  // namespace perseus::tuner
