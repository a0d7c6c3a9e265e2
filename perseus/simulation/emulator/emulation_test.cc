#include "perseus/simulation/emulator/emulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/planning_jobs.h"

namespace perseus::emulator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EmulationTest : public testing::Test {
 protected:
  EmulationTest()
      : planner_(MakePlanner(MakeSyntheticJob({.microbatches = 6}))),
        plan_(*planner_.PlanFor(planner_.baseline().time)) {
    spec_.pipelines = 4;
    spec_.iterations = 10;
    spec_.options = plan_.options;
  }

  Emulation Run() const {
    auto emulation = Emulate(planner_, spec_);
    EXPECT_TRUE(emulation) << emulation.error().Message();
    ExpectConserved(*emulation);
    return *std::move(emulation);
  }

  // The sum of the energies of the ranks equals the energy of the iterations.
  static void ExpectConserved(const Emulation& emulation) {
    double iterations_j = 0;
    double ranks_j = 0;
    Nanoseconds time = 0;
    for (const EmulatedIteration& iteration : emulation.iterations) {
      iterations_j += iteration.energy_j;
      time += iteration.time;
      EXPECT_GE(iteration.peak_power_w, 0.99 * iteration.average_power_w());
    }
    for (const auto& pipeline : emulation.pp_ranks) {
      for (const RankTotals& rank : pipeline) {
        ranks_j += rank.instruction_energy_j + rank.blocking_energy_j;
      }
    }
    EXPECT_EQ(time, emulation.time);
    EXPECT_NEAR(iterations_j, emulation.energy_j, 1e-9 * iterations_j);
    EXPECT_NEAR(ranks_j, emulation.energy_j, 1e-9 * ranks_j);
  }

  Nanoseconds base_time() const { return plan_.evaluation.time; }

  plan::Planner planner_;
  plan::Plan plan_;
  EmulationSpec spec_;
};

TEST_F(EmulationTest, MatchesThePlanWithoutEvents) {
  const Emulation emulation = Run();
  ASSERT_EQ(emulation.iterations.size(), 10U);
  for (const EmulatedIteration& iteration : emulation.iterations) {
    EXPECT_EQ(iteration.time, plan_.evaluation.time);
    EXPECT_DOUBLE_EQ(iteration.energy_j, 4 * plan_.evaluation.energy_j);
    EXPECT_EQ(iteration.switches, 4 * plan_.evaluation.switches);
  }
  EXPECT_EQ(emulation.executions, 1);
}

TEST_F(EmulationTest, AllWaitForTheStragglerWhileItIsSlow) {
  spec_.disturbances = {
      {.kind = Disturbance::Kind::kSlow, .dp_rank = 2, .from = 3, .until = 5, .value = 1.5}};
  const Emulation emulation = Run();
  plan::Variation slow;
  slow.time_factors.assign(planner_.graph().instructions.size(), 1.5);
  const plan::Evaluation straggler =
      plan::Evaluator(planner_.graph(), planner_.model()).Evaluate(plan_.options, slow);
  for (int i = 0; i < 10; ++i) {
    const EmulatedIteration& iteration = emulation.iterations[static_cast<std::size_t>(i)];
    if (i < 3 || i >= 5) {
      EXPECT_EQ(iteration.time, base_time());
      continue;
    }
    EXPECT_EQ(iteration.time, straggler.time);
    EXPECT_EQ(iteration.slowest_dp_rank, 2);
    EXPECT_DOUBLE_EQ(
        iteration.energy_j,
        straggler.energy_j + 3 * planner_.EnergyUntil(straggler.time, plan_.evaluation));
  }
  EXPECT_EQ(emulation.executions, 2);
}

