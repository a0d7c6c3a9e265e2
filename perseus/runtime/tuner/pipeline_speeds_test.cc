#include "perseus/runtime/tuner/pipeline_speeds.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <utility>

#include "perseus/runtime/tuner/pooled_measurements.h"

namespace perseus::tuner {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr int kSlowMhz = 1000;
constexpr int kFastMhz = 1400;

// A step of forwards at this clock that take about `time`. Even ones take 0.1 % longer.
protocol::RanStep StepOf(int mhz, Nanoseconds time) {
  protocol::RanStep step;
  step.on_plan = true;
  Nanoseconds now = 0;
  for (int i = 0; i < 40; ++i) {
    const Nanoseconds duration = time + (i % 2 == 0 ? time / 1000 : 0);
    step.instructions.push_back({InstructionKind::kForward, i, 0, now, duration, mhz});
    now += duration + kMillisecond;
  }
  step.end = now;
  for (Nanoseconds at = 0; at <= step.end; at += 13 * kMillisecond) {
    step.energy.push_back({at, at, ToSeconds(at) * 300});
  }
  return step;
}

// GPUs of one stage, by dp_rank, with their times at both clocks.
using Times = std::pair<Nanoseconds, Nanoseconds>;
std::map<protocol::RankId, profiler::KnownGpu> GpusWith(const std::vector<Times>& times) {
  std::map<protocol::RankId, profiler::KnownGpu> gpus;
  for (const auto& [fast, slow] : times) {
    profiler::GpuMeasurements measurements{profiler::MeasuringSettings()};
    measurements.Add(StepOf(kFastMhz, fast));
    measurements.Add(StepOf(kSlowMhz, slow));
    gpus.emplace(protocol::RankId{static_cast<int>(gpus.size()), 0, 0},
                 profiler::KnownGpu{"GPU", "A100", std::move(measurements)});
  }
  return gpus;
}

std::vector<AlikePipelines> GroupsOf(const std::vector<Times>& times, int most = 16) {
  const auto gpus = GpusWith(times);
  return GroupAlike(gpus, PooledOptions(gpus), most);
}

constexpr Nanoseconds kFast = 20 * kMillisecond;
constexpr Nanoseconds kSlow = 28 * kMillisecond;

TEST(GroupAlikeTest, EqualPipelinesAreOneGroup) {
  const auto groups = GroupsOf({{kFast, kSlow}, {kFast + 2'000, kSlow}, {kFast, kSlow - 2'000}});
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_THAT(groups[0].dp_ranks, ElementsAre(0, 1, 2));
}

TEST(GroupAlikeTest, AFasterPipelineHasTimesOfItsOwn) {
  const auto groups = GroupsOf({{kFast, kSlow}, {kFast * 9 / 10, kSlow * 9 / 10}, {kFast, kSlow}});
  ASSERT_THAT(groups, SizeIs(2));
  EXPECT_THAT(groups[0].dp_ranks, ElementsAre(1));
  EXPECT_THAT(groups[1].dp_ranks, ElementsAre(0, 2));
  ASSERT_THAT(groups[0].options, SizeIs(2));  // By clock, the lower one first.
  EXPECT_NEAR(groups[0].options[0].time_s, 0.9 * ToSeconds(kSlow), 5e-5);
  EXPECT_NEAR(groups[0].options[1].time_s, 0.9 * ToSeconds(kFast), 5e-5);
  EXPECT_NEAR(groups[1].options[1].time_s, ToSeconds(kFast), 5e-5);
}

// The highest clock is that of the power limit, where chips differ. Below, they do not.
TEST(GroupAlikeTest, AChipThatIsSlowAtItsPowerLimitIsNotSlowBelow) {
  const auto groups = GroupsOf({{kFast, kSlow}, {kFast * 11 / 10, kSlow}});
  ASSERT_THAT(groups, SizeIs(2));
  EXPECT_THAT(groups[1].dp_ranks, ElementsAre(1));
  EXPECT_NEAR(groups[1].options[0].time_s, ToSeconds(kSlow), 5e-5);
  EXPECT_NEAR(groups[1].options[1].time_s, 1.1 * ToSeconds(kFast), 5e-5);
}

// While plans are followed, only the fast GPU runs at the low clock.
TEST(GroupAlikeTest, AClockAtWhichOnlyFastGpusRanIsNotFast) {
  auto gpus = GpusWith({{kFast, kSlow}, {kFast * 9 / 10, kSlow * 9 / 10}, {kFast, kSlow}});
  for (int i = 0; i < 20; ++i) {
    gpus.at({1, 0, 0}).measurements.Add(StepOf(kSlowMhz, kSlow * 9 / 10));
  }
  const auto groups = GroupAlike(gpus, PooledOptions(gpus), 16);
  ASSERT_THAT(groups, SizeIs(2));
  EXPECT_NEAR(groups[0].options[0].time_s, 0.9 * ToSeconds(kSlow), 5e-5);
  EXPECT_NEAR(groups[1].options[0].time_s, ToSeconds(kSlow), 5e-5);
}

// Forwards and then backwards, with a power of each kind, relative to 300 W.
protocol::RanStep StepWithPowers(Nanoseconds time, double of_forwards, double of_backwards) {
  protocol::RanStep step = StepOf(kFastMhz, time);
  const auto half = std::ssize(step.instructions) / 2;
  for (auto one = step.instructions.begin() + half; one != step.instructions.end(); ++one) {
    one->kind = InstructionKind::kBackward;
  }
  const Nanoseconds middle = step.instructions[static_cast<std::size_t>(half)].begin;
  for (protocol::EnergySample& sample : step.energy) {
    const double forwards_s = ToSeconds(std::min(sample.after, middle));
    sample.energy_j =
        300 * (of_forwards * forwards_s + of_backwards * (ToSeconds(sample.after) - forwards_s));
  }
  return step;
}

// The errors of the two kinds are opposite, because only the sum of their energies is well known.
TEST(GroupAlikeTest, APipelineHasOneFactorForThePowersOfAllKinds) {
  std::map<protocol::RankId, profiler::KnownGpu> gpus;
  const auto add = [&](Nanoseconds time, double of_forwards, double of_backwards) {
    profiler::GpuMeasurements measurements{profiler::MeasuringSettings()};
    measurements.Add(StepWithPowers(time, of_forwards, of_backwards));
    gpus.emplace(protocol::RankId{static_cast<int>(gpus.size()), 0, 0},
                 profiler::KnownGpu{"GPU", "A100", std::move(measurements)});
  };
  add(kFast, 1, 1);
  add(kFast * 9 / 10, 1.1, 0.9);
  add(kFast * 8 / 10, 1.2, 1.2);
  const auto groups = GroupAlike(gpus, PooledOptions(gpus), 16);
  ASSERT_THAT(groups, SizeIs(3));
  ASSERT_THAT(groups[2].dp_ranks, ElementsAre(0));  // The fastest one comes first.
  for (const std::size_t kind : {0U, 1U}) {
    const double usual_w = groups[2].options[kind].power_w;
    EXPECT_NEAR(groups[1].options[kind].power_w / usual_w, 1, 0.01);
    EXPECT_NEAR(groups[0].options[kind].power_w / usual_w, 1.2, 0.01);
  }
}

// The power of the forwards may have the error of that of the backwards, which is unknown.
TEST(GroupAlikeTest, ThePowerOfOneKindAloneIsNoFactor) {
  std::map<protocol::RankId, profiler::KnownGpu> gpus;
  for (const bool is_known : {true, false}) {
    protocol::RanStep step =
        StepWithPowers(is_known ? kFast : kFast * 9 / 10, is_known ? 1 : 1.3, 1);
    if (!is_known) step.energy.resize(step.energy.size() / 3);  // Only of forwards.
    profiler::GpuMeasurements measurements{profiler::MeasuringSettings()};
    measurements.Add(step);
    gpus.emplace(protocol::RankId{is_known ? 0 : 1, 0, 0},
                 profiler::KnownGpu{"GPU", "A100", std::move(measurements)});
  }
  const auto groups = GroupAlike(gpus, PooledOptions(gpus), 16);
  ASSERT_THAT(groups, SizeIs(2));
  for (const AlikePipelines& group : groups) {
    EXPECT_NEAR(group.options[0].power_w, group.options[1].power_w, 1);
  }
}

// A pipeline that has run too few instructions is as fast as the mean.
TEST(GroupAlikeTest, APipelineWithoutMeasurementsIsInAGroup) {
  auto gpus = GpusWith({{kFast, kSlow}, {kFast * 9 / 10, kSlow * 9 / 10}});
  gpus.emplace(
      protocol::RankId{2, 0, 0},
      profiler::KnownGpu{"GPU", "A100", profiler::GpuMeasurements(profiler::MeasuringSettings())});
  EXPECT_THAT(GroupAlike(gpus, PooledOptions(gpus), 16), SizeIs(3));
  const auto one = GroupAlike(gpus, PooledOptions(gpus), 1);
  ASSERT_THAT(one, SizeIs(1));
  EXPECT_THAT(one[0].dp_ranks, ElementsAre(0, 1, 2));
}

TEST(GroupAlikeTest, ManyPipelinesShareFewPlansWithTheTimesOfTheSlowest) {
  std::vector<Times> times;
  for (int i = 0; i < 12; ++i) {
    times.emplace_back(kFast + i * kFast / 100, kSlow + i * kSlow / 100);
  }
  EXPECT_THAT(GroupsOf(times), SizeIs(12));
  const auto groups = GroupsOf(times, 4);
  EXPECT_LE(groups.size(), 4);
  double slowest_s = 0;
  std::size_t pipelines = 0;
  for (const AlikePipelines& group : groups) {
    pipelines += group.dp_ranks.size();
    slowest_s = std::max(slowest_s, group.options.back().time_s);
  }
  EXPECT_EQ(pipelines, times.size());
  EXPECT_NEAR(slowest_s, 1.11 * ToSeconds(kFast), 5e-5);
}

}  // namespace
}  // namespace perseus::tuner
