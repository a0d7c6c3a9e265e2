// Tests of plans with a power cap below the power of least energy, against all combinations of
// options of small jobs.
#include "perseus/planning/plan/slow_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "perseus/planning/plan/target.h"
#include "tests/support/planning_jobs.h"

namespace perseus::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = Target::Kind;

// A random job with more energy for each second of an instruction. The options of a random job save
// 101 to 400 W. So with 250 W more, some slower options need more energy than faster ones.
schedule::InstructionGraph JobWithMorePower(JobShape shape, std::uint64_t seed, double more_w) {
  schedule::InstructionGraph graph = RandomJob({.shape = shape, .instructions = 6}, seed);
  for (schedule::OptionSet& set : graph.option_sets) {
    for (profile::Option& option : set.options) option.energy_j += more_w * ToSeconds(option.time);
  }
  return graph;
}

// A job of a few instructions, and the time and energy of all its combinations of options.
class SmallJob {
 public:
  SmallJob(JobShape shape, std::uint64_t seed, double more_w)
      : planner_(*Planner::Create(JobWithMorePower(shape, seed, more_w),
                                  {.blocking_power_w = RandomBlockingPower(seed)},
                                  Planner::FewOptions::kAccept)) {
    const schedule::InstructionGraph& graph = planner_.graph();
    const Evaluator evaluator(graph, planner_.model());
    std::vector<int> options(graph.instructions.size(), 0);
    for (std::size_t i = 0; i < options.size();) {
      all_.push_back(evaluator.Evaluate(options));
      for (i = 0; i < options.size(); ++i) {
        const auto count = static_cast<int>(graph.options_of(static_cast<int>(i)).options.size());
        if (++options[i] < count) break;
        options[i] = 0;
      }
    }
  }

  const Planner& planner() const { return planner_; }
  const std::vector<Evaluation>& all() const { return all_; }
  double least_power_w() const {
    return std::ranges::min(all_, {}, &Evaluation::average_power_w).average_power_w();
  }
  double most_power_w() const {
    return std::ranges::max(all_, {}, &Evaluation::average_power_w).average_power_w();
  }
  // The least time of a plan within the cap.
  Nanoseconds FastestWithin(double cap_w) const {
    Nanoseconds fastest = std::ranges::max(all_, {}, &Evaluation::time).time;
    for (const Evaluation& one : all_) {
      if (one.average_power_w() <= cap_w) fastest = std::min(fastest, one.time);
    }
    return fastest;
  }

 private:
  Planner planner_;
  std::vector<Evaluation> all_;
};

std::vector<SmallJob> SmallJobs() {
  std::vector<SmallJob> jobs;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    for (const JobShape shape : {JobShape::kPipeline, JobShape::kAnyOrder}) {
      for (const double more_w : {0.0, 150.0, 250.0, 350.0}) {
        jobs.emplace_back(shape, seed, more_w);
      }
    }
  }
  return jobs;
}

TEST(SlowPlans, LeastPowerIsTheLeastOfAllCombinations) {
  int slower = 0;  // Jobs for which the slow end of the frontier is not the least.
  for (const SmallJob& job : SmallJobs()) {
    const SlowPlans slow(job.planner());
    const Evaluation& least = slow.least_power().evaluation;
    EXPECT_NEAR(least.average_power_w(), job.least_power_w(), 1e-6 * job.least_power_w());
    if (least.time > job.planner().SlowestTime()) ++slower;
  }
  EXPECT_GT(slower, 20);
}

TEST(PowerCap, IsRefusedWithTheLeastPowerAndThePause) {
  const SmallJob job(JobShape::kPipeline, 1, 250);
  const Frontier frontier = *job.planner().ComputeFrontier();
  const double waiting_w = ToWatts(job.planner().blocking_price());
  ASSERT_GT(waiting_w, 0);
  const auto message = [&](double cap_w) {
    const auto plan =
        PlanForTarget(job.planner(), &frontier, {.kind = Kind::kPowerCap, .value = cap_w});
    EXPECT_FALSE(plan);
    return plan ? "" : plan.error().Message();
  };
  EXPECT_THAT(message(0.25 * job.least_power_w() + 0.75 * waiting_w),
              AllOf(HasSubstr("the least is " + RoundedUp(job.least_power_w()) + " W"),
                    HasSubstr("pause the job for 75 % of the time")));
  EXPECT_THAT(message(waiting_w), HasSubstr("even GPUs that only wait draw"));
}

TEST(PowerCap, IsMetIfAnyCombinationMeetsIt) {
  double excess = 0;  // The sum of the fractions by which plans take longer than the fastest ones.
  int plans = 0;
  int exact = 0;
  for (const SmallJob& job : SmallJobs()) {
    const Frontier frontier = *job.planner().ComputeFrontier();
    const double least_w = job.least_power_w();
    for (const double part : {0.0, 0.05, 0.1, 0.2, 0.4, 0.8}) {
      const double cap_w = least_w * (1 + 1e-6) + part * (job.most_power_w() - least_w);
      const auto plan =
          PlanForTarget(job.planner(), &frontier, {.kind = Kind::kPowerCap, .value = cap_w});
      ASSERT_TRUE(plan) << plan.error().Message();
      EXPECT_LE(plan->evaluation.average_power_w(), cap_w);
      EXPECT_LE(plan->evaluation.time, plan->deadline);
      EXPECT_GE(plan->evaluation.energy_j, plan->lower_bound_j * (1 - 1e-9));
      for (const Evaluation& other : job.all()) {
        if (other.time != plan->evaluation.time) continue;
        EXPECT_GE(other.energy_j, plan->lower_bound_j * (1 - 1e-9));
      }
      ++plans;
      const double longer = static_cast<double>(plan->evaluation.time) /
                                static_cast<double>(job.FastestWithin(cap_w)) -
                            1;
      excess += longer;
      if (longer == 0) ++exact;
    }
  }
  // The search is not exact, and the steps of such small jobs are large.
  EXPECT_GT(exact, plans / 2);
  EXPECT_LT(excess, 0.05 * plans);
}

}  // namespace
}  // namespace perseus::plan