TEST_F(EmulationTest, OneThrottledGpuSlowsItsPipelineAlone) {
  const double lowest = planner_.graph().option_sets.front().options.back().frequency_mhz;
  spec_.disturbances = {{.kind = Disturbance::Kind::kThrottle,
                         .dp_rank = 0,
                         .pp_rank = 1,
                         .from = 0,
                         .until = 10,
                         .value = lowest}};
  const auto runs = RunsInIteration(planner_, spec_, Run(), 0);
  ASSERT_TRUE(runs);
  ASSERT_EQ(runs->size(), 2U);
  for (const RunOfPipelines& run : *runs) {
    const bool is_throttled = run.pipelines == std::vector<int>{0};
    for (int instruction : planner_.graph().pp_rank_orders[1]) {
      const auto option =
          static_cast<std::size_t>(run.run.options[static_cast<std::size_t>(instruction)]);
      const double clock = planner_.graph().options_of(instruction).options[option].frequency_mhz;
      EXPECT_TRUE(!is_throttled || clock == lowest);
    }
  }
  EXPECT_GT(Run().iterations[0].time, base_time());
}

// pipelines 0, 1, 3 follow pipeline 2, two iterations late:
//
//   iteration   0  1  2  3  4  5  6  7  8  9
//   straggler            |--------|
//   followers                  |--------|
TEST_F(EmulationTest, FollowersSlowDownAfterTheDelayAndRecover) {
  spec_.disturbances = {
      {.kind = Disturbance::Kind::kSlow, .dp_rank = 2, .from = 3, .until = 6, .value = 1.2}};
  const Emulation alone = Run();
  spec_.reaction = Reaction::kFollow;
  spec_.delay = 2;
  const Emulation followed = Run();
  const auto energy = [](const Emulation& emulation, int i) {
    return emulation.iterations[static_cast<std::size_t>(i)].energy_j;
  };
  const auto time = [](const Emulation& emulation, int i) {
    return emulation.iterations[static_cast<std::size_t>(i)].time;
  };
  for (const int i : {0, 1, 2, 3, 4, 8, 9}) {
    EXPECT_EQ(energy(followed, i), energy(alone, i)) << i;
    EXPECT_EQ(time(followed, i), time(alone, i)) << i;
  }
  EXPECT_LT(energy(followed, 5), energy(alone, 5));
  EXPECT_EQ(time(followed, 5), time(alone, 5));
  // The straggler has recovered, but the others do not know it yet.
  for (const int i : {6, 7}) {
    EXPECT_GT(time(followed, i), time(alone, i));
    EXPECT_LE(time(followed, i), time(alone, 5));
  }
  spec_.delay = 0;
  const Emulation foreseen = Run();
  EXPECT_EQ(foreseen.time, alone.time);
  EXPECT_LT(foreseen.energy_j, followed.energy_j);
}

// Iterations take base_time() each, so the times of iterations are known:
//
//   iteration     0     1     2     3     4     5
//   late input       |-----------------|            from 0.5 to 2.2 base times after the job began:
//                                                   iterations 1 and 2, where input is asked for
//   plan                                |           half a base time after iteration 3 began
TEST_F(EmulationTest, TimedLateInputAndPlansWaitForTheNextIteration) {
  const plan::Plan slower = *planner_.PlanFor(base_time() * 11 / 10);
  spec_.iterations = 6;
  spec_.disturbances = {{.kind = Disturbance::Kind::kInput,
                         .dp_rank = 1,
                         .from = {0, base_time() / 2},
                         .until = {0, base_time() * 22 / 10},
                         .value = 1e-6}};
  spec_.changes = {{.from = {3, base_time() / 2}, .options = slower.options}};
  const Emulation emulation = Run();
  std::vector<Nanoseconds> times;
  for (const EmulatedIteration& iteration : emulation.iterations) times.push_back(iteration.time);
  EXPECT_THAT(times, ElementsAre(base_time(), base_time() + 1000, base_time() + 1000, base_time(),
                                 slower.evaluation.time, slower.evaluation.time));
  const auto runs = RunsInIteration(planner_, spec_, emulation, 1);
  ASSERT_TRUE(runs);
  EXPECT_EQ(runs->size(), 2U);
}

