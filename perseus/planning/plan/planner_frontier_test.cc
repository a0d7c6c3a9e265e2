// Tests of bounds of the frontier: they enclose the exact frontier, and plans for targets stay
// correct.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cmath>

#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/target.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::plan {
namespace {

// The tolerance for sums in doubles.
constexpr double kSums = 1e-12;

Frontier FrontierWith(const Planner& planner, FrontierPrecision precision) {
  Result<Frontier> frontier = planner.ComputeFrontier({}, {}, precision);
  EXPECT_TRUE(frontier) << frontier.error().Message();
  return *std::move(frontier);
}

// The lower bound and the error at `time`, between two points of a frontier.
FrontierPoint PointAt(const Frontier& frontier, Nanoseconds time) {
  const auto after = std::ranges::lower_bound(frontier.points, time, {}, &FrontierPoint::time);
  if (after->time == time) return *after;
  const FrontierPoint& fast = *(after - 1);
  const double part =
      static_cast<double>(time - fast.time) / static_cast<double>(after->time - fast.time);
  return {.time = time,
          .bound_j = fast.bound_j + part * (after->bound_j - fast.bound_j),
          .error_j = fast.error_j + part * (after->error_j - fast.error_j)};
}

void ExpectEncloses(const Frontier& bounds, const Frontier& exact) {
  EXPECT_EQ(bounds.least_time(), exact.least_time());
  EXPECT_EQ(bounds.points.back().time, exact.points.back().time);
  EXPECT_LE(bounds.error, kFrontierError);
  const double least_j = exact.points[exact.least_energy].bound_j;
  const FrontierPoint& least = bounds.points[bounds.least_energy];
  EXPECT_NEAR(least.bound_j, least_j, kSums * least_j);
  EXPECT_NEAR(PointAt(exact, least.time).bound_j, least_j, kSums * least_j);
  const auto expect_at = [&](Nanoseconds time) {
    const double exact_j = PointAt(exact, time).bound_j;
    const FrontierPoint between = PointAt(bounds, time);
    ASSERT_LE(between.bound_j, exact_j * (1 + kSums)) << time;
    ASSERT_GE(between.bound_j + between.error_j, exact_j * (1 - kSums)) << time;
    ASSERT_LE(between.error_j, kFrontierError * least_j) << time;
  };
  for (std::size_t i = 0; i < exact.points.size(); ++i) {
    expect_at(exact.points[i].time);
    if (i > 0) expect_at((exact.points[i - 1].time + exact.points[i].time) / 2);
  }
  for (const FrontierPoint& point : bounds.points) expect_at(point.time);
}

TEST(FrontierBoundsProperty, EncloseTheFrontierOfRandomJobs) {
  for (std::uint64_t seed = 0; seed < Seeds(100); ++seed) {
    SCOPED_TRACE(seed);
    const auto shape = seed % 2 == 0 ? JobShape::kPipeline : JobShape::kAnyOrder;
    const Planner planner = MakePlanner(RandomJob({.shape = shape, .instructions = 24}, seed),
                                        {RandomBlockingPower(seed), 0});
    ExpectEncloses(FrontierWith(planner, FrontierPrecision::kBounds),
                   FrontierWith(planner, FrontierPrecision::kExact));
  }
}

TEST(FrontierBounds, EncloseTheFrontierOfAPipeline) {
  const Planner planner = MakePlanner(MakeSyntheticJob({.stages = 8, .microbatches = 32}));
  const Frontier exact = FrontierWith(planner, FrontierPrecision::kExact);
  const Frontier bounds = FrontierWith(planner, FrontierPrecision::kBounds);
  ExpectEncloses(bounds, exact);
  EXPECT_TRUE(exact.exact());
  EXPECT_FALSE(bounds.exact());
  EXPECT_LT(bounds.points.size(), exact.points.size() / 4);
  // A quick walk gives the exact frontier.
  EXPECT_TRUE(FrontierWith(planner, FrontierPrecision::kStatedError).exact());
}

void ExpectSame(const Frontier& first, const Frontier& second) {
  ASSERT_EQ(first.points.size(), second.points.size());
  for (std::size_t i = 0; i < first.points.size(); ++i) {
    EXPECT_EQ(first.points[i].time, second.points[i].time);
    EXPECT_EQ(first.points[i].bound_j, second.points[i].bound_j);
    EXPECT_EQ(first.points[i].error_j, second.points[i].error_j);
  }
}

// Each interface must find the same plan for a budget, whatever it planned before. The planner
// stores the 32 latest optima, so after some deadlines it has optima that the frontier also needs.
TEST(FrontierBounds, DoNotDependOnEarlierPlans) {
  const auto make = [] { return MakePlanner(MakeSyntheticJob({.stages = 4, .microbatches = 16})); };
  const Frontier first = FrontierWith(make(), FrontierPrecision::kBounds);
  for (const int deadlines : {1, 31, 32, 33}) {
    SCOPED_TRACE(deadlines);
    const Planner planner = make();
    for (int i = 0; i < deadlines; ++i) {
      ASSERT_TRUE(planner.BoundFor(planner.least_time() + planner.least_time() / 200 * i));
    }
    ExpectSame(first, FrontierWith(planner, FrontierPrecision::kBounds));
  }
}

// Keeps this thread, and the threads that it starts, on one core until the end of the scope.
class OneCore {
 public:
  OneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (std::size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
      if (CPU_ISSET(core, &before_)) CPU_SET(core, &one);
    }
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_;
};

TEST(FrontierBounds, AreTheSameOnOneCore) {
  const Planner planner = MakePlanner(MakeSyntheticJob({.stages = 4, .microbatches = 16}));
  const Frontier first = FrontierWith(planner, FrontierPrecision::kBounds);
  const OneCore one;
  const Frontier second = FrontierWith(planner, FrontierPrecision::kBounds);
  ExpectSame(first, second);
}

TEST(FrontierBounds, StopOnRequest) {
  const Planner planner = MakePlanner(MakeSyntheticJob({.stages = 4, .microbatches = 16}));
  std::stop_source stop;
  const auto stopped = planner.ComputeFrontier([&](double) { stop.request_stop(); },
                                               stop.get_token(), FrontierPrecision::kBounds);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().kind, ErrorKind::kSystem);
}

