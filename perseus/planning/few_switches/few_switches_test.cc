// Plans with few clock changes: compared with exhaustive search, and their properties.
#include "perseus/planning/few_switches/few_switches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "perseus/base/index.h"
#include "perseus/planning/few_switches/price_ascent.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::few_switches {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr int kBudgets[] = {0, 2, 3, 4};
// Energies are sums of doubles.
constexpr double kRounding = 1e-9;

// [pp_rank] The number of clock changes, counted independently: from each instruction that has a
// clock to the next one, around the ring of the iteration.
std::vector<int> CountChanges(const schedule::InstructionGraph& graph,
                              const std::vector<int>& options) {
  std::vector<int> changes;
  for (const std::vector<int>& order : graph.pp_rank_orders) {
    std::vector<const profile::Option*> ring;
    for (const int i : order) {
      const schedule::OptionSet& set = graph.options_of(i);
      if (set.HasClock()) ring.push_back(&set.options[At(options[At(i)])]);
    }
    int count = 0;
    for (std::size_t i = 0; i < ring.size(); ++i) {
      if (!ring[i]->SameKnobs(*ring[(i + 1) % ring.size()])) ++count;
    }
    changes.push_back(count);
  }
  return changes;
}

int MostChanges(const schedule::InstructionGraph& graph, const std::vector<int>& options) {
  const std::vector<int> changes = CountChanges(graph, options);
  return *std::max_element(changes.begin(), changes.end());
}

using Waiting = SwitchLimits::Waiting;

double EnergyOf(const plan::Planner& planner, Nanoseconds deadline, Waiting waiting,
                const plan::Evaluation& evaluation) {
  return waiting == Waiting::kUntilEnd ? evaluation.energy_j
                                       : planner.EnergyUntil(deadline, evaluation);
}

// The least energy within the deadline for each of kBudgets, or infinity if no plan exists.
std::vector<double> SearchAllBudgets(const plan::Planner& planner, Nanoseconds deadline,
                                     Waiting waiting = Waiting::kUntilEnd) {
  const schedule::InstructionGraph& graph = planner.graph();
  const plan::Evaluator evaluator(graph, planner.model());
  std::vector<double> least(std::size(kBudgets), std::numeric_limits<double>::infinity());
  std::vector<int> options(graph.instructions.size(), 0);
  while (true) {
    const plan::Evaluation evaluation = evaluator.Evaluate(options);
    if (evaluation.time <= deadline) {
      const int changes = MostChanges(graph, options);
      for (std::size_t b = 0; b < least.size(); ++b) {
        if (changes > kBudgets[b]) continue;
        least[b] = std::min(least[b], EnergyOf(planner, deadline, waiting, evaluation));
      }
    }
    std::size_t i = 0;
    for (; i < options.size(); ++i) {
      const auto count = static_cast<int>(graph.options_of(static_cast<int>(i)).options.size());
      if (++options[i] < count) break;
      options[i] = 0;
    }
    if (i == options.size()) return least;
  }
}

// Compares plans and bounds for all kBudgets and some deadlines with an exhaustive search.
void CompareWithAllPlans(const schedule::InstructionGraph& graph, const plan::ExecutionModel& model,
                         const SwitchLimits& limits) {
  const plan::Planner planner =
      *plan::Planner::Create(graph, model, plan::Planner::FewOptions::kAccept);
  const Nanoseconds slowest = planner.SlowestTime();
  for (const int part : {0, 3, 6, 10}) {
    SCOPED_TRACE(part);
    const Nanoseconds deadline =
        planner.least_time() + (slowest - planner.least_time()) * part / 10;
    const std::vector<double> best = SearchAllBudgets(planner, deadline, limits.waiting);
    const auto plans = PlanFewSwitches(planner, deadline, kBudgets, {}, limits);
    ASSERT_TRUE(plans) << plans.error().Message();
    for (std::size_t b = 0; b < best.size(); ++b) {
      SCOPED_TRACE(kBudgets[b]);
      const BudgetPlan& found = (*plans)[b];
      EXPECT_LE(found.lower_bound_j, best[b] * (1 + kRounding));
      ASSERT_EQ(found.plan.has_value(), std::isfinite(best[b]));
      if (!found.plan) continue;
      const double energy_j = EnergyOf(planner, deadline, limits.waiting, found.plan->evaluation);
      EXPECT_LE(energy_j, best[b] * 1.001);
      EXPECT_GE(energy_j, best[b] * (1 - kRounding));
    }
  }
}

// With this effort, the search finds the best plans, unless a clock change takes long.
constexpr double kQuarterEffort = 0.25;