TEST_F(EmulationTest, OfSeveralPlansTheOneThatArrivesLastHolds) {
  const plan::Plan slower = *planner_.PlanFor(base_time() * 11 / 10);
  const plan::Plan slowest = *planner_.PlanFor(base_time() * 12 / 10);
  // The plan `slowest` is pushed first but arrives late.
  spec_.changes = {{.from = {1, 3 * base_time()}, .options = slowest.options},
                   {.from = 2, .options = slower.options}};
  const Emulation emulation = Run();
  EXPECT_EQ(emulation.iterations[1].time, base_time());
  EXPECT_EQ(emulation.iterations[2].time, slower.evaluation.time);
  EXPECT_EQ(emulation.iterations.back().time, slowest.evaluation.time);
}

// The slow pipeline that is not the slowest has less slack than the healthy pipelines, and must not
// use more.
TEST_F(EmulationTest, ASecondStragglerDoesNotDelayTheFirst) {
  for (const auto kind : {Disturbance::Kind::kSlow, Disturbance::Kind::kInput}) {
    spec_.disturbances = {
        {.kind = Disturbance::Kind::kSlow, .dp_rank = 0, .from = 0, .value = 1.5},
        {.kind = kind,
         .dp_rank = 1,
         .from = 0,
         .value = kind == Disturbance::Kind::kSlow ? 1.2 : ToSeconds(base_time()) / 3}};
    spec_.reaction = Reaction::kNone;
    const Emulation alone = Run();
    spec_.reaction = Reaction::kFollow;
    spec_.delay = 0;
    const Emulation followed = Run();
    EXPECT_EQ(followed.time, alone.time);
    EXPECT_LT(followed.energy_j, alone.energy_j);
  }
}

TEST_F(EmulationTest, NoiseIsReproducibleAndHasItsSpread) {
  spec_.noise.independent = 0.02;
  spec_.iterations = 50;
  const Emulation first = Run();
  const Emulation again = Run();
  EXPECT_EQ(first.energy_j, again.energy_j);
  EXPECT_EQ(first.executions, 200);
  spec_.seed = 2;
  EXPECT_NE(Run().energy_j, first.energy_j);
  // A log-normal factor of 0.02 has a mean of exp(0.0002): energies of 50 * 4 * 48 instructions
  // average out, and waiting for the slowest of four adds time.
  double instructions_j = 0;
  for (const auto& pipeline : first.pp_ranks) {
    for (const RankTotals& rank : pipeline) instructions_j += rank.instruction_energy_j;
  }
  const double expected_j = 200 * plan_.evaluation.instruction_energy_j * std::exp(0.0002);
  EXPECT_NEAR(instructions_j, expected_j, 0.002 * expected_j);
  EXPECT_GT(first.time, 50 * base_time());
}

TEST_F(EmulationTest, TheSwitchLatencyVariesAroundItsMean) {
  const plan::Planner planner =
      MakePlanner(MakeSyntheticJob({.microbatches = 6}), {kSyntheticBlockingPowerW, 5'000'000});
  const auto steady = Emulate(planner, spec_);
  spec_.latency_spread = 0.5;
  const auto varying = Emulate(planner, spec_);
  ASSERT_TRUE(steady && varying);
  ExpectConserved(*varying);
  EXPECT_NE(varying->time, steady->time);
  EXPECT_NEAR(static_cast<double>(varying->time), static_cast<double>(steady->time),
              0.05 * static_cast<double>(steady->time));
}

TEST_F(EmulationTest, MissingPipelinesAndRanksAreErrors) {
  spec_.disturbances = {{.dp_rank = 4}};
  auto emulation = Emulate(planner_, spec_);
  ASSERT_FALSE(emulation);
  EXPECT_THAT(emulation.error().Message(),
              HasSubstr("dp_rank 4 cannot be slowed down: it does not exist (the job has 4"));
  spec_.disturbances = {{.dp_rank = 0, .pp_rank = 4}};
  emulation = Emulate(planner_, spec_);
  ASSERT_FALSE(emulation);
  EXPECT_THAT(emulation.error().Message(), HasSubstr("pp_rank 4 cannot be slowed down"));
}

}  // namespace
}  // namespace perseus::emulator
