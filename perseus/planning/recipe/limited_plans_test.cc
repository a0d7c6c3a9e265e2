// Plans for limits on clock changes: how the results of runs with different limits must agree.
#include "perseus/planning/recipe/limited_plans.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "perseus/base/file.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/hardware_facts/assumed.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/schedule.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::recipe {
namespace {

using Kind = plan::Target::Kind;

// Targets with a time, a stop with a plan between two of these, and two targets without a time.
std::vector<PlannedTarget> PlanSomeTargets(const plan::Planner& planner) {
  const plan::Target targets[] = {
      {}, {Kind::kSlowdown, 4}, {Kind::kSlowdown, 9}, {Kind::kEdp, 0}, {Kind::kSlowdown, 6}};
  const plan::Frontier frontier = *planner.ComputeFrontier();
  std::vector<PlannedTarget> planned;
  for (const plan::Target& target : targets) {
    PlannedTarget& one = planned.emplace_back();
    one.target = target;
    one.slug = plan::Slug(target);
    one.plan = *plan::PlanForTarget(planner, &frontier, target, {.effort = plan::kFirstLook});
    if (target.kind == Kind::kSlowdown && target.value == 6) one.group = Group::kStop;
  }
  return planned;
}

// Runs the limits one by one, as separate commands do. Each plan must keep its limit, and must not
// be worse than the plan of the next smaller limit.
void ExpectThatMoreChangesNeverCostEnergy(const plan::Planner& planner, double effort,
                                          const std::vector<int>& limits,
                                          const std::optional<SwitchTradeoff>& tradeoff = {}) {
  const std::vector<PlannedTarget> planned = PlanSomeTargets(planner);
  std::map<std::string, double> last;
  for (const int limit : limits) {
    SCOPED_TRACE(limit);
    const auto limited = ClimbToLimit(planner, {planned}, limit, {.effort = effort}, tradeoff);
    // No plan: the instructions share no clock, or a target needs more changes.
    if (!limited && last.empty()) continue;
    ASSERT_TRUE(limited) << limited.error().Message();
    std::map<std::string, double> costs;
    for (const PlannedTarget& one : *limited) {
      SCOPED_TRACE(one.slug);
      const plan::Evaluation& evaluation = one.plan.evaluation;
      EXPECT_EQ(one.most_switches, limit);
      EXPECT_LE(few_switches::MostSwitches(evaluation), limit);
      EXPECT_LE(one.plan.lower_bound_j, evaluation.energy_j * (1 + 1e-9));
      if (one.target.kind == Kind::kSlowdown) {
        EXPECT_LE(evaluation.time, one.plan.deadline);
      }
      costs[one.slug] = plan::CostOf(one.target, evaluation);
    }
    for (const auto& [slug, cost] : last) {
      ASSERT_TRUE(costs.contains(slug)) << slug;
      EXPECT_LE(costs[slug], cost) << slug;
    }
    last = std::move(costs);
  }
  EXPECT_GE(last.size(), 4U);
}

struct Measured {
  const char* file;
  double blocking_power_w;
};
constexpr Measured kMeasured[] = {{"gpt3-175b_a100-sxm_pp8_tp8.csv", 83.64},
                                  {"bloom-176b_a40_pp8_tp8.csv", 70.38}};

constexpr int kUpTo10[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

TEST(LimitedPlans, MoreChangesNeverCostEnergyInRandomPipelines) {
  for (std::uint64_t seed = 0; seed < Seeds(4); ++seed) {
    SCOPED_TRACE(seed);
    const plan::Planner planner = *plan::Planner::Create(
        RandomJob({.shape = JobShape::kPipeline, .instructions = 40, .options = 6}, seed),
        {.blocking_power_w = RandomBlockingPower(seed)}, plan::Planner::FewOptions::kAccept);
    ExpectThatMoreChangesNeverCostEnergy(planner, 0.02, {std::begin(kUpTo10), std::end(kUpTo10)});
  }
}

// Above 16, only some limits are searched. A pp_rank has at most 24 changes.
TEST(LimitedPlans, MoreChangesNeverCostEnergyInLargeLimits) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({.stages = 3, .microbatches = 12}));
  ExpectThatMoreChangesNeverCostEnergy(planner, 0.01, {16, 19, 20, 23, 24, 1000});
}

TEST(LimitedPlans, MoreChangesNeverCostEnergyBesideATradeoff) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({.stages = 3, .microbatches = 6}));
  const plan::Plan unlimited = *planner.PlanFor(planner.baseline().time);
  const auto tradeoff = ComputeSwitchTradeoff(planner, unlimited, {.effort = 0.02},
                                              hardware_facts::kAssumedChangesPerS);
  ASSERT_TRUE(tradeoff) << tradeoff.error().Message();
  ExpectThatMoreChangesNeverCostEnergy(planner, 0.02, {std::begin(kUpTo10), std::end(kUpTo10)},
                                       *tradeoff);
}