TEST(FewSwitches, FindsTheBestPlanOfSmallPipelines) {
  for (std::uint64_t seed = 0; seed < Seeds(4); ++seed) {
    SCOPED_TRACE(seed);
    CompareWithAllPlans(
        RandomJob({.shape = JobShape::kPipeline, .instructions = 8, .options = 3}, seed),
        {.blocking_power_w = RandomBlockingPower(seed)}, {.effort = kQuarterEffort});
  }
}

// With a straggler in another pipeline, the iteration ends at the deadline.
TEST(FewSwitches, FindsTheLeastEnergyUntilTheDeadline) {
  for (std::uint64_t seed = 0; seed < Seeds(4); ++seed) {
    SCOPED_TRACE(seed);
    CompareWithAllPlans(
        RandomJob({.shape = JobShape::kPipeline, .instructions = 8, .options = 3}, seed),
        {.blocking_power_w = RandomBlockingPower(seed)},
        {.effort = kQuarterEffort, .waiting = Waiting::kUntilDeadline});
  }
}

// A pipeline whose pp_ranks end with an all-reduce, and the mean time of its instructions.
struct ReducingPipeline {
  schedule::InstructionGraph graph;
  Nanoseconds mean = 0;
};
ReducingPipeline MakeReducingPipeline(std::uint64_t seed) {
  ReducingPipeline made{
      RandomJob({.shape = JobShape::kPipeline, .instructions = 8, .options = 3}, seed), 0};
  schedule::InstructionGraph& graph = made.graph;
  const auto instructions = static_cast<Nanoseconds>(graph.instructions.size());
  for (int i = 0; i < static_cast<int>(instructions); ++i) {
    made.mean += graph.options_of(i).options.front().time / instructions;
  }
  for (std::size_t r = 0; r < graph.pp_rank_orders.size(); ++r) {
    schedule::OptionSet& set = graph.option_sets.emplace_back();
    set.kind = InstructionKind::kAllReduce;
    set.options.resize(1);
    set.options.front().time = made.mean / 2;
    const auto added = static_cast<int>(graph.instructions.size());
    graph.instructions.push_back(
        {static_cast<int>(graph.option_sets.size()) - 1, static_cast<int>(r), -1});
    graph.dependencies.push_back({graph.pp_rank_orders[r].back(), added, 0});
    graph.pp_rank_orders[r].push_back(added);
  }
  return made;
}

class FewSwitchesConditionsTest : public ::testing::TestWithParam<int> {};

TEST_P(FewSwitchesConditionsTest, FindsTheBestPlanOfSmallPipelines) {
  for (std::uint64_t seed = 0; seed < Seeds(2); ++seed) {
    SCOPED_TRACE(seed);
    ReducingPipeline pipeline = MakeReducingPipeline(seed);
    if (seed % 2 == 1) {  // An instruction that was measured at one clock.
      pipeline.graph.option_sets.front().options.resize(1);
      pipeline.graph.option_sets.front().baseline = 0;
    }
    const Nanoseconds mean = pipeline.mean;
    const double power_w = RandomBlockingPower(seed);
    const double energy_j = pipeline.graph.options_of(0).options.front().energy_j / 50;
    const plan::ExecutionModel conditions[] = {
        {power_w, 0, {mean / 10, energy_j}},
        {power_w, mean / 4, {}},
        {power_w, mean * 2, {mean / 20, energy_j}},
        {power_w, mean / 4, {mean / 20, energy_j}},
    };
    CompareWithAllPlans(pipeline.graph, conditions[At(GetParam())], {});
  }
}

constexpr std::array kConditionNames{"SwitchCost", "Latency", "LongLatencyAndCost",
                                     "LatencyAndCost"};

std::string ConditionName(const ::testing::TestParamInfo<int>& test) {
  return kConditionNames[At(test.param)];
}

INSTANTIATE_TEST_SUITE_P(Conditions, FewSwitchesConditionsTest, ::testing::Range(0, 4),
                         ConditionName);

