// Compares Evaluator with examples computed by hand.
#include "perseus/planning/plan/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "perseus/base/index.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::plan {
namespace {

using ::testing::ElementsAre;

// 1000 MHz: 10 ms, 2 J. 500 MHz: 20 ms, 1 J.
schedule::OptionSet TwoSpeeds() {
  schedule::OptionSet set;
  set.name = "two speeds";
  set.options = {{1000, {}, 10 * kMillisecond, 2.0, 1}, {500, {}, 20 * kMillisecond, 1.0, 1}};
  return set;
}

schedule::OptionSet Fixed(Nanoseconds time, double energy_j) {
  schedule::OptionSet set;
  set.name = "fixed";
  set.kind = InstructionKind::kAllReduce;
  set.options = {{0, {}, time, energy_j, 1}};
  return set;
}

constexpr int kFast = 0;
constexpr int kSlow = 1;

//   pp_rank 0   [F 10 ms]                    [B 20 ms]
//   pp_rank 1            . 2 ms  [F 20 ms]. 2 ms
//
TEST(Evaluate, AddsDelaysAndCountsWaiting) {
  schedule::InstructionGraph graph;
  graph.option_sets = {TwoSpeeds()};
  graph.instructions = {{0, 0, 0}, {0, 1, 0}, {0, 0, 0}};
  graph.dependencies = {{0, 2, 0}, {0, 1, 2 * kMillisecond}, {1, 2, 2 * kMillisecond}};
  graph.pp_rank_orders = {{0, 2}, {1}};
  graph.pp_rank_names = {"pp_rank 0", "pp_rank 1"};

  const Evaluation evaluation = Evaluator(graph, {.blocking_power_w = 50, .switch_latency = 0})
                                    .Evaluate(std::vector{kFast, kSlow, kSlow});
  EXPECT_THAT(evaluation.starts, ElementsAre(0, 12 * kMillisecond, 34 * kMillisecond));
  EXPECT_THAT(evaluation.durations,
              ElementsAre(10 * kMillisecond, 20 * kMillisecond, 20 * kMillisecond));
  EXPECT_THAT(evaluation.energies_j, ElementsAre(2.0, 1.0, 1.0));
  EXPECT_EQ(evaluation.time, 54 * kMillisecond);
  EXPECT_DOUBLE_EQ(evaluation.instruction_energy_j, 4.0);
  // pp_rank 0 waits 24 ms in the middle, pp_rank 1 12 ms before and 22 ms after: 58 ms at 50 W.
  EXPECT_DOUBLE_EQ(evaluation.blocking_energy_j, 2.9);
  EXPECT_DOUBLE_EQ(evaluation.energy_j, 6.9);
  EXPECT_DOUBLE_EQ(evaluation.average_power_w(), 6.9 / 0.054);
  EXPECT_EQ(evaluation.switches, 2);  // pp_rank 0: between its two instructions, and back.
  EXPECT_THAT(evaluation.pp_rank_switches, ElementsAre(2, 0));
}

TEST(Evaluate, AnEmptyPpRankWaitsTheWholeTime) {
  schedule::InstructionGraph graph = MakeChain({TwoSpeeds()});
  graph.pp_rank_orders.emplace_back();
  graph.pp_rank_names.emplace_back("idle");
  const Evaluation evaluation = Evaluator(graph, {50, 0}).Evaluate(std::vector{kFast});
  EXPECT_DOUBLE_EQ(evaluation.energy_j, 2.0 + 50 * 0.010);
}

TEST(Evaluate, CountsNoSwitchesIfAllRunAtOneClock) {
  const schedule::InstructionGraph graph = MakeChain({TwoSpeeds(), TwoSpeeds(), TwoSpeeds()});
  const Evaluation evaluation =
      Evaluator(graph, {50, 5 * kMillisecond}).Evaluate(std::vector{kSlow, kSlow, kSlow});
  EXPECT_EQ(evaluation.switches, 0);
  EXPECT_EQ(evaluation.time, 60 * kMillisecond);
  EXPECT_DOUBLE_EQ(evaluation.energy_j, 3.0);
}

// The iteration repeats, so the change back at its end counts.
TEST(Evaluate, CountsTheChangeBackAtTheEnd) {
  const schedule::InstructionGraph graph = MakeChain({TwoSpeeds(), TwoSpeeds(), TwoSpeeds()});
  const Evaluator evaluator(graph, {});
  EXPECT_EQ(evaluator.Evaluate(std::vector{kFast, kFast, kSlow}).switches, 2);
  EXPECT_EQ(evaluator.Evaluate(std::vector{kFast, kSlow, kFast}).switches, 2);
}

// An instruction that was measured at only one clock has no choice. Its GPU changes to that clock
// and back.
TEST(Evaluate, CountsTheChangesOfAnInstructionWithOneClock) {
  schedule::OptionSet one_clock;
  one_clock.options = {{900, {}, 7 * kMillisecond, 1.2, 1}};
  const schedule::InstructionGraph graph = MakeChain({TwoSpeeds(), one_clock, TwoSpeeds()});
  const Evaluation at_once = Evaluator(graph, {}).Evaluate(std::vector{kSlow, 0, kSlow});
  EXPECT_EQ(at_once.switches, 2);
  EXPECT_THAT(at_once.pp_rank_switches, ElementsAre(2));

  // The time of this instruction at other clocks is unknown, so its own time is used. The last
  // instruction begins at 900 MHz, and its nearest measured clock is 1000 MHz. 4 of its 10 ms run
  // at 1000 MHz, and the rest at 500 MHz.
  const Evaluation late =
      Evaluator(graph, {0, 4 * kMillisecond}).Evaluate(std::vector{kSlow, 0, kSlow});
  EXPECT_THAT(late.durations, ElementsAre(20 * kMillisecond, 7 * kMillisecond, 16 * kMillisecond));
  EXPECT_DOUBLE_EQ(late.energies_j[1], 1.2);
  EXPECT_EQ(late.switches, 2);
}

struct LatencyCase {
  std::string_view name;
  Nanoseconds latency;
  std::vector<int> options;
  std::vector<Nanoseconds> durations;
  std::vector<double> energies_j;
  int switches;
};

class SwitchLatency : public ::testing::TestWithParam<LatencyCase> {};

// All instructions are on one pp_rank, without gaps.
TEST_P(SwitchLatency, MixesTheTwoOptions) {
  const LatencyCase& expected = GetParam();
  const schedule::InstructionGraph graph =
      MakeChain(std::vector<schedule::OptionSet>(expected.options.size(), TwoSpeeds()));
  const Evaluation evaluation = Evaluator(graph, {0, expected.latency}).Evaluate(expected.options);
  EXPECT_EQ(evaluation.durations, expected.durations);
  EXPECT_THAT(evaluation.energies_j,
              ::testing::Pointwise(::testing::DoubleEq(), expected.energies_j));
  EXPECT_EQ(evaluation.switches, expected.switches);
}

constexpr Nanoseconds kTen = 10 * kMillisecond;
constexpr Nanoseconds kTwenty = 20 * kMillisecond;
INSTANTIATE_TEST_SUITE_P(
    Latencies, SwitchLatency,
    ::testing::Values(
        // The clock of the first instruction is already set.
        LatencyCase{"first", 5 * kMillisecond, {kSlow}, {kTwenty}, {1}, 0},
        // 4 ms at 1000 MHz are 4/10 of the work. The rest takes 6/10 of 20 ms.
        LatencyCase{"down",
                    4 * kMillisecond,
                    {kFast, kSlow},
                    {kTen, 16 * kMillisecond},
                    {2, 0.4 * 2 + 0.6 * 1},
                    2},
        // 4 ms at 500 MHz are 4/20 of the work. The rest takes 8/10 of 10 ms.
        LatencyCase{"up",
                    4 * kMillisecond,
                    {kSlow, kFast},
                    {kTwenty, 12 * kMillisecond},
                    {1, 0.2 * 1 + 0.8 * 2},
                    2},
        // The latency is as long as the instruction, so all of it runs at the previous clock.
        LatencyCase{"all of it", kTen, {kFast, kSlow}, {kTen, kTen}, {2, 2}, 2},
        // With 14 ms, the whole second instruction runs at 1000 MHz, and the third one still waits
        // 4 ms for the same request.
        LatencyCase{"lands later",
                    14 * kMillisecond,
                    {kFast, kSlow, kSlow},
                    {kTen, kTen, 16 * kMillisecond},
                    {2, 2, 0.4 * 2 + 0.6 * 1},
                    2},
        // The third instruction requests the clock that the pp_rank still has. This cancels the
        // pending switch, and the fourth one starts at 1000 MHz.
        LatencyCase{"superseded by the present clock",
                    14 * kMillisecond,
                    {kFast, kSlow, kFast, kFast},
                    {kTen, kTen, kTen, kTen},
                    {2, 2, 2, 2},
                    2},
        // As above, but then the fourth requests a lower clock again: the latency starts from zero.
        LatencyCase{"asked again",
                    14 * kMillisecond,
                    {kFast, kSlow, kFast, kSlow},
                    {kTen, kTen, kTen, kTen},
                    {2, 2, 2, 2},
                    4},
        LatencyCase{"lands with the end",
                    kTen,
                    {kFast, kSlow, kSlow},
                    {kTen, kTen, kTwenty},
                    {2, 2, 1},
                    2}),
    [](const auto& test) {
      std::string name(test.param.name);
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

// A request for a third clock replaces a pending request.
TEST(SwitchLatencyOf, ALaterRequestReplacesAPendingSwitch) {
  schedule::OptionSet three = TwoSpeeds();
  three.options.insert(three.options.begin() + 1, {750, {}, 14 * kMillisecond, 1.4, 1});
  const schedule::InstructionGraph graph = MakeChain({three, three, three});
  // The latency is 12 ms. The second instruction takes 10 ms and runs at 1000 MHz. Its switch to
  // 500 MHz would happen 2 ms later, but the third instruction now requests 750 MHz. This switch
  // would happen 12 ms later, which is after the third instruction with its 10 ms.
  const Evaluation evaluation =
      Evaluator(graph, {0, 12 * kMillisecond}).Evaluate(std::vector{0, 2, 1});
  EXPECT_THAT(evaluation.durations, ElementsAre(kTen, kTen, kTen));
  EXPECT_EQ(evaluation.switches, 3);
}

// The switch to 500 MHz happens exactly when the second instruction ends. So the third instruction
// begins at 500 MHz, although it requests 750 MHz at the same moment. 10 of its 20 ms run at 500
// MHz, and then half of 14 ms at 750 MHz.
TEST(SwitchLatencyOf, ASwitchThatHappensAtARequestIsNotReplaced) {
  schedule::OptionSet three = TwoSpeeds();
  three.options.insert(three.options.begin() + 1, {750, {}, 14 * kMillisecond, 1.4, 1});
  const schedule::InstructionGraph graph = MakeChain({three, three, three});
  const Evaluation evaluation = Evaluator(graph, {0, kTen}).Evaluate(std::vector{0, 2, 1});
  EXPECT_THAT(evaluation.durations, ElementsAre(kTen, kTen, 17 * kMillisecond));
  EXPECT_DOUBLE_EQ(evaluation.energies_j[2], 0.5 * 1.0 + 0.5 * 1.4);
  EXPECT_EQ(evaluation.switches, 3);
}

//   [1000 MHz][500 MHz requested]..gap..[500 MHz]
TEST(SwitchLatencyOf, APendingSwitchHappensInTheGap) {
  schedule::InstructionGraph graph = MakeChain({TwoSpeeds(), TwoSpeeds(), TwoSpeeds()});
  graph.dependencies[1].delay = 5 * kMillisecond;
  const Evaluation evaluation =
      Evaluator(graph, {0, 14 * kMillisecond}).Evaluate(std::vector{kFast, kSlow, kSlow});
  EXPECT_THAT(evaluation.durations, ElementsAre(kTen, kTen, kTwenty));
  EXPECT_EQ(evaluation.switches, 2);
}

//   [1000 MHz]..gap of 5 ms, in which the switch happens..[500 MHz]
TEST(SwitchLatencyOf, ASwitchThatHappensWhileThePpRankWaitsCostsNothing) {
  schedule::InstructionGraph graph = MakeChain({TwoSpeeds(), TwoSpeeds()});
  graph.dependencies[0].delay = 5 * kMillisecond;
  const auto down = [&](Nanoseconds latency) {
    return Evaluator(graph, {0, latency}).Evaluate(std::vector{kFast, kSlow});
  };
  EXPECT_THAT(down(5 * kMillisecond).durations, ElementsAre(kTen, kTwenty));
  EXPECT_EQ(down(5 * kMillisecond).switches, 2);
  // 2 of the 7 ms remain: 2/10 of the work at 1000 MHz, 8/10 of 20 ms at 500 MHz.
  EXPECT_THAT(down(7 * kMillisecond).durations, ElementsAre(kTen, 18 * kMillisecond));
}

TEST(SwitchLatencyOf, FixedInstructionsDoNotChangeTheClock) {
  const schedule::InstructionGraph graph =
      MakeChain({TwoSpeeds(), Fixed(3 * kMillisecond, 0.5), TwoSpeeds()});
  const Evaluation same = Evaluator(graph, {0, 4 * kMillisecond}).Evaluate(std::vector{1, 0, 1});
  EXPECT_THAT(same.durations, ElementsAre(kTwenty, 3 * kMillisecond, kTwenty));
  EXPECT_EQ(same.switches, 0);
  // The clock of the third instruction is requested when the fixed one starts, 3 ms before the
  // third one begins. The switch happens 1 ms after its begin: 1/10 of the work at 1000 MHz, 9/10
  // of 20 ms.
  const Evaluation down = Evaluator(graph, {0, 4 * kMillisecond}).Evaluate(std::vector{0, 0, 1});
  EXPECT_THAT(down.durations, ElementsAre(kTen, 3 * kMillisecond, 19 * kMillisecond));
  EXPECT_EQ(down.switches, 2);
}

TEST(SwitchLatencyOf, AFixedInstructionMayComeFirst) {
  const schedule::InstructionGraph graph = MakeChain({Fixed(3 * kMillisecond, 0.5), TwoSpeeds()});
  const Evaluation evaluation =
      Evaluator(graph, {0, 4 * kMillisecond}).Evaluate(std::vector{0, kSlow});
  EXPECT_THAT(evaluation.durations, ElementsAre(3 * kMillisecond, kTwenty));
  EXPECT_EQ(evaluation.switches, 0);
}

TEST(SwitchLatencyOf, TheNearestFrequencyReplacesOneThatWasNotMeasured) {
  schedule::OptionSet coarse;  // 1000 MHz was never measured; 900 MHz is nearer than 400.
  coarse.options = {{900, {}, 8 * kMillisecond, 1.6, 1}, {400, {}, 16 * kMillisecond, 0.8, 1}};
  const schedule::InstructionGraph graph = MakeChain({TwoSpeeds(), coarse});
  const Evaluation evaluation =
      Evaluator(graph, {0, 2 * kMillisecond}).Evaluate(std::vector{kFast, 1});
  // 2 of 8 ms at 900 MHz, the rest at 400.
  EXPECT_THAT(evaluation.durations, ElementsAre(kTen, 14 * kMillisecond));
  EXPECT_DOUBLE_EQ(evaluation.energies_j[1], 0.25 * 1.6 + 0.75 * 0.8);
}

// The options are not sorted. Two options are 100 MHz away from 1000 MHz, and the first one is
// used. Of several options with the same frequency that take the same time, the first one is used.
TEST(SwitchLatencyOf, OfSeveralNearestOptionsTheFirstCounts) {
  const auto option = [](int mhz, double knob) {
    return profile::Option{mhz, {knob}, 10 * kMillisecond, mhz + knob, 1};
  };
  schedule::OptionSet many;
  many.options = {option(400, 1),  option(1100, 2), option(1100, 1), option(900, 1),
                  option(1500, 3), option(1500, 1), option(900, 2)};
  schedule::OptionSet previous;
  previous.options = {option(1000, 1), option(1100, 1), option(1100, 9), option(100, 1),
                      option(9000, 1), option(901, 1),  option(1500, 1)};
  schedule::InstructionGraph graph = MakeChain({previous, many});
  graph.other_knob_names = {"sm_count"};
  const auto stand_in_for = [&](int present) {
    // The latency is so long that the whole second instruction runs at the clock of the first one.
    const Evaluator evaluator(graph, {0, 20 * kMillisecond});
    return evaluator.Evaluate(std::vector{present, 0}).energies_j[1];
  };
  EXPECT_EQ(stand_in_for(0), 1100 + 2);
  EXPECT_EQ(stand_in_for(1), 1100 + 2);
  EXPECT_EQ(stand_in_for(2), 1100 + 2);
  EXPECT_EQ(stand_in_for(3), 400 + 1);
  EXPECT_EQ(stand_in_for(4), 1500 + 3);
  EXPECT_EQ(stand_in_for(5), 900 + 1);
  EXPECT_EQ(stand_in_for(6), 1500 + 3);
}

// Each instruction has its own clocks. A table of the nearest options for all pairs of clocks would
// take 7 GB.
TEST(SwitchLatencyOf, AcceptsAnyNumberOfClocks) {
  std::vector<schedule::OptionSet> sets(30'000, TwoSpeeds());
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const int mhz = static_cast<int>(i);
    sets[i].options[kFast].frequency_mhz = 100'000 + mhz;
    sets[i].options[kSlow].frequency_mhz = mhz;
  }
  const schedule::InstructionGraph graph = MakeChain(std::move(sets));
  const Evaluation evaluation =
      Evaluator(graph, {0, kTwenty}).Evaluate(std::vector<int>(graph.instructions.size(), kFast));
  EXPECT_EQ(evaluation.switches, 30'000);
  EXPECT_EQ(evaluation.time, 30'000 * kTen);
}

TEST(SwitchLatencyOf, DoesNotApplyToOtherKnobs) {
  schedule::OptionSet set;
  set.options = {{1000, {8}, 10 * kMillisecond, 2.0, 1}, {1000, {4}, 20 * kMillisecond, 1.0, 1}};
  const schedule::InstructionGraph graph = MakeChain({set, set});
  const Evaluation evaluation = Evaluator(graph, {0, 4 * kMillisecond}).Evaluate(std::vector{0, 1});
  EXPECT_THAT(evaluation.durations, ElementsAre(kTen, 20 * kMillisecond));
  EXPECT_EQ(evaluation.switches, 0);
}

// The clocks of the four instructions: fast, slow, slow, fast. The change back to the first one
// would stall it, but it does not happen: the last clock is the first one.
TEST(SwitchCostOf, StallsTheInstructionAfterAChange) {
  const schedule::InstructionGraph graph =
      MakeChain({TwoSpeeds(), TwoSpeeds(), TwoSpeeds(), TwoSpeeds()});
  const Evaluator evaluator(graph, {.blocking_power_w = 50,
                                    .switch_latency = 0,
                                    .switch_cost = {.stall = 4 * kMillisecond, .energy_j = 0.5}});
  const Evaluation evaluation = evaluator.Evaluate(std::vector{kFast, kSlow, kSlow, kFast});
  EXPECT_THAT(evaluation.starts,
              ElementsAre(0, 10 * kMillisecond, 34 * kMillisecond, 54 * kMillisecond));
  EXPECT_THAT(evaluation.durations, ElementsAre(10 * kMillisecond, 24 * kMillisecond,
                                                20 * kMillisecond, 14 * kMillisecond));
  // A stall draws 50 W for 4 ms, and a change needs 0.5 J in addition.
  EXPECT_THAT(evaluation.energies_j, ElementsAre(2.0, 1.7, 1.0, 2.7));
  EXPECT_EQ(evaluation.time, 68 * kMillisecond);
  EXPECT_DOUBLE_EQ(evaluation.blocking_energy_j, 0);
  EXPECT_EQ(evaluation.switches, 2);
}

TEST(SwitchCostOf, AChangeBackStallsTheNextIteration) {
  const schedule::InstructionGraph graph =
      MakeChain({Fixed(kMillisecond, 0), TwoSpeeds(), TwoSpeeds()});
  const Evaluator evaluator(
      graph, {.blocking_power_w = 0, .switch_latency = 0, .switch_cost = {kMillisecond, 0.5}});
  const Evaluation evaluation = evaluator.Evaluate(std::vector{0, kFast, kSlow});
  EXPECT_THAT(evaluation.durations,
              ElementsAre(kMillisecond, 11 * kMillisecond, 21 * kMillisecond));
  EXPECT_DOUBLE_EQ(evaluation.energy_j, 4.0);
  EXPECT_EQ(evaluation.switches, 2);
}

TEST(SwitchCostOf, ALatencyPassesDuringTheStall) {
  const schedule::InstructionGraph graph = MakeChain({TwoSpeeds(), TwoSpeeds(), TwoSpeeds()});
  const Evaluator evaluator(graph, {.blocking_power_w = 0,
                                    .switch_latency = 5 * kMillisecond,
                                    .switch_cost = {2 * kMillisecond, 0}});
  const Evaluation evaluation = evaluator.Evaluate(std::vector{kFast, kSlow, kFast});
  // 2 ms of stall. Then 3/10 of the instruction at the fast clock (3 ms), and 7/10 at the slow one
  // (14 ms).
  EXPECT_EQ(evaluation.durations[1], 19 * kMillisecond);
  // 2 ms of stall. Then 3/20 of it at the slow clock (3 ms), and 17/20 at the fast one (8.5 ms).
  EXPECT_EQ(evaluation.durations[2], 13'500'000);
}

// Each instruction starts after its predecessors. The energy follows the formula of the header. A
// latency of 0 has no effect.
TEST(EvaluateProperty, HoldsOnRandomJobs) {
  for (std::uint64_t seed = 0; seed < Seeds(500); ++seed) {
    SCOPED_TRACE(seed);
    const auto shape = seed % 2 == 0 ? JobShape::kPipeline : JobShape::kAnyOrder;
    const schedule::InstructionGraph graph = RandomJob({.shape = shape, .instructions = 16}, seed);
    std::vector<int> options;
    for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
      const auto count = graph.options_of(static_cast<int>(i)).options.size();
      options.push_back(static_cast<int>((seed + 7 * i) % count));
    }
    const double power_w = RandomBlockingPower(seed);
    for (const Nanoseconds latency : {Nanoseconds{0}, kMillisecond / 2, 3 * kMillisecond}) {
      const Evaluation evaluation = Evaluator(graph, {power_w, latency}).Evaluate(options);
      EXPECT_DOUBLE_EQ(evaluation.energy_j,
                       evaluation.instruction_energy_j + evaluation.blocking_energy_j);
      const auto ranks = static_cast<double>(graph.pp_rank_orders.size());
      double energy_j = ranks * power_w * ToSeconds(evaluation.time);
      Nanoseconds last = 0;
      for (std::size_t i = 0; i < options.size(); ++i) {
        energy_j += evaluation.energies_j[i] - power_w * ToSeconds(evaluation.durations[i]);
        last = std::max(last, evaluation.starts[i] + evaluation.durations[i]);
        if (latency == 0) {
          const auto& set = graph.options_of(static_cast<int>(i)).options;
          EXPECT_EQ(evaluation.durations[i], set[static_cast<std::size_t>(options[i])].time);
        }
      }
      EXPECT_NEAR(evaluation.energy_j, energy_j, 1e-12 * energy_j * 100);
      EXPECT_EQ(evaluation.time, last);
      for (const schedule::Dependency& dependency : graph.dependencies) {
        const auto from = static_cast<std::size_t>(dependency.from);
        EXPECT_GE(evaluation.starts[static_cast<std::size_t>(dependency.to)],
                  evaluation.starts[from] + evaluation.durations[from] + dependency.delay);
      }
    }
  }
}

TEST(LongestPath, TakesTheTimeOfTheIteration) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const schedule::InstructionGraph graph = RandomJob({.instructions = 12}, seed);
    const Evaluator evaluator(graph, {});
    const Evaluation evaluation = evaluator.Evaluate(schedule::BaselineOptions(graph));
    const std::vector<int> path = evaluator.LongestPath(evaluation);
    ASSERT_FALSE(path.empty()) << seed;
    EXPECT_EQ(evaluation.starts[At(path.back())], 0) << seed;
    const auto end_of = [&](int i) {
      return evaluation.starts[At(i)] + evaluation.durations[At(i)];
    };
    EXPECT_EQ(end_of(path.front()), evaluation.time) << seed;
    for (std::size_t k = 1; k < path.size(); ++k) {
      // At least one dependency between the two instructions has no slack.
      const auto leaves_none = [&](const schedule::Dependency& dependency) {
        return dependency.from == path[k] && dependency.to == path[k - 1] &&
               end_of(path[k]) + dependency.delay == evaluation.starts[At(path[k - 1])];
      };
      EXPECT_TRUE(std::any_of(graph.dependencies.begin(), graph.dependencies.end(), leaves_none))
          << seed;
    }
  }
}

TEST(BaselineOptions, AreTheOptionsAtMaximumFrequency) {
  schedule::OptionSet set = TwoSpeeds();
  set.baseline = 1;
  EXPECT_THAT(schedule::BaselineOptions(MakeChain({TwoSpeeds(), set})), ElementsAre(0, 1));
}

}  // namespace
}  // namespace perseus::plan
