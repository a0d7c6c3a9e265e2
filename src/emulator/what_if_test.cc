#include "perseus/emulator/what_if.h"

#include <gmock/gmock.h>

#include <memory>
#include <random>

#include "job_traces.h"

namespace perseus {
namespace {

// Where sums of doubles are compared: conservation of energy, and "no better than".
constexpr double kRounding = 1e-9;

struct Read {
  JobTrace trace;
  TraceGraph graph;
};

std::unique_ptr<Read> ReadTrace(const std::vector<TracedEvent>& events) {
  auto read = std::make_unique<Read>();
  auto trace = ParseJobTrace(FormatTimeline(events), "t.json");
  EXPECT_TRUE(trace) << trace.error().message;
  if (!trace) return read;
  read->trace = *std::move(trace);
  auto graph = BuildTraceGraph(read->trace);
  EXPECT_TRUE(graph) << graph.error().message;
  if (graph) read->graph = *std::move(graph);
  return read;
}

// Half the clock: twice the time at a quarter of the power. Waiting takes 10 W.
JobPowerModel TwoClocks() {
  const std::vector<ClockPoint> points{{1000, 1, 400}, {500, 2, 100}};
  return {.forward = points, .backward = points, .blocking_power_w = 10};
}

TEST(WhatIf, TheModelIsThatOfTheGpu) {
  const GpuModel gpu = *FindGpuModel("a100");
  const JobPowerModel model = JobPowerModel::Of(gpu);
  EXPECT_EQ(model.blocking_power_w, gpu.blocking_power_w);
  for (const auto& points : {model.forward, model.backward}) {
    EXPECT_EQ(points[0].frequency_mhz, gpu.highest_frequency_mhz);
    EXPECT_EQ(points[0].time_ratio, 1);
    for (std::size_t i = 1; i < points.size(); ++i) {
      EXPECT_GT(points[i].time_ratio, points[i - 1].time_ratio);
      EXPECT_LT(points[i].power_w, points[i - 1].power_w);
    }
  }
  // More of the backward is memory work, which no clock slows.
  EXPECT_GT(model.forward.back().time_ratio, model.backward.back().time_ratio);
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

// Pipeline 0 has 30 ms in which to slow down anything; alone it has none on rank 0, whose path is
// critical, while rank 1 ends 20 ms early:
//
//   p0 rank 0   |[F0]>|[ F1 ]                  <>|[     B0     ]             <|[  B1  ]
//      rank 1          [ F0 ][      B0      ]  <>|[ F1 ][      B1      ]     >
TEST(WhatIf, BloatOfTwoPipelines) {
  const auto read = ReadTrace(TwoPipelines());
  const auto answer = AskWhatIf(read->graph, TwoClocks(), {0});
  ASSERT_TRUE(answer) << answer.error().message;
  const StepBloat& bloat = answer->steps[0];
  EXPECT_EQ(bloat.slowest_pipeline, 1);
  EXPECT_EQ(bloat.replayed, 131'000'000);
  EXPECT_THAT(bloat.pipeline_times, testing::ElementsAre(101'000'000, 131'000'000));
  // A second of slack saves 400 J of computing; its half-clock costs 2 * 100 J, and 10 W of waiting
  // are not paid: (400 - 200) J + 10 W * 1 s = 210 J for each second of work slowed by a second.
  // Off the critical paths: rank 0 of either pipeline waits after F1 for rank 1, 20 and 35 ms, in
  // which F1 (10 ms) fits doubled; B0 of pipeline 1's rank 0 waits 25 ms for 20; B0 of pipeline 0's
  // waits 10 ms, of 20 that it would take.
  EXPECT_NEAR(bloat.intrinsic_j, 210 * (0.010 + 0.010 + 0.020 + 0.010), kRounding);
  // Pipeline 0 has 30 ms more, each of which slows one computation of the critical path at least.
  EXPECT_GE(bloat.extrinsic_j, 210 * 0.030 - kRounding);
  EXPECT_NEAR(bloat.bound_j, bloat.energy_j - bloat.intrinsic_j - bloat.extrinsic_j, kRounding);
}

TEST(WhatIf, PipelinesThatAreAlikeHaveNoExtrinsicBloat) {
  const auto read = ReadTrace(TwoPipelines({.slowness = {1}}));
  const auto answer = AskWhatIf(read->graph, JobPowerModel::Of(*FindGpuModel("a40")), {0});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_NEAR(answer->steps[0].extrinsic_j, 0, kRounding);
  EXPECT_GT(answer->steps[0].intrinsic_j, 0);
}

// Every way to choose among three clocks on a job of four computations.
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
  double best_j = 1e9;
  for (int choice = 0; choice < 81; ++choice) {
    const StepClocks clocks{choice % 3, choice / 3 % 3, 0, choice / 9 % 3, choice / 27, 0};
    const StepOutcome outcome = RunStep(graph, model, clocks);
    EXPECT_GE(outcome.energy_j, *LeastEnergy(graph, model, outcome.time) - kRounding);
    if (outcome.time > at_highest) continue;
    EXPECT_GE(outcome.energy_j, bound_j - kRounding);
    best_j = std::min(best_j, outcome.energy_j);
  }
  const auto answer = AskWhatIf(read->graph, model, {0});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_NEAR(answer->steps[0].bound_j, bound_j, kRounding);
  EXPECT_GE(answer->controllers[0].steps[0].energy_j, best_j - kRounding);
  EXPECT_FALSE(LeastEnergy(graph, model, at_highest - 1));
}

// Slow, slow, fast, fast, ...: what the last step says is wrong every other time.
TEST(WhatIf, AControllerIsAsGoodAsWhatItKnows) {
  const auto read = ReadTrace(TwoPipelines({.steps = 6, .slowness = {2, 2, 1, 1, 2, 2}}));
  const JobPowerModel model = JobPowerModel::Of(*FindGpuModel("a100"));
  const auto answer = AskWhatIf(read->graph, model, {0, 1, 4});
  ASSERT_TRUE(answer) << answer.error().message;
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
  // Like the step before it, all of whose computations were as long: as good as the oracle.
  EXPECT_EQ(reactive[1].energy_j, oracle[1].energy_j);
  EXPECT_EQ(periodic[4].energy_j, oracle[4].energy_j);
  // The straggler is gone, pipeline 0 was slowed for it, and the step takes longer than it need.
  EXPECT_GT(reactive[2].time, answer->steps[2].replayed);
  // It is back: nobody is late, but less is saved.
  EXPECT_EQ(reactive[4].time, answer->steps[4].replayed);
  EXPECT_GT(reactive[4].energy_j, oracle[4].energy_j);
}

TEST(WhatIf, CountsHowOftenTheSlowestPipelineChanges) {
  const auto read = ReadTrace(TwoPipelines({.steps = 6, .slowness = {2, 0.5, 0.5, 2, 2, 0.5}}));
  const auto answer = AskWhatIf(read->graph, TwoClocks(), {0});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->slowest_changes, 3);
}

TEST(WhatIf, EnergyIsConservedAndNoControllerBeatsTheBound) {
  std::mt19937_64 random(5);
  const JobPowerModel model = JobPowerModel::Of(*FindGpuModel("a40"));
  for (int job = 0; job < 20; ++job) {
    TimelineSpec spec{.steps = 8, .late_ms = static_cast<double>(random() % 5), .slowness = {}};
    for (int s = 0; s < spec.steps; ++s) {
      spec.slowness.push_back(0.5 + static_cast<double>(random() % 1000) / 500);
    }
    const auto read = ReadTrace(TwoPipelines(spec));
    const auto answer = AskWhatIf(read->graph, model, {0, 1, 3});
    ASSERT_TRUE(answer) << answer.error().message;
    for (const ControllerOutcome& controller : answer->controllers) {
      for (std::size_t s = 0; s < controller.steps.size(); ++s) {
        const StepOutcome& step = controller.steps[s];
        EXPECT_NEAR(step.energy_j, step.computing_j + step.waiting_j, kRounding * step.energy_j);
        const auto bound_j = LeastEnergy(read->graph.steps[s], model, step.time);
        ASSERT_TRUE(bound_j) << bound_j.error().message;
        EXPECT_GE(step.energy_j, *bound_j - kRounding * step.energy_j);
      }
    }
  }
}

}  // namespace
}  // namespace perseus