// Only bounds without the search, so that many jobs take little time. Every second job has a switch
// cost.
TEST(FewSwitches, NoBoundIsAboveTheBestPlanOfASmallPipeline) {
  for (std::uint64_t seed = 100; seed < 100 + Seeds(60); ++seed) {
    SCOPED_TRACE(seed);
    const schedule::InstructionGraph graph =
        RandomJob({.shape = JobShape::kPipeline, .instructions = 8, .options = 3}, seed);
    plan::ExecutionModel model{.blocking_power_w = RandomBlockingPower(seed)};
    if (seed % 2 == 1) model.switch_cost.stall = graph.options_of(0).options.front().time / 20;
    const plan::Planner planner =
        *plan::Planner::Create(graph, model, plan::Planner::FewOptions::kAccept);
    const Nanoseconds deadline =
        planner.least_time() + planner.least_time() * static_cast<Nanoseconds>(seed % 3) / 50;
    const std::vector<double> best = SearchAllBudgets(planner, deadline);
    const auto bounds = BoundFewSwitches(planner, deadline, kBudgets);
    ASSERT_TRUE(bounds) << bounds.error().Message();
    for (std::size_t b = 0; b < best.size(); ++b) {
      SCOPED_TRACE(kBudgets[b]);
      EXPECT_LE(ToJoules((*bounds)[b].best.bound), best[b] * (1 + kRounding));
      EXPECT_TRUE((*bounds)[b].best.exists || std::isinf(best[b]));
    }
  }
}

// The longest instruction lacks the highest clocks of its GPU. Then with few changes, only slow
// plans exist. For a deadline that these plans miss, the bound would grow as long as the ascent
// lasts.
TEST(FewSwitches, ABoundThatIsAboveEveryPlanDoesNotExist) {
  schedule::InstructionGraph graph = MakeSyntheticJob({});
  const auto fastest = [](const schedule::OptionSet& set) { return set.options[At(set.baseline)]; };
  schedule::OptionSet& longest = *std::ranges::max_element(
      graph.option_sets, {}, [&](const auto& set) { return fastest(set).time; });
  const double highest_mhz = 0.93 * fastest(longest).frequency_mhz;
  std::erase_if(longest.options,
                [&](const auto& option) { return option.frequency_mhz > highest_mhz; });
  const auto next = std::ranges::max_element(longest.options, {}, &profile::Option::frequency_mhz);
  longest.baseline = static_cast<int>(next - longest.options.begin());
  const plan::Planner planner = MakePlanner(graph);
  const Nanoseconds deadline = planner.baseline().time;
  const auto plans = PlanFewSwitches(planner, deadline, std::vector{0, 2, 4, 8, 16, 32});
  ASSERT_TRUE(plans) << plans.error().Message();
  EXPECT_TRUE(std::isinf(plans->front().lower_bound_j));
  for (const BudgetPlan& plan : *plans) {
    SCOPED_TRACE(plan.most_changes);
    EXPECT_FALSE(plan.plan && std::isinf(plan.lower_bound_j));
    // No plan needs more than twice the energy of the highest clocks.
    if (std::isfinite(plan.lower_bound_j)) {
      EXPECT_LT(plan.lower_bound_j, 2 * planner.baseline().energy_j);
    }
  }
  EXPECT_TRUE(plans->back().plan);
}

TEST(FewSwitches, FindsTheBestPlanOfSmallGraphs) {
  for (std::uint64_t seed = 0; seed < Seeds(16); ++seed) {
    SCOPED_TRACE(seed);
    CompareWithAllPlans(RandomJob({.instructions = 6}, seed),
                        {.blocking_power_w = RandomBlockingPower(seed)},
                        {.effort = kQuarterEffort});
  }
}

TEST(FewSwitches, FindsTheBestPlanAmongTies) {
  for (std::uint64_t seed = 0; seed < Seeds(8); ++seed) {
    SCOPED_TRACE(seed);
    CompareWithAllPlans(
        RandomJob({.instructions = 6, .times = JobSpec::Times::kMilliseconds}, seed),
        {.blocking_power_w = RandomBlockingPower(seed)}, {.effort = kQuarterEffort});
  }
}

