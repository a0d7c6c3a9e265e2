#include "perseus/planning/noise/margin_moves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/random.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/noise/noise_margin.h"
#include "tests/support/planning_jobs.h"

namespace perseus::noise {
namespace {

constexpr schedule::SwitchCost kDearSwitches{.stall = 5'000'000, .energy_j = 1};

plan::Planner PlannerWithDearSwitches() {
  return MakePlanner(MakeSyntheticJob({}),
                     {.blocking_power_w = kSyntheticBlockingPowerW, .switch_cost = kDearSwitches});
}

// Returns a plan with every pp_rank at one clock, which is `below` measured clocks below the
// highest one.
plan::Plan AtOneClock(const plan::Planner& planner, std::size_t below) {
  plan::Plan plan;
  for (const schedule::InstructionNode& instruction : planner.graph().instructions) {
    const auto& options = planner.graph().option_sets[At(instruction.option_set)].options;
    std::vector<int> by_clock(options.size());
    std::iota(by_clock.begin(), by_clock.end(), 0);
    std::sort(by_clock.begin(), by_clock.end(), [&](int a, int b) {
      return options[static_cast<std::size_t>(a)].frequency_mhz >
             options[static_cast<std::size_t>(b)].frequency_mhz;
    });
    plan.options.push_back(by_clock[std::min(below, by_clock.size() - 1)]);
  }
  plan.evaluation = plan::Evaluator(planner.graph(), planner.model()).Evaluate(plan.options);
  plan.deadline = plan.evaluation.time;
  return plan;
}

int SwitchesOf(const plan::Evaluation& evaluation) {
  return std::accumulate(evaluation.pp_rank_switches.begin(), evaluation.pp_rank_switches.end(), 0);
}

// Returns a plan with random clocks, so with many changes.
plan::Plan AtAnyClocks(const plan::Planner& planner, std::uint64_t seed) {
  SplitMix64 random{seed};
  plan::Plan plan;
  for (const schedule::InstructionNode& instruction : planner.graph().instructions) {
    const auto count = planner.graph().option_sets[At(instruction.option_set)].options.size();
    // Some neighbors have the same clock.
    plan.options.push_back(static_cast<int>(random() % 3 * (count / 3)));
  }
  plan.evaluation = plan::Evaluator(planner.graph(), planner.model()).Evaluate(plan.options);
  plan.deadline = plan.evaluation.time;
  return plan;
}

std::vector<int> WithMove(std::vector<int> options, const Move& move) {
  for (const auto& [instruction, option] : move.options) options[At(instruction)] = option;
  return options;
}

TEST(SegmentMoves, AddNoChangeAndDoWhatTheySay) {
  const plan::Planner planner = PlannerWithDearSwitches();
  const SegmentMoves moves(planner);
  const plan::Evaluator evaluator(planner.graph(), {.blocking_power_w = kSyntheticBlockingPowerW});
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const plan::Plan plan = AtAnyClocks(planner, seed);
    const NoisyMean mean =
        NoisyExecution(planner.graph(), planner.model(), {.independent = 0.01}, 50, 1)
            .Run(plan.options);
    const plan::Evaluation before = evaluator.Evaluate(plan.options);
    const auto faster = moves.Faster(plan.options, mean);
    const auto slower = moves.Slower(plan.options, mean);
    EXPECT_GT(faster.size(), 10U);
    EXPECT_GT(slower.size(), 10U);
    for (const bool is_faster : {true, false}) {
      for (const Move& move : is_faster ? faster : slower) {
        const plan::Evaluation after = evaluator.Evaluate(WithMove(plan.options, move));
        for (std::size_t r = 0; r < before.pp_rank_switches.size(); ++r) {
          EXPECT_LE(after.pp_rank_switches[r], before.pp_rank_switches[r]);
        }
        EXPECT_GT(move.time_s, 0);
        for (const auto& [instruction, option] : move.options) {
          const auto& options = planner.graph().options_of(instruction).options;
          const int old = plan.options[At(instruction)];
          EXPECT_EQ(options[At(option)].frequency_mhz > options[At(old)].frequency_mhz, is_faster);
        }
        const double difference_j = after.energy_j - before.energy_j -
                                    kSyntheticBlockingPowerW * planner.pp_ranks() *
                                        (ToSeconds(after.time) - ToSeconds(before.time));
        EXPECT_NEAR(difference_j, move.cost_j, 1e-6);
      }
    }
  }
}

TEST(AddNoiseMargin, KeepsTheClockChangesOfALimitedPlan) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({}));
  const MarginLimits kLimits{.changes = MarginLimits::Changes::kNoMore};
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const plan::Plan plan = AtAnyClocks(planner, seed);
    const double slowdown = ToSeconds(plan.deadline) / ToSeconds(planner.baseline().time) - 1;
    const NoisyPlan noisy =
        AddNoiseMargin(planner, plan, {.independent = 0.02}, slowdown, kLimits).value();
    EXPECT_LE(noisy.after.slowdown, slowdown + 5e-4 + noisy.after.slowdown_ci);
    EXPECT_GT(noisy.after.saving, noisy.before.saving);  // These plans are far from good.
    EXPECT_LE(few_switches::MostSwitches(noisy.plan.evaluation),
              few_switches::MostSwitches(plan.evaluation));
  }
}