class TargetsOnBounds : public ::testing::Test {
 protected:
  Plan Reach(const Frontier& frontier, const Target& target) const {
    Result<Plan> plan = PlanForTarget(planner_, &frontier, target, {.effort = kFirstLook});
    EXPECT_TRUE(plan) << plan.error().Message();
    return plan ? *std::move(plan) : Plan{};
  }

  const Planner planner_ = MakePlanner(MakeSyntheticJob({.stages = 4, .microbatches = 16}));
  const Frontier exact_ = FrontierWith(planner_, FrontierPrecision::kExact);
  const Frontier bounds_ = FrontierWith(planner_, FrontierPrecision::kBounds);
};

// For these targets, the planner solves deadlines, so the point is exact.
TEST_F(TargetsOnBounds, TheCheapestPointIsThatOfTheExactFrontier) {
  std::vector<Target> targets = {{.kind = Target::Kind::kEdp}};
  for (const double gpu_hour : {0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0}) {
    targets.push_back(
        {.kind = Target::Kind::kPrice, .value = 0.12, .gpu_hour = gpu_hour, .gpus = 4});
  }
  targets.push_back({.kind = Target::Kind::kPrice, .value = 0, .gpu_hour = 1, .gpus = 4});
  for (const Target& target : targets) {
    SCOPED_TRACE(Describe(target));
    EXPECT_EQ(Reach(bounds_, target).deadline, Reach(exact_, target).deadline);
  }
}

TEST_F(TargetsOnBounds, BudgetsAndCapsAreMetAsFast) {
  const FrontierPoint& least = exact_.points[exact_.least_energy];
  for (const double share : {0.02, 0.1, 0.3, 0.6, 0.9}) {
    const auto time =
        exact_.least_time() +
        static_cast<Nanoseconds>(share * static_cast<double>(least.time - exact_.least_time()));
    const double energy_j = exact_.BoundAt(time) * 1.01;
    for (const Target& target :
         {Target{.kind = Target::Kind::kEnergyBudget, .value = energy_j},
          Target{.kind = Target::Kind::kPowerCap, .value = energy_j / ToSeconds(time)}}) {
      SCOPED_TRACE(Describe(target));
      const Plan plan = Reach(bounds_, target);
      const Plan other = Reach(exact_, target);
      const double reached = target.kind == Target::Kind::kEnergyBudget
                                 ? plan.evaluation.energy_j
                                 : plan.evaluation.average_power_w();
      EXPECT_LE(reached, target.value);
      // The plans differ by the tolerance of the search and by the granularity of their options.
      EXPECT_NEAR(ToSeconds(plan.evaluation.time) / ToSeconds(other.evaluation.time), 1, 2e-3);
    }
  }
}

TEST_F(TargetsOnBounds, ABudgetBelowTheLeastEnergyIsUnreachable) {
  const double least_j = exact_.points[exact_.least_energy].bound_j;
  const auto plan = PlanForTarget(planner_, &bounds_,
                                  {.kind = Target::Kind::kEnergyBudget, .value = least_j * 0.999});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().kind, ErrorKind::kUnreachable);
}

}  // namespace
}  // namespace perseus::plan