// A short stall makes a plan late by microseconds, and the search has to notice it. A plan with a
// longer stall is also a plan with a shorter one, which needs less energy. The searches differ, so
// the results may differ by the accuracy of a search (docs/benchmarks.md).
TEST(FewSwitches, ASmallerCostGivesNoWorsePlan) {
  constexpr double kAccuracy = 0.002;  // Relative to the energy of the baseline.
  const schedule::InstructionGraph graph = MakeSyntheticJob({.microbatches = 6, .noise = 0});
  for (const Nanoseconds latency : {Nanoseconds{0}, 15 * kMillisecond}) {
    std::vector<double> more_j;  // [budget] The energy with the next longer stall.
    for (const Nanoseconds stall_us : {1'000, 300, 100, 30, 10, 1}) {
      SCOPED_TRACE(stall_us);
      const plan::Planner planner =
          MakePlanner(graph, {.blocking_power_w = kSyntheticBlockingPowerW,
                              .switch_latency = latency,
                              .switch_cost = {.stall = stall_us * kMicrosecond}});
      const auto plans =
          PlanFewSwitches(planner, planner.baseline().time, kBudgets, {}, {.effort = 0.3});
      ASSERT_TRUE(plans) << plans.error().Message();
      std::vector<double> energies_j;
      for (const BudgetPlan& plan : *plans) {
        energies_j.push_back(plan.plan->evaluation.energy_j);
      }
      for (std::size_t b = 0; b < more_j.size(); ++b) {
        EXPECT_LE(energies_j[b], more_j[b] + kAccuracy * planner.baseline().energy_j)
            << kBudgets[b] << " changes, latency " << latency;
      }
      more_j = std::move(energies_j);
    }
  }
}

// An instruction that was measured at only one clock has no choice, but its GPU changes to that
// clock and back.
TEST(FewSwitches, CountsTheChangesOfInstructionsWithOneClock) {
  for (std::uint64_t seed = 0; seed < Seeds(8); ++seed) {
    SCOPED_TRACE(seed);
    schedule::InstructionGraph graph = RandomJob({.instructions = 6}, seed);
    schedule::OptionSet& set = graph.option_sets[seed % graph.option_sets.size()];
    set.options = {set.options[seed % set.options.size()]};
    set.baseline = 0;
    CompareWithAllPlans(graph, {.blocking_power_w = RandomBlockingPower(seed)},
                        {.effort = kQuarterEffort});
  }
}

plan::Planner PlannerOf(const std::string& schedule) {
  return MakePlanner(MakeSyntheticJob(
      {.schedule = schedule,
       .fixed = {
           .p2p = kMillisecond, .load = {}, .all_reduce = {20 * kMillisecond}, .optimizer = {}}}));
}

// Eight microbatches on four stages with no slowdown: prices alone let a pp_rank mix a sequence
// that is too slow with one that is too fast.
TEST(FewSwitches, WindowsRaiseTheBoundWithNoSlowdown) {
  const plan::Planner planner = PlannerOf("1f1b");
  const Nanoseconds deadline = planner.baseline().time;
  const auto ranks = CollectClocks(planner.graph(), planner.model().blocking_power_w);
  SwitchBound bound(planner, ranks, deadline, planner.blocking_price());
  ASSERT_TRUE(bound.has_windows());
  const auto relaxed = planner.Relax(deadline, planner.blocking_price(), {});
  ASSERT_TRUE(relaxed);
  for (const int changes : {2, 3}) {
    SCOPED_TRACE(changes);
    PriceAscent without(bound, {relaxed->flow, relaxed->price});
    without.Climb(changes, {.steps = 200});
    PriceAscent with(bound, {relaxed->flow, relaxed->price});
    with.Climb(changes, {.steps = 100, .window_steps = 100, .window_work = 10'000'000});
    EXPECT_GT(ToJoules(with.best().bound), ToJoules(without.best().bound) * 1.0001);
  }
}

// The job is so large that each pp_rank gets a thread.
TEST(FewSwitches, BoundsAreTheSameOnAllCores) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({.stages = 4, .microbatches = 64}));
  const int budgets[] = {2, 16};
  SwitchLimits limits{.effort = 0.1};
  const auto alone = BoundFewSwitches(planner, planner.baseline().time, budgets, limits);
  limits.threads = SwitchLimits::Threads::kAllCores;
  const auto together = BoundFewSwitches(planner, planner.baseline().time, budgets, limits);
  ASSERT_TRUE(alone && together);
  for (std::size_t i = 0; i < std::size(budgets); ++i) {
    EXPECT_TRUE((*alone)[i].best.bound == (*together)[i].best.bound) << budgets[i];
    EXPECT_EQ((*alone)[i].best.clocks, (*together)[i].best.clocks);
    EXPECT_EQ((*alone)[i].best.work, (*together)[i].best.work);
  }
}

class FewSwitchesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(FewSwitchesTest, EveryPlanKeepsItsBudgetItsDeadlineAndItsBound) {
  const plan::Planner planner = PlannerOf(GetParam());
  constexpr int kSteps[] = {0, 1, 2, 3, 5, 8};
  for (const int slowdown_percent : {0, 4}) {
    SCOPED_TRACE(slowdown_percent);
    const Nanoseconds deadline = planner.baseline().time * (100 + slowdown_percent) / 100;
    const auto plans = PlanFewSwitches(planner, deadline, kSteps, {}, {.effort = 0.3});
    ASSERT_TRUE(plans) << plans.error().Message();
    ASSERT_EQ(plans->size(), std::size(kSteps));
    const plan::Evaluator evaluator(planner.graph(), planner.model());
    double last_energy_j = std::numeric_limits<double>::infinity();
    double last_bound_j = std::numeric_limits<double>::infinity();
    for (const BudgetPlan& budget : *plans) {
      SCOPED_TRACE(budget.most_changes);
      ASSERT_TRUE(budget.plan);
      const plan::Evaluation& evaluation = budget.plan->evaluation;
      EXPECT_EQ(evaluator.Evaluate(budget.plan->options).energy_j, evaluation.energy_j);
      EXPECT_LE(evaluation.time, deadline);
      EXPECT_EQ(budget.changes, CountChanges(planner.graph(), budget.plan->options));
      EXPECT_THAT(budget.changes, Each(Le(budget.most_changes == 1 ? 0 : budget.most_changes)));
      EXPECT_LE(evaluation.energy_j, planner.baseline().energy_j * (1 + kRounding));
      EXPECT_LE(evaluation.energy_j, last_energy_j);
      EXPECT_LE(budget.lower_bound_j, last_bound_j);
      EXPECT_LE(budget.lower_bound_j, evaluation.energy_j * (1 + kRounding));
      EXPECT_EQ(budget.plan->lower_bound_j, budget.lower_bound_j);
      last_energy_j = evaluation.energy_j;
      last_bound_j = budget.lower_bound_j;
    }
    // The relaxation without a budget is at most as high as every bound with a budget.
    EXPECT_GE(last_bound_j, *planner.BoundFor(deadline) * (1 - kRounding));
  }
}

TEST_P(FewSwitchesTest, WithoutAUsefulLimitThePlanIsAtLeastAsGood) {
  const plan::Planner planner = PlannerOf(GetParam());
  const plan::Plan unlimited = *planner.PlanFor(planner.baseline().time);
  const int many = 1'000;
  const auto plans = PlanFewSwitches(planner, planner.baseline().time, std::span(&many, 1),
                                     std::span(&unlimited, 1), {.effort = 0.1});
  ASSERT_TRUE(plans) << plans.error().Message();
  ASSERT_TRUE(plans->front().plan);
  EXPECT_LE(plans->front().plan->evaluation.energy_j,
            unlimited.evaluation.energy_j * (1 + kRounding));
}

TEST_P(FewSwitchesTest, TheSameInputGivesTheSamePlans) {
  const plan::Planner planner = PlannerOf(GetParam());
  const auto make = [&] {
    return *PlanFewSwitches(planner, planner.baseline().time, kBudgets, {}, {.effort = 0.1});
  };
  const std::vector<BudgetPlan> once = make();
  const std::vector<BudgetPlan> again = make();
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(once[i].plan->options, again[i].plan->options);
    EXPECT_EQ(once[i].lower_bound_j, again[i].lower_bound_j);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, FewSwitchesTest,
                         ::testing::Values("1f1b", "interleaved-1f1b", "zb-h1", "zb-v"),
                         [](const auto& given) {
                           std::string name = given.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(FewSwitches, RejectsBadRequests) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({}));
  const auto complaint = [&](const plan::Planner& of, Nanoseconds deadline,
                             const std::vector<int>& budgets) {
    const auto plans = PlanFewSwitches(of, deadline, budgets);
    return plans ? "no error" : plans.error().Message();
  };
  const Nanoseconds time = planner.baseline().time;
  EXPECT_THAT(complaint(planner, time, {-1}), HasSubstr("-1 clock changes is out of range"));
  EXPECT_THAT(complaint(planner, time, {4, 4}), HasSubstr("have to rise, but 4 follows 4"));
  EXPECT_THAT(complaint(planner, 1, {4}), HasSubstr("the least possible iteration time"));
}

TEST(FewSwitches, StopsOnRequest) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({}));
  std::stop_source stop;
  stop.request_stop();
  const auto plans =
      PlanFewSwitches(planner, planner.baseline().time, kBudgets, {}, {.stop = stop.get_token()});
  ASSERT_FALSE(plans);
  EXPECT_EQ(plans.error().kind, ErrorKind::kSystem);
}

TEST(FewSwitches, SaysThatNoPlanExists) {
  const plan::Planner planner = MakePlanner(MakeJobWithoutSharedClock(), {});
  const auto plans = PlanFewSwitches(planner, 30, kBudgets);
  ASSERT_TRUE(plans) << plans.error().Message();
  EXPECT_FALSE((*plans)[0].plan);
  EXPECT_TRUE(std::isinf((*plans)[0].lower_bound_j));
  ASSERT_TRUE((*plans)[1].plan);
  EXPECT_EQ((*plans)[1].plan->evaluation.energy_j, 14);
}

}  // namespace
}  // namespace perseus::few_switches
