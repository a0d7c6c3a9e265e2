#include "perseus/simulation/replay/straggler_slowdown.h"

#include <gmock/gmock.h>

#include "tests/support/job_traces.h"

namespace perseus::replay {
namespace {

std::vector<StragglerSlowdown> SlowdownsOf(const std::vector<TracedEvent>& events) {
  const auto trace = ParseJobTrace(FormatTimeline(events), "t.json");
  if (!trace) {
    ADD_FAILURE() << trace.error().message;
    return {};
  }
  const auto graph = BuildTraceGraph(*trace);
  if (!graph) {
    ADD_FAILURE() << graph.error().message;
    return {};
  }
  const auto slowdowns = StragglerSlowdowns(*graph);
  if (!slowdowns) {
    ADD_FAILURE() << slowdowns.error().message;
    return {};
  }
  return *slowdowns;
}

// In TwoPipelines() with equal ranks, the critical path is three forwards, three backwards, three
// transfers (1 ms each), grads-reduce-scatter (5 ms), clip (1 ms) and optimizer (2 ms).
constexpr Nanoseconds PathOf(Nanoseconds forward, Nanoseconds backward) {
  return 3 * forward + 3 * backward + (3 + 5 + 1 + 2) * kMillisecond;
}

// Six of eight forwards take 10 ms and two take 15, which is 11.25 on average. Backwards take twice
// as long.
TEST(StragglerSlowdown, IsTheTimeDividedByTheTimeAtTheMeanOfEachName) {
  const auto slowdowns = SlowdownsOf(TwoPipelines());
  ASSERT_EQ(slowdowns.size(), 1U);
  EXPECT_EQ(slowdowns[0].time, 131 * kMillisecond);
  EXPECT_EQ(slowdowns[0].ideal, PathOf(11'250'000, 22'500'000));
  EXPECT_DOUBLE_EQ(slowdowns[0].ratio(), 131 / 112.25);
}

TEST(StragglerSlowdown, IsOneIfAllRanksAreEqual) {
  const auto slowdowns = SlowdownsOf(TwoPipelines({.steps = 3, .slowness = {1}}));
  ASSERT_EQ(slowdowns.size(), 3U);
  for (const StragglerSlowdown& step : slowdowns) EXPECT_EQ(step.ratio(), 1);
}

// The mean is that of all steps, so a fast step of a job with slow ones is below 1.
TEST(StragglerSlowdown, TheTypicalTimeIsThatOfTheWholeJob) {
  const auto slowdowns = SlowdownsOf(TwoPipelines({.steps = 2, .slowness = {1.5, 1}}));
  ASSERT_EQ(slowdowns.size(), 2U);
  // Fourteen of sixteen forwards take 10 ms and two take 15.
  const Nanoseconds ideal = PathOf(10'625'000, 21'250'000);
  EXPECT_EQ(slowdowns[0].ideal, ideal);
  EXPECT_EQ(slowdowns[1].ideal, ideal);
  EXPECT_DOUBLE_EQ(slowdowns[0].ratio(), 131 / 106.625);
  EXPECT_DOUBLE_EQ(slowdowns[1].ratio(), 101 / 106.625);
  EXPECT_DOUBLE_EQ(SumOf(slowdowns).ratio(), (131 + 101) / (2 * 106.625));
}

// One of the four members of optimizer-clip-main-grad takes 7 ms longer, so the mean would be
// 2.75 ms.
TEST(StragglerSlowdown, ASlowTransferDoesNotChangeTheTypicalOne) {
  std::vector<TracedEvent> events = TwoPipelines();
  for (TracedEvent& event : events) {
    if (event.dp_rank != 0 || event.pp_rank != 0) continue;
    if (event.name == "optimizer-clip-main-grad") event.end_ms += 7;
    if (event.name == "optimizer") {
      event.start_ms += 7;
      event.end_ms += 7;
    }
  }
  const auto slowdowns = SlowdownsOf(events);
  ASSERT_EQ(slowdowns.size(), 1U);
  EXPECT_EQ(slowdowns[0].time, 138 * kMillisecond);
  EXPECT_EQ(slowdowns[0].ideal, PathOf(11'250'000, 22'500'000));
}

// The mean of a hundred backwards of 0 ns and of one of 1 ns is not 0.
TEST(StragglerSlowdown, AStepThatTakesTimeHasAnIdealThatTakesTime) {
  std::vector<TracedEvent> events;
  for (int microbatch = 0; microbatch < 100; ++microbatch) {
    events.push_back({"forward-compute", 0, 0, 1, 0, 0, microbatch});
    events.push_back({"backward-compute", 0, 0, 1, 0, microbatch == 99 ? 1e-6 : 0, microbatch});
  }
  const auto slowdowns = SlowdownsOf(events);
  ASSERT_EQ(slowdowns.size(), 1U);
  EXPECT_EQ(slowdowns[0].time, 1);
  EXPECT_GT(slowdowns[0].ideal, 0);
}

}  // namespace
}  // namespace perseus::replay