TEST(LimitedPlans, MoreChangesNeverCostEnergyOfMeasuredJobs) {
  for (const Measured& measured : kMeasured) {
    SCOPED_TRACE(measured.file);
    const std::string path =
        fmt::format("{}/tests/data/published/{}", PERSEUS_SOURCE_DIR, measured.file);
    const profile::Profile profile = *profile::ParseProfile(*ReadFile(path), path);
    schedule::PipelineModel model;
    model.blocking_power_w = measured.blocking_power_w;
    const plan::Planner planner =
        MakePlanner(*schedule::BuildInstructionGraph(
                        *schedule::GenerateSchedule(
                            {.name = "1f1b", .pp_ranks = profile.pp_ranks(), .microbatches = 6}),
                        profile, model),
                    {measured.blocking_power_w, 0});
    ExpectThatMoreChangesNeverCostEnergy(planner, 0.01, {std::begin(kUpTo10), std::end(kUpTo10)});
  }
}

// A job of short instructions, as on an H100: its iteration takes about 50 ms.
plan::Planner PlannerOfShortInstructions() {
  schedule::InstructionGraph graph = MakeSyntheticJob({.stages = 3, .microbatches = 12});
  for (schedule::OptionSet& set : graph.option_sets) {
    for (profile::Option& option : set.options) {
      option.time /= 20;
      option.energy_j /= 20;
    }
  }
  return MakePlanner(std::move(graph));
}

TEST(PickLimit, NoGpuChangesClocksMoreOftenThanItFollows) {
  const plan::Planner planner = PlannerOfShortInstructions();
  const plan::Plan unlimited = *planner.PlanFor(planner.baseline().time);
  const double of_unlimited =
      few_switches::MostSwitches(unlimited.evaluation) / ToSeconds(unlimited.evaluation.time);
  double last_kept = 0;
  for (const double changes_per_s : {hardware_facts::kAssumedChangesPerS, 60.0, 150.0, 1'000.0}) {
    SCOPED_TRACE(changes_per_s);
    ASSERT_TRUE(of_unlimited > 200);
    const auto tradeoff =
        ComputeSwitchTradeoff(planner, unlimited, {.effort = 0.05}, changes_per_s);
    ASSERT_TRUE(tradeoff) << tradeoff.error().Message();
    const PickedLimit picked = PickLimit(planner, *tradeoff, changes_per_s);
    ASSERT_TRUE(picked.most_switches);
    EXPECT_LE(*picked.most_switches,
              few_switches::MostChanges(changes_per_s, planner.baseline().time));
    EXPECT_GE(picked.kept, last_kept);
    last_kept = picked.kept;
  }
  EXPECT_GE(last_kept, KeptShare(planner));
}

// The targets start with no change at all, which keeps little.
TEST(RaiseLimits, EachTargetGetsTheChangesThatItNeedsAndThatGpusFollow) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({.stages = 3, .microbatches = 12}));
  const std::vector<PlannedTarget> unlimited = PlanSomeTargets(planner);
  const few_switches::SwitchLimits limits{.effort = 0.05};
  const auto without_changes =
      LimitSwitches(planner, unlimited, 0, limits, {}, WithoutPlan::kKeepUnlimited);
  ASSERT_TRUE(without_changes) << without_changes.error().Message();
  for (const double changes_per_s : {0.0, 3.0, 1'000.0}) {
    SCOPED_TRACE(changes_per_s);
    std::vector<PlannedTarget> raised = *without_changes;
    ASSERT_TRUE(RaiseLimits(planner, unlimited, changes_per_s, limits, raised));
    const PlannedTarget* tighter = nullptr;
    for (std::size_t i = 0; i < raised.size(); ++i) {
      const PlannedTarget& one = raised[i];
      SCOPED_TRACE(one.slug);
      if (one.is_stop() || one.target.kind != Kind::kSlowdown) continue;
      const plan::Plan& free = unlimited[i].plan;
      const int most = few_switches::MostSwitches(one.plan.evaluation);
      ASSERT_TRUE(one.most_switches);
      EXPECT_LE(most, *one.most_switches);
      EXPECT_LE(most, few_switches::MostChanges(changes_per_s, free.evaluation.time));
      EXPECT_LE(one.plan.lower_bound_j, one.plan.evaluation.energy_j * (1 + 1e-9));
      EXPECT_LE(one.plan.evaluation.time, one.plan.deadline);
      if (changes_per_s == 1'000) {
        EXPECT_GE(SavingJ(planner, one.plan), KeptShare(planner) * SavingJ(planner, free));
      }
      if (tighter != nullptr) {
        EXPECT_LE(one.plan.evaluation.energy_j, tighter->plan.evaluation.energy_j);
      }
      tighter = &one;
    }
  }
}

}  // namespace
}  // namespace perseus::recipe