// A pp_rank with a slow first half. Only the first instruction after this half is critical.
struct SlowHalf {
  explicit SlowHalf(const plan::Planner& planner)
      : order(planner.graph().pp_rank_orders.front()),
        fastest(AtOneClock(planner, 0).options),
        options(fastest) {
    const std::vector<int> slow = AtOneClock(planner, 5).options;
    const std::size_t half = order.size() / 2;
    for (std::size_t p = 0; p < half; ++p) options[At(order[p])] = slow[At(order[p])];
    mean.criticality.assign(options.size(), 0);
    mean.criticality[At(order[half])] = 1;
  }
  std::vector<int> order;
  std::vector<int> fastest;
  std::vector<int> options;
  NoisyMean mean;
};

// A critical instruction begins at the clock of the previous segment. If only its own segment
// became faster, it would still be late. In the end, only the baseline would be in time.
TEST(SegmentMoves, WithASwitchLatencyTheSegmentBeforeACriticalInstructionGetsFaster) {
  for (const Nanoseconds latency : {0, 10'000'000}) {
    const plan::Planner planner =
        MakePlanner(MakeSyntheticJob({}),
                    {.blocking_power_w = kSyntheticBlockingPowerW, .switch_latency = latency});
    const SlowHalf job(planner);
    const std::vector<Move> faster = SegmentMoves(planner).Faster(job.options, job.mean);
    ASSERT_EQ(faster.size(), latency > 0 ? 1U : 0U);
    if (latency == 0) continue;
    EXPECT_EQ(faster.front().options.size(), job.order.size() / 2);
    EXPECT_EQ(faster.front().options.front().first, job.order.front());
    EXPECT_LT(faster.front().time_s, 0.01);
  }
}

// A critical instruction at its fastest clock still waits for the change to that clock. The wait
// disappears if the previous segment gets this clock.
TEST(SegmentMoves, AStallBeforeACriticalInstructionIsRemoved) {
  for (const Nanoseconds stall : {0, 10'000'000}) {
    const plan::Planner planner =
        MakePlanner(MakeSyntheticJob({}), {.blocking_power_w = kSyntheticBlockingPowerW,
                                           .switch_cost = {.stall = stall, .energy_j = 0}});
    const SlowHalf job(planner);
    const std::vector<Move> faster = SegmentMoves(planner).Faster(job.options, job.mean);
    ASSERT_EQ(faster.size(), stall > 0 ? 1U : 0U);
    if (stall == 0) continue;
    EXPECT_EQ(WithMove(job.options, faster.front()), job.fastest);
    EXPECT_DOUBLE_EQ(faster.front().time_s, 0.01);
  }
}

// A faster clock for a single instruction would cause two changes.
TEST(AddNoiseMargin, KeepsMostOfTheSavingUnderASwitchCost) {
  const plan::Planner planner = PlannerWithDearSwitches();
  const plan::Plan plan = AtOneClock(planner, 12);
  const double slowdown = 0.995 * ToSeconds(plan.deadline) / ToSeconds(planner.baseline().time) - 1;
  const NoisyPlan noisy = AddNoiseMargin(planner, plan, {.independent = 0.01}, slowdown).value();
  EXPECT_LE(noisy.after.slowdown, slowdown + 5e-4 + noisy.after.slowdown_ci);
  EXPECT_LE(SwitchesOf(noisy.plan.evaluation), 2);
  EXPECT_GT(noisy.after.saving, 0.9 * noisy.before.saving);
}

}  // namespace
}  // namespace perseus::noise
