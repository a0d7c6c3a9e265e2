// The discrete bound is never above the best plan, and close to it where windows are narrow.
#include "perseus/planning/discrete_bound/discrete_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "bench/measured_job.h"
#include "perseus/base/index.h"
#include "perseus/planning/discrete_bound/rank_steps.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::discrete_bound {
namespace {

// Energies of plans are sums of doubles.
constexpr double kRounding = 1e-12;

// A deadline between the least time (0 %) and the time with every instruction at its cheapest (100
// %).
Nanoseconds DeadlineAt(const plan::Planner& planner, int percent) {
  const Nanoseconds range = planner.SlowestTime() - planner.least_time();
  return planner.least_time() + range / 100 * percent;
}

// How often the bound was above the bound of the relaxation, and how often this was possible.
struct Tally {
  int raised = 0;
  int gaps = 0;
};

// With few cases, the bound may never be raised.
void ExpectOftenRaised(const Tally& tally) {
  if (kHasFewCases) return;
  EXPECT_GT(tally.raised, tally.gaps / 10);
}

void CompareWithAllPlans(const JobSpec& spec, std::uint64_t seed, Tally& tally) {
  SCOPED_TRACE(seed);
  const plan::Planner planner = MakePlanner(RandomJob(spec, seed), {RandomBlockingPower(seed), 0});
  for (const int percent : {0, 1, 5, 20, 50, 100}) {
    SCOPED_TRACE(percent);
    const Nanoseconds deadline = DeadlineAt(planner, percent);
    const auto best = SearchAll(planner.graph(), planner.model(), deadline);
    ASSERT_TRUE(best);
    const auto bound = BoundDiscretePlans(planner, deadline);
    ASSERT_TRUE(bound) << bound.error().Message();
    EXPECT_LE(bound->lower_bound_j, best->energy_j * (1 + kRounding));
    const double relaxed_j = *planner.BoundFor(deadline);
    // Nudged prices may belong to another optimum than the prices of the relaxation. So their bound
    // may be a little lower.
    EXPECT_GE(bound->lower_bound_j, relaxed_j * (1 - 1e-3));
    if (best->energy_j > relaxed_j * (1 + 1e-6)) ++tally.gaps;
    if (bound->lower_bound_j > relaxed_j * (1 + 1e-6)) ++tally.raised;
  }
}

TEST(DiscreteBound, IsNotAboveTheBestPlanOfSmallPipelines) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < Seeds(100); ++seed) {
    CompareWithAllPlans({.shape = JobShape::kPipeline, .instructions = 8, .options = 3}, seed,
                        tally);
  }
  ExpectOftenRaised(tally);
}

TEST(DiscreteBound, IsNotAboveTheBestPlanOfSmallGraphs) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < Seeds(200); ++seed) {
    CompareWithAllPlans({.instructions = 6}, seed, tally);
  }
  ExpectOftenRaised(tally);
}

TEST(DiscreteBound, IsNotAboveTheBestPlanAmongTies) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < Seeds(100); ++seed) {
    CompareWithAllPlans({.instructions = 6, .times = JobSpec::Times::kMilliseconds}, seed, tally);
    CompareWithAllPlans({.instructions = 6, .times = JobSpec::Times::kNanoseconds}, seed, tally);
  }
  ExpectOftenRaised(tally);
}

// A rank with one fixed instruction, and a rank with two instructions that have to fit in the same
// time:
//
//     rank 0   [------ c: 10 ms ------]
//     rank 1   [ a: 4 or 7 ][ b: 4 or 7 ]
//
// In the relaxation, a and b take 10 ms together, for 16 J. But 7 + 4 ms do not fit.
schedule::InstructionGraph TwoBesideOne() {
  schedule::InstructionGraph graph;
  graph.option_sets.resize(2);
  graph.option_sets[0].options = {{1000, {}, 10 * kMillisecond, 1, 1}};
  graph.option_sets[1].options = {{1000, {}, 4 * kMillisecond, 10, 1},
                                  {900, {}, 7 * kMillisecond, 4, 1}};
  graph.instructions = {{0, 0, -1}, {1, 1, -1}, {1, 1, -1}};
  graph.dependencies = {{1, 2, 0}};
  graph.pp_rank_orders = {{0}, {1, 2}};
  graph.pp_rank_names = {"rank 0", "rank 1"};
  return graph;
}

