// GPUs that share a stage: the last clock change counts.
#include "perseus/runtime/tuner/stage_changes.h"

#include <gmock/gmock.h>

namespace perseus::tuner {
namespace {

using profiler::Period;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr Nanoseconds kMs = kMillisecond;

TEST(StageChanges, AreThoseOfTheStageInTheSameStep) {
  StageChanges changes;
  // Two hosts, whose clocks began at different times.
  const protocol::RankId one{0, 1, 0};
  const protocol::RankId peer{0, 1, 1};
  constexpr Nanoseconds kEpochOfPeer = 1000 * kMs;
  protocol::RanStep step;
  step.step = 7;
  step.begin = 2000 * kMs;
  protocol::RanStep of_peer = step;
  of_peer.begin = 1001 * kMs;  // 1 ms later.
  changes.Add(one, 0, step, {{10 * kMs, 15 * kMs}});
  changes.Add(peer, kEpochOfPeer, of_peer, {{9 * kMs, 20 * kMs}});
  changes.Add({1, 1, 0}, 0, step, {{30 * kMs, 31 * kMs}});
  changes.Add({0, 0, 0}, 0, step, {{40 * kMs, 41 * kMs}});
  protocol::RanStep next = step;
  next.step = 8;
  changes.Add(one, 0, next, {{50 * kMs, 51 * kMs}});
  EXPECT_THAT(changes.Of(one, 0, step),
              UnorderedElementsAre(Period{10 * kMs, 15 * kMs}, Period{10 * kMs, 21 * kMs}));
  EXPECT_THAT(changes.Of(peer, kEpochOfPeer, of_peer),
              UnorderedElementsAre(Period{9 * kMs, 14 * kMs}, Period{9 * kMs, 20 * kMs}));
  EXPECT_THAT(changes.Of(one, 0, next), ElementsAre(Period{50 * kMs, 51 * kMs}));
  EXPECT_THAT(changes.Of({2, 0, 0}, 0, step), IsEmpty());
}

// Two GPUs run instructions of 10 ms. Both are requested to change at 20 ms. One driver answers
// after 1 ms, the other after 12 ms.
TEST(StageChanges, AnInstructionCountsOnlyAfterTheLastGpuOfTheStageHasItsClock) {
  constexpr int kAfter = 1200;
  const auto step_with = [](Nanoseconds answer) {
    protocol::RanStep step;
    step.end = 100 * kMs;
    for (int i = 0; i < 10; ++i) {
      step.instructions.push_back(
          {InstructionKind::kForward, i, 0, i * 10 * kMs, 10 * kMs, i < 2 ? 1400 : kAfter});
    }
    step.clocks = {{0, 0, 1400, 2}, {20 * kMs, answer, kAfter, 2}};
    return step;
  };
  const protocol::RankId fast{0, 1, 0};
  const protocol::RankId slow{0, 1, 1};
  const auto samples = [](const profiler::GpuMeasurements& gpu) {
    for (const profiler::MeasuredOption& option : gpu.Options(1)) {
      if (option.frequency_mhz == kAfter) return option.samples;
    }
    return 0;
  };
  const protocol::RanStep step = step_with(21 * kMs);
  const protocol::RanStep of_slow = step_with(32 * kMs);
  profiler::GpuMeasurements alone({});
  alone.Add(step);
  EXPECT_EQ(samples(alone), 7);

  profiler::GpuMeasurements one({});
  profiler::GpuMeasurements other({});
  StageChanges changes;
  changes.Add(fast, 0, step, one.FindChanges(step));
  changes.Add(slow, 0, of_slow, other.FindChanges(of_slow));
  one.Add(step, changes.Of(fast, 0, step));
  other.Add(of_slow, changes.Of(slow, 0, of_slow));
  EXPECT_EQ(samples(one), 6);
  EXPECT_EQ(samples(other), 6);
  EXPECT_EQ(one.counts().switching_instructions, 2);
}

}  // namespace
}  // namespace perseus::tuner
