#include "perseus/simulation/replay/what_if.h"

#include <gmock/gmock.h>

#include <memory>
#include <random>

#include "tests/support/job_traces.h"

namespace perseus::replay {
namespace {

// For comparisons of sums of doubles: conservation of energy, and "no better than".
constexpr double kRounding = 1e-9;

struct Read {
  JobTrace trace;
  TraceGraph graph;
};

std::unique_ptr<Read> ReadTrace(const std::vector<TracedEvent>& events) {
  auto read = std::make_unique<Read>();
  auto trace = ParseJobTrace(FormatTimeline(events), "t.json");
  EXPECT_TRUE(trace) << trace.error().Message();
  if (!trace) return read;
  read->trace = *std::move(trace);
  auto graph = BuildTraceGraph(read->trace);
  EXPECT_TRUE(graph) << graph.error().Message();
  if (graph) read->graph = *std::move(graph);
  return read;
}

// Half the clock takes twice the time at a quarter of the power. Waiting takes 10 W.
JobPowerModel TwoClocks() {
  const std::vector<ClockPoint> points{{1000, 1, 400}, {500, 2, 100}};
  return {.forward = points, .backward = points, .blocking_power_w = 10};
}

TEST(WhatIf, EnergyAtTheHighestClocksByHand) {
  const auto read = ReadTrace(TwoPipelines());
  const StepGraph& graph = read->graph.steps[0];
  const StepOutcome outcome = RunStep(graph, TwoClocks(), StepClocks(graph.durations.size(), 0));
  EXPECT_EQ(outcome.time, 131'000'000);
  // Pipeline 0 computes 60 ms on each rank, pipeline 1 60 and 90 ms.
  EXPECT_NEAR(outcome.computing_j, 0.270 * 400, kRounding);
  EXPECT_NEAR(outcome.waiting_j, (4 * 0.131 - 0.270) * 10, kRounding);
}

// Pipeline 0 has a slack of 30 ms for all instructions. Alone, it has no slack on rank 0, which is
// on the critical path, while rank 1 ends 20 ms early:
//
//   p0 rank 0   |[F0]>|[ F1 ]                  <>|[     B0     ]             <|[  B1  ]
//      rank 1          [ F0 ][      B0      ]  <>|[ F1 ][      B1      ]     >
TEST(WhatIf, BloatOfTwoPipelines) {
  const auto read = ReadTrace(TwoPipelines());
  const auto answer = AnalyzeWhatIf(read->graph, TwoClocks(), {0});
  ASSERT_TRUE(answer) << answer.error().Message();
  const StepBloat& bloat = answer->steps[0];
  EXPECT_EQ(bloat.slowest_dp_rank, 1);
  EXPECT_EQ(bloat.replayed, 131'000'000);
  EXPECT_THAT(bloat.pipeline_times, testing::ElementsAre(101'000'000, 131'000'000));
  // A second of slack saves 400 J of computing. At half the clock, it costs 2 * 100 J, and waiting
  // at 10 W is saved: (400 - 200) J + 10 W * 1 s = 210 J for each second of work that becomes a
  // second slower. Off the critical paths, rank 0 of each pipeline waits for rank 1 after F1, 20 ms
  // and 35 ms. F1 (10 ms) fits into this wait at twice its time. B0 on rank 0 of pipeline 1 takes
  // 20 ms and can use a wait of 25 ms. B0 on rank 0 of pipeline 0 can use only 10 ms, of the 20 ms
  // that it would take.
  EXPECT_NEAR(bloat.intrinsic_j, 210 * (0.010 + 0.010 + 0.020 + 0.010), kRounding);
  // Pipeline 0 has 30 ms more. In 10 of these, two computations get slower at once: F1 of rank 1,
  // and B0 of rank 0 (the slack was enough for half of its 20 ms). In the other 20 ms, only one
  // computation gets slower.
  EXPECT_NEAR(bloat.extrinsic_j, 210 * (2 * 0.010 + 0.020), kRounding);
}

// Returns the events of one pipeline as a job of one pipeline.
std::vector<TracedEvent> Alone(std::vector<TracedEvent> events, int pipeline) {
  std::erase_if(events, [&](const TracedEvent& event) { return event.dp_rank != pipeline; });
  for (TracedEvent& event : events) event.dp_rank = 0;
  return events;
}

// If pipelines meet only at the end, each pipeline can be analyzed alone: its saving in the time
// that it takes alone, and its additional saving in the time of the slowest pipeline.
TEST(WhatIf, BloatOfPipelinesThatMeetAtTheEndIsWhatEachSavesAlone) {
  std::mt19937_64 random(9);
  for (const char* gpu : {"a100", "a40"}) {
    const JobPowerModel model = JobPowerModel::Of(*synthetic::FindGpuModel(gpu));
    for (int job = 0; job < 20; ++job) {
      const double slowness = 0.4 + static_cast<double>(random() % 1000) / 500;
      SCOPED_TRACE(testing::Message() << gpu << ", " << slowness);
      const std::vector<TracedEvent> events = TwoPipelines({.slowness = {slowness}});
      const auto answer = AnalyzeWhatIf(ReadTrace(events)->graph, model, {0});
      ASSERT_TRUE(answer) << answer.error().Message();
      const StepBloat& bloat = answer->steps[0];
      double intrinsic_j = 0;
      double extrinsic_j = 0;
      for (int pipeline = 0; pipeline < 2; ++pipeline) {
        const auto alone = ReadTrace(Alone(events, pipeline));
        const StepGraph& graph = alone->graph.steps[0];
        const StepOutcome highest = RunStep(graph, model, StepClocks(graph.durations.size(), 0));
        EXPECT_EQ(highest.time, bloat.pipeline_times[static_cast<std::size_t>(pipeline)]);
        const double in_its_time_j = *LeastEnergy(graph, model, highest.time);
        const double waiting_j =
            2 * model.blocking_power_w * ToSeconds(bloat.replayed - highest.time);
        intrinsic_j += highest.energy_j - in_its_time_j;
        extrinsic_j += in_its_time_j + waiting_j - *LeastEnergy(graph, model, bloat.replayed);
      }
      // Slopes of curves are whole microwatts (profile/curve.h): 1e-6 W over some tenths of a
      // second, for each of 16 computations.
      constexpr double kWholeMicrowatts = 16 * 1e-6;
      EXPECT_NEAR(bloat.intrinsic_j, intrinsic_j, kWholeMicrowatts);
      EXPECT_NEAR(bloat.extrinsic_j, extrinsic_j, kWholeMicrowatts);
    }
  }
}

// Rank 0 of each pipeline has a slack of 90 ms: in pipeline 0 after the collective in the middle,
// in pipeline 1 before it. If each pipeline used its slack alone, the collective would be late, and
// the step would be 90 ms too long. No rank waits for a slower pipeline, so all bloat is intrinsic.
//
//   p0 rank 0  |[F0][B0]<>[F1][B1]                                                |
//      rank 1  |[    F0     ][    B0     ]<>[     F1     ][     B1     ]          |
TEST(WhatIf, PipelinesThatMeetMidwayHaveNoNegativeBloat) {
  std::vector<TracedEvent> events;
  const auto add = [&](int pipeline, int rank, double first_ms, double second_ms) {
    double at = 0;
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      const double each_ms = microbatch == 0 ? first_ms : second_ms;
      events.push_back({"forward-compute", pipeline, rank, 1, at, at + each_ms, microbatch});
      events.push_back(
          {"backward-compute", pipeline, rank, 1, at + each_ms, at + 2 * each_ms, microbatch});
      at += 2 * each_ms;
      if (microbatch == 0 && rank == 0) {
        events.push_back({"grads-sync", pipeline, rank, 1, at, at + 0.001, -1});
        at += 0.001;
      }
    }
    events.push_back({"optimizer-clip-main-grad", pipeline, rank, 1, 100.001, 101.001, -1});
  };
  add(0, 0, 5, 5);
  add(0, 1, 25, 25.0005);
  add(1, 0, 5, 45);
  add(1, 1, 5, 5);
  const auto answer = AnalyzeWhatIf(ReadTrace(events)->graph,
                                    JobPowerModel::Of(*synthetic::FindGpuModel("a100")), {0});
  ASSERT_TRUE(answer) << answer.error().Message();
  const StepBloat& bloat = answer->steps[0];
  EXPECT_GT(bloat.intrinsic_j, 0.01 * bloat.energy_j);
  EXPECT_EQ(bloat.extrinsic_j, 0);
}

// In these jobs each rank meets its counterparts after every microbatch.
TEST(WhatIf, NeitherBloatIsNegativeWhereverPipelinesMeet) {
  std::mt19937_64 random(21);
  const JobPowerModel model = JobPowerModel::Of(*synthetic::FindGpuModel("a40"));
  const auto up_to = [&](std::uint64_t most) { return 1 + static_cast<double>(random() % most); };
  int with_both = 0;
  for (int job = 0; job < 100; ++job) {
    SCOPED_TRACE(job);
    std::vector<TracedEvent> events;
    double ready[3][2] = {};
    double end = 0;
    for (int microbatch = 0; microbatch < 3; ++microbatch) {
      for (int rank = 0; rank < 2; ++rank) {
        double meet = 0;
        for (int pipeline = 0; pipeline < 3; ++pipeline) {
          double& at = ready[pipeline][rank];
          for (const char* name : {"forward-compute", "backward-compute"}) {
            const double duration = up_to(30);
            events.push_back({name, pipeline, rank, 1, at, at + duration, microbatch});
            at += duration;
          }
          meet = std::max(meet, at);
        }
        for (int pipeline = 0; pipeline < 3; ++pipeline) {
          events.push_back({"grads-sync", pipeline, rank, 1, meet, meet + 1, -1});
          ready[pipeline][rank] = meet + 1;
        }
        end = std::max(end, meet + 1);
      }
    }
    for (int i = 0; i < 6; ++i) {
      events.push_back({"optimizer-clip-main-grad", i / 2, i % 2, 1, end, end + 1, -1});
    }
    const auto answer = AnalyzeWhatIf(ReadTrace(events)->graph, model, {0});
    ASSERT_TRUE(answer) << answer.error().Message();
    const StepBloat& bloat = answer->steps[0];
    EXPECT_GE(bloat.intrinsic_j, 0);
    EXPECT_GE(bloat.extrinsic_j, 0);
    if (bloat.intrinsic_j > 0.001 * bloat.energy_j && bloat.extrinsic_j > 0) ++with_both;
  }
  EXPECT_GT(with_both, 50);
}

TEST(WhatIf, EqualPipelinesHaveNoExtrinsicBloat) {
  const auto read = ReadTrace(TwoPipelines({.slowness = {1}}));
  const auto answer =
      AnalyzeWhatIf(read->graph, JobPowerModel::Of(*synthetic::FindGpuModel("a40")), {0});
  ASSERT_TRUE(answer) << answer.error().Message();
  EXPECT_NEAR(answer->steps[0].extrinsic_j, 0, kRounding);
  EXPECT_GT(answer->steps[0].intrinsic_j, 0);
}

// Tries all choices among three clocks on a job of four computations.
TEST(WhatIf, NoChoiceOfClocksIsBelowTheBound) {
  std::vector<TracedEvent> events{
      {"forward-compute", 0, 0, 1, 0, 10, 0},   {"backward-compute", 0, 0, 1, 10, 31, 0},
      {"grads-sync", 0, 0, 1, 44, 46, -1},      {"forward-compute", 1, 0, 1, 0, 15, 0},
      {"backward-compute", 1, 0, 1, 15, 44, 0}, {"grads-sync", 1, 0, 1, 44, 46, -1}};
  const auto read = ReadTrace(events);
  const StepGraph& graph = read->graph.steps[0];
  JobPowerModel model = TwoClocks();
  model.forward.insert(model.forward.begin() + 1, {800, 1.25, 250});
  model.backward.insert(model.backward.begin() + 1, {800, 1.2, 260});
  const Nanoseconds at_highest = 46'000'000;
  const double bound_j = *LeastEnergy(graph, model, at_highest);
  const double bound_of_kept_j = *LeastEnergy(graph, model, at_highest, Waits::kKept);
  double best_j = 1e9;
  double best_of_kept_j = 1e9;
  for (int choice = 0; choice < 81; ++choice) {
    const StepClocks clocks{choice % 3, choice / 3 % 3, 0, choice / 9 % 3, choice / 27, 0};
    const StepOutcome outcome = RunStep(graph, model, clocks);
    EXPECT_GE(outcome.energy_j, *LeastEnergy(graph, model, outcome.time) - kRounding);
    if (outcome.time > at_highest) continue;
    EXPECT_GE(outcome.energy_j, bound_j - kRounding);
    best_j = std::min(best_j, outcome.energy_j);
    // Pipeline 0 is ready at 31 of 44 ms, and keeps its wait if it gets no slower.
    const auto ended = [&](std::size_t first) {
      return TimeAt(model.forward[static_cast<std::size_t>(clocks[first])],
                    graph.durations[first]) +
             TimeAt(model.backward[static_cast<std::size_t>(clocks[first + 1])],
                    graph.durations[first + 1]);
    };
    if (ended(0) > ended(3) - 13'000'000) continue;
    EXPECT_GE(outcome.energy_j, bound_of_kept_j - kRounding);
    best_of_kept_j = std::min(best_of_kept_j, outcome.energy_j);
  }
  EXPECT_GT(best_of_kept_j, best_j);  // Using the wait saves energy.
  const auto answer = AnalyzeWhatIf(read->graph, model, {0});
  ASSERT_TRUE(answer) << answer.error().Message();
  EXPECT_NEAR(answer->steps[0].bound_j, bound_j, kRounding);
  EXPECT_NEAR(answer->steps[0].energy_j - answer->steps[0].intrinsic_j, bound_of_kept_j, kRounding);
  EXPECT_GE(answer->controllers[0].steps[0].energy_j, best_j - kRounding);
  EXPECT_FALSE(LeastEnergy(graph, model, at_highest - 1));
}

// The slowness is slow, slow, fast, fast, ...: every second time, the last step predicts the next
// one wrongly.
TEST(WhatIf, AControllerIsAsGoodAsItsInformation) {
  const auto read = ReadTrace(TwoPipelines({.steps = 6, .slowness = {2, 2, 1, 1, 2, 2}}));
  const JobPowerModel model = JobPowerModel::Of(*synthetic::FindGpuModel("a100"));
  const auto answer = AnalyzeWhatIf(read->graph, model, {0, 1, 4});
  ASSERT_TRUE(answer) << answer.error().Message();
  const auto& oracle = answer->controllers[0].steps;
  const auto& reactive = answer->controllers[1].steps;
  const auto& periodic = answer->controllers[2].steps;
  for (std::size_t s = 0; s < 6; ++s) {
    EXPECT_LE(oracle[s].time, answer->steps[s].replayed);
    EXPECT_LT(oracle[s].energy_j, answer->steps[s].energy_j);
  }
  // Nothing is known before the first step.
  EXPECT_EQ(reactive[0].energy_j, answer->steps[0].energy_j);
  EXPECT_EQ(periodic[3].energy_j, answer->steps[3].energy_j);
  // All computations take as long as in the previous step, so the controller is as good as the
  // oracle.
  EXPECT_EQ(reactive[1].energy_j, oracle[1].energy_j);
  EXPECT_EQ(periodic[4].energy_j, oracle[4].energy_j);
  // The straggler is gone, but pipeline 0 still runs slowly because of it, so the step takes too
  // long.
  EXPECT_GT(reactive[2].time, answer->steps[2].replayed);
  // The straggler is back: the step is not late, but saves less.
  EXPECT_EQ(reactive[4].time, answer->steps[4].replayed);
  EXPECT_GT(reactive[4].energy_j, oracle[4].energy_j);
}

TEST(WhatIf, CountsHowOftenTheSlowestPipelineChanges) {
  const auto read = ReadTrace(TwoPipelines({.steps = 6, .slowness = {2, 0.5, 0.5, 2, 2, 0.5}}));
  const auto answer = AnalyzeWhatIf(read->graph, TwoClocks(), {0});
  ASSERT_TRUE(answer) << answer.error().Message();
  EXPECT_EQ(answer->slowest_changes, 3);
}

TEST(WhatIf, EnergyIsConservedAndNoControllerBeatsTheBound) {
  std::mt19937_64 random(5);
  const JobPowerModel model = JobPowerModel::Of(*synthetic::FindGpuModel("a40"));
  for (int job = 0; job < 20; ++job) {
    TimelineSpec spec{.steps = 8, .late_ms = static_cast<double>(random() % 5), .slowness = {}};
    for (int s = 0; s < spec.steps; ++s) {
      spec.slowness.push_back(0.5 + static_cast<double>(random() % 1000) / 500);
    }
    const auto read = ReadTrace(TwoPipelines(spec));
    const auto answer = AnalyzeWhatIf(read->graph, model, {0, 1, 3});
    ASSERT_TRUE(answer) << answer.error().Message();
    for (const ControllerOutcome& controller : answer->controllers) {
      for (std::size_t s = 0; s < controller.steps.size(); ++s) {
        const StepOutcome& step = controller.steps[s];
        EXPECT_NEAR(step.energy_j, step.computing_j + step.waiting_j, kRounding * step.energy_j);
        const auto bound_j = LeastEnergy(read->graph.steps[s], model, step.time);
        ASSERT_TRUE(bound_j) << bound_j.error().Message();
        EXPECT_GE(step.energy_j, *bound_j - kRounding * step.energy_j);
      }
    }
  }
}

std::vector<StragglerSlowdown> SlowdownsOf(const std::vector<TracedEvent>& events) {
  const auto trace = ParseJobTrace(FormatTimeline(events), "t.json");
  if (!trace) {
    ADD_FAILURE() << trace.error().Message();
    return {};
  }
  const auto graph = BuildTraceGraph(*trace);
  if (!graph) {
    ADD_FAILURE() << graph.error().Message();
    return {};
  }
  const auto slowdowns = StragglerSlowdowns(*graph);
  if (!slowdowns) {
    ADD_FAILURE() << slowdowns.error().Message();
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

// The mean is over all steps. So in a job with slow steps, a fast step has a slowdown below 1.
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