TEST(DiscreteBound, CountsTheRestThatNoPairOfOptionsCanUse) {
  const plan::Planner planner = MakePlanner(TwoBesideOne(), {});
  EXPECT_NEAR(*planner.BoundFor(10 * kMillisecond), 1 + 16, 1e-6);
  EXPECT_NEAR(BoundDiscretePlans(planner, 10 * kMillisecond)->lower_bound_j, 1 + 20, 1e-6);
  // With 11 ms, one of the two can take 7 ms.
  EXPECT_NEAR(BoundDiscretePlans(planner, 11 * kMillisecond)->lower_bound_j, 1 + 14, 1e-6);
}

TEST(DiscreteBound, WithASwitchLatencyItIsTheBoundOfTheRelaxation) {
  const plan::Planner planner = MakePlanner(TwoBesideOne(), {0, kMillisecond});
  EXPECT_EQ(BoundDiscretePlans(planner, 10 * kMillisecond)->lower_bound_j,
            *planner.BoundFor(10 * kMillisecond));
}

TEST(DiscreteBound, BelowTheLeastTimeItFails) {
  const plan::Planner planner = MakePlanner(TwoBesideOne(), {});
  const auto bound = BoundDiscretePlans(planner, 9 * kMillisecond);
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().kind, ErrorKind::kUnreachable);
}

TEST(DiscreteBound, RaisesThePlansThatItCanRaise) {
  const plan::Planner planner = MakePlanner(TwoBesideOne(), {});
  plan::Plan fast = *planner.PlanFor(10 * kMillisecond);
  RaiseBound(planner, fast);
  EXPECT_NEAR(fast.lower_bound_j, 21, 1e-6);
  EXPECT_LT(fast.gap(), 1e-6);
  // Here, the relaxed optimum runs each instruction at a measured option, so it is a plan.
  plan::Plan slow = *planner.PlanFor(14 * kMillisecond);
  const double relaxed_j = slow.lower_bound_j;
  RaiseBound(planner, slow);
  EXPECT_EQ(slow.lower_bound_j, relaxed_j);
}

TEST(DiscreteBound, ExpectsAGainOnlyWithLittleSlackAndWithoutLatency) {
  const plan::Planner planner = MakePlanner(TwoBesideOne(), {});
  EXPECT_TRUE(MayGain(planner, 10 * kMillisecond));
  EXPECT_TRUE(MayGain(planner, 13 * kMillisecond - 1));
  EXPECT_FALSE(MayGain(planner, 13 * kMillisecond));
  EXPECT_FALSE(MayGain(MakePlanner(TwoBesideOne(), {0, kMillisecond}), 10 * kMillisecond));
}

TEST(DiscreteBound, AfterAStopRequestPlansKeepTheirBounds) {
  const plan::Planner planner = MakePlanner(TwoBesideOne(), {});
  std::stop_source source;
  source.request_stop();
  const auto bound = BoundDiscretePlans(planner, 10 * kMillisecond, {.stop = source.get_token()});
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().kind, ErrorKind::kSystem);
  plan::Plan plan = *planner.PlanFor(10 * kMillisecond);
  const double before_j = plan.lower_bound_j;
  RaiseBound(planner, plan, {.stop = source.get_token()});
  EXPECT_EQ(plan.lower_bound_j, before_j);
}

// The terms of the identity in discrete_bound.h, in exact integers, for every plan of small jobs.
class Identity {
 public:
  Identity(const plan::Planner& planner, Nanoseconds deadline)
      : planner_(planner),
        deadline_(deadline),
        prices_(*NudgedPrices(planner, deadline, 1'000, {})),
        steps_(MakeSteps(planner, deadline, plan::FindWindows(planner, deadline), FindWays(planner),
                         prices_)) {
    for (const auto& chain : steps_.chains) {
      gain_ += FindLeastCost(chain, {.first_cap = 1, .work = 1'000'000'000}).at_least;
    }
  }

  void Check(const std::vector<int>& options) const {
    const schedule::InstructionGraph& graph = planner_.graph();
    const double blocking_power_w = planner_.model().blocking_power_w;
    const plan::Evaluation plan = plan::Evaluator(graph, planner_.model()).Evaluate(options);
    if (plan.time > deadline_) return;
    Femtojoules energy = planner_.blocking_price() * plan.time;
    Femtojoules above = (prices_.value - planner_.blocking_price()) * (deadline_ - plan.time);
    std::vector<bool> waits(options.size(), false);
    std::vector<bool> awaited(options.size(), false);
    for (std::size_t d = 0; d < graph.dependencies.size(); ++d) {
      const auto& [from, to, delay] = graph.dependencies[d];
      waits[At(to)] = awaited[At(from)] = true;
      above += prices_.dependencies[d] *
               (plan.starts[At(to)] - plan.starts[At(from)] - plan.durations[At(from)] - delay);
    }
    for (std::size_t i = 0; i < options.size(); ++i) {
      const schedule::OptionSet& set = graph.options_of(static_cast<int>(i));
      const Microwatts price = prices_.instructions[i];
      const auto cost = [&](const profile::Option& option) {
        return profile::FlooredEffectiveEnergy(option, blocking_power_w) + price * option.time;
      };
      Femtojoules least = cost(set.options.front());
      for (const profile::Option& option : set.options) least = std::min(least, cost(option));
      const profile::Option& chosen = set.options[At(options[i])];
      energy += profile::FlooredEffectiveEnergy(chosen, blocking_power_w);
      above += cost(chosen) - least;
      if (!waits[i]) above += price * plan.starts[i];
      if (!awaited[i]) above += price * (plan.time - plan.starts[i] - plan.durations[i]);
    }
    EXPECT_TRUE(energy == steps_.base + above);
    EXPECT_TRUE(energy >= steps_.base + gain_);
  }

 private:
  const plan::Planner& planner_;
  Nanoseconds deadline_;
  DualPrices prices_;
  PricedSteps steps_;
  Femtojoules gain_ = 0;
};

TEST(DiscreteBound, TheIdentityHoldsForEveryPlan) {
  for (std::uint64_t seed = 0; seed < Seeds(60); ++seed) {
    SCOPED_TRACE(seed);
    const auto shape = seed % 2 == 0 ? JobShape::kPipeline : JobShape::kAnyOrder;
    const plan::Planner planner =
        MakePlanner(RandomJob({.shape = shape, .instructions = 5, .options = 3}, seed),
                    {RandomBlockingPower(seed), 0});
    for (const int percent : {0, 2, 30}) {
      const Identity identity(planner, DeadlineAt(planner, percent));
      std::vector<int> options(planner.graph().instructions.size(), 0);
      std::size_t i = 0;
      while (i < options.size()) {
        identity.Check(options);
        for (i = 0; i < options.size(); ++i) {
          const auto& set = planner.graph().options_of(static_cast<int>(i));
          if (At(++options[i]) < set.options.size()) break;
          options[i] = 0;
        }
      }
    }
  }
}

// Options of any size: one option, no time, equal times, years, gigawatts.
schedule::InstructionGraph OddJob(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(end));
  };
  schedule::InstructionGraph graph =
      RandomJob({.shape = below(2) == 0 ? JobShape::kPipeline : JobShape::kAnyOrder,
                 .instructions = 6,
                 .options = 3},
                seed);
  const double time_scale = std::pow(10, below(8) - 2);
  const double energy_scale = std::pow(10, below(12) - 3);
  for (schedule::OptionSet& set : graph.option_sets) {
    if (below(3) == 0) set.options.resize(1);
    const double own_scale = std::pow(10, below(4) - 2);
    for (profile::Option& option : set.options) {
      const double seconds = std::min(ToSeconds(option.time) * time_scale * own_scale, 1e6);
      option.time = below(8) == 0 ? 0 : ToNanoseconds(seconds);
      option.energy_j = below(10) == 0 ? 0 : option.energy_j * energy_scale;
    }
  }
  for (schedule::Dependency& dependency : graph.dependencies) {
    if (below(5) == 0) dependency.delay = ToNanoseconds(below(100) * time_scale * 1e-3);
  }
  return graph;
}

TEST(DiscreteBound, OddJobsHaveABoundOrAnError) {
  int bounded = 0;
  for (std::uint64_t seed = 0; seed < Seeds(600); ++seed) {
    SCOPED_TRACE(seed);
    const auto planner = plan::Planner::Create(OddJob(seed), {RandomBlockingPower(seed), 0},
                                               plan::Planner::FewOptions::kAccept);
    if (!planner) continue;
    for (const int percent : {0, 10, 100}) {
      const Nanoseconds deadline = DeadlineAt(*planner, percent);
      const auto bound = BoundDiscretePlans(*planner, deadline);
      if (!bound) {
        // The solver of one deadline has a limit of its own.
        EXPECT_EQ(bound.error().kind, ErrorKind::kInput) << bound.error().Message();
        continue;
      }
      const auto best = SearchAll(planner->graph(), planner->model(), deadline);
      ASSERT_TRUE(best);
      // Effective energies may be far larger than their sum.
      const double scale_j = std::abs(best->energy_j) + std::abs(bound->lower_bound_j) +
                             planner->baseline().blocking_energy_j;
      EXPECT_LE(bound->lower_bound_j, best->energy_j + 1e-9 * scale_j);
      ++bounded;
    }
  }
  EXPECT_GT(bounded, 0);
}

class DiscreteBoundTest : public ::testing::TestWithParam<std::string> {};

TEST_P(DiscreteBoundTest, IsNotAboveAnyPlan) {
  for (const double noise : {0.0, 0.001}) {
    const auto planner = MakePlanner(MakeSyntheticJob({.schedule = GetParam(), .noise = noise}));
    for (const int percent : {0, 2}) {
      SCOPED_TRACE(percent);
      plan::Plan plan = *planner.PlanFor(planner.least_time() * (100 + percent) / 100,
                                         {.effort = plan::kFirstLook});
      const double relaxed_j = plan.lower_bound_j;
      const auto bound = BoundDiscretePlans(planner, plan.deadline);
      ASSERT_TRUE(bound) << bound.error().Message();
      EXPECT_GE(bound->lower_bound_j, relaxed_j * (1 - 1e-3));
      EXPECT_LE(bound->lower_bound_j, plan.evaluation.energy_j * (1 + kRounding));
      EXPECT_EQ(BoundDiscretePlans(planner, plan.deadline)->lower_bound_j, bound->lower_bound_j);
      RaiseBound(planner, plan);
      EXPECT_GE(plan.lower_bound_j, relaxed_j);
      EXPECT_LE(plan.lower_bound_j, std::max(relaxed_j, bound->lower_bound_j));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, DiscreteBoundTest,
                         ::testing::Values("1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-v",
                                           "dualpipe-v"),
                         [](const auto& given) {
                           std::string name = given.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// At the least time, the gap of GPT-3 with 24 microbatches falls by about 0.04 points.
TEST(DiscreteBound, RaisesTheBoundOfTheMeasuredJob) {
  const MeasuredJob& job = kMeasuredJobs[0];
  const plan::Planner planner = MakePlanner(*ReadIteration(job, 24), {job.blocking_power_w, 0});
  const double relaxed_j = *planner.BoundFor(planner.baseline().time);
  const auto bound = BoundDiscretePlans(planner, planner.baseline().time);
  ASSERT_TRUE(bound) << bound.error().Message();
  EXPECT_GT(bound->lower_bound_j, relaxed_j * 1.0004);
}

}  // namespace
}  // namespace perseus::discrete_bound
