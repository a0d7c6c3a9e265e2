// Properties of every frontier, checked on thousands of random networks and on real jobs. Each
// point is proved optimal, and the points form a convex curve. The two solvers share no code, and
// their results agree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "bench/measured_job.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/frontier/walk.h"
#include "tests/oracle/random_network.h"
#include "tests/support/seeds.h"

namespace perseus {
namespace {

constexpr std::uint64_t kNetworks = 6000;

struct Point {
  Nanoseconds time;
  Femtojoules extra_energy;
  Microwatts
      // The slope of the segment between this point and the next slower point. 0 at the slow end.
      price;
};

// Returns the frontier from slow to fast. Checks the proof of optimality at every point.
std::vector<Point> WalkedFrontier(const frontier::Network& network) {
  frontier::Walk walk(network);
  std::vector<Point> points;
  for (Microwatts price = 0;;) {
    points.push_back({walk.time(), walk.extra_energy(), price});
    const frontier::Solution solution = walk.solution();
    const Result<void> checked = frontier::CheckOptimality(network, solution);
    EXPECT_TRUE(checked) << "at " << walk.time() << " ns: " << checked.error().Message();
    EXPECT_EQ(solution.time(network), walk.time());
    EXPECT_TRUE(solution.extra_energy == walk.extra_energy());
    if (walk.finished()) return points;
    // So the flow also proves the segment to the next point: no breakpoint is missing in this
    // segment.
    EXPECT_EQ(solution.price, walk.price());
    price = walk.price();
    walk.Advance(0);
  }
}

Femtojoules EnergyAt(const std::vector<Point>& frontier, Nanoseconds time) {
  for (std::size_t i = 0; i + 1 < frontier.size(); ++i) {
    const Point& faster = frontier[i + 1];
    if (time >= faster.time) {
      return faster.extra_energy - faster.price * (std::min(time, frontier[i].time) - faster.time);
    }
  }
  return frontier.back().extra_energy;
}

// Gives the same numbers with every standard library, unlike std::uniform_int_distribution.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::int64_t Between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::mt19937_64 random_;
};

// Checks the frontier, and returns the number of points.
std::size_t ExpectConvexAndProved(const frontier::Network& network) {
  const auto sink = static_cast<std::size_t>(network.sink);
  const std::vector<Point> frontier = WalkedFrontier(network);
  EXPECT_EQ(frontier.front().time,
            frontier::EarliestTimes(network, frontier::Pace::kSlowest)[sink]);
  EXPECT_EQ(frontier.back().time, frontier::EarliestTimes(network, frontier::Pace::kFastest)[sink]);
  EXPECT_TRUE(frontier.front().extra_energy == 0);
  for (std::size_t i = 1; i < frontier.size(); ++i) {
    const Point& slower = frontier[i - 1];
    const Point& faster = frontier[i];
    EXPECT_LT(faster.time, slower.time);
    // The curve is convex, and its slope changes at each point.
    EXPECT_GT(faster.price, slower.price);
    EXPECT_TRUE(faster.extra_energy - slower.extra_energy ==
                faster.price * (slower.time - faster.time));
  }
  return frontier.size();
}

TEST(Frontier, IsConvexAndEveryPointIsProvedOptimal) {
  for (std::uint64_t seed = 0; seed < Seeds(kNetworks); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ExpectConvexAndProved(RandomNetwork(seed));
    if (HasFailure()) break;
  }
}

TEST(Frontier, OfTheExampleIsConvexAndEveryPointIsProvedOptimal) {
  constexpr double kBlockingPowerW = 83.64;
  const auto graph =
      ReadIterationOf(PERSEUS_SOURCE_DIR "/examples/gpt3-like_a100_pp8.csv", kBlockingPowerW, 24);
  ASSERT_TRUE(graph) << graph.error().Message();
  EXPECT_GT(ExpectConvexAndProved(NetworkOf(*graph, kBlockingPowerW)), 100U);
}

TEST(Frontier, OfMeasuredJobsIsConvexAndEveryPointIsProvedOptimal) {
  for (const MeasuredJob& job : kMeasuredJobs) {
    SCOPED_TRACE(job.name);
    const auto graph = ReadIteration(job, 24);
    ASSERT_TRUE(graph) << graph.error().Message();
    EXPECT_GT(ExpectConvexAndProved(NetworkOf(*graph, job.blocking_power_w)), 100U);
  }
}

TEST(Frontier, DoesNotDependOnWhereTheWalkStops) {
  for (std::uint64_t seed = 0; seed < Seeds(kNetworks); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const frontier::Network network = RandomNetwork(seed);
    const std::vector<Point> frontier = WalkedFrontier(network);
    Draw draw(seed);
    frontier::Walk walk(network);
    while (!walk.finished()) {
      const Nanoseconds before = walk.time();
      const Nanoseconds stop = draw.Between(frontier.back().time - 1, before);
      walk.Advance(stop);
      const auto next = std::find_if(frontier.begin(), frontier.end(),
                                     [&](const Point& point) { return point.time < before; });
      ASSERT_EQ(walk.time(), next == frontier.end() ? before : std::max(stop, next->time));
      ASSERT_TRUE(walk.extra_energy() == EnergyAt(frontier, walk.time()));
      const Result<void> checked = frontier::CheckOptimality(network, walk.solution());
      ASSERT_TRUE(checked) << checked.error().Message();
    }
    ASSERT_EQ(walk.time(), frontier.back().time);
  }
}

// The random networks never stall long enough to switch to Bland's rule. So this test starts with
// this rule.
TEST(Frontier, IsTheSameUnderBlandsRule) {
  for (std::uint64_t seed = 0; seed < Seeds(kNetworks); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const frontier::Network network = RandomNetwork(seed);
    frontier::Walk walk(network);
    frontier::Walk blands_walk(network, 0);
    while (!walk.finished()) {
      walk.Advance(0);
      blands_walk.Advance(0);
      ASSERT_EQ(blands_walk.time(), walk.time());
      ASSERT_TRUE(blands_walk.extra_energy() == walk.extra_energy());
      ASSERT_TRUE(frontier::CheckOptimality(network, blands_walk.solution()));
    }
    ASSERT_TRUE(blands_walk.finished());
  }
}

TEST(SolveDeadline, AgreesWithTheWalk) {
  for (std::uint64_t seed = 0; seed < Seeds(kNetworks); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const frontier::Network network = RandomNetwork(seed);
    const std::vector<Point> frontier = WalkedFrontier(network);
    const Nanoseconds least = frontier.back().time;
    const Nanoseconds longest = frontier.front().time;
    Draw draw(seed);
    const auto breakpoint = draw.Between(0, static_cast<std::int64_t>(frontier.size()) - 1);
    for (const Nanoseconds deadline :
         {least, longest, longest + 1, frontier[static_cast<std::size_t>(breakpoint)].time,
          draw.Between(least, longest), draw.Between(least, longest)}) {
      const Result<frontier::Solution> solution = frontier::SolveDeadline(network, deadline);
      ASSERT_TRUE(solution) << solution.error().Message();
      const Result<void> checked = frontier::CheckOptimality(network, *solution);
      ASSERT_TRUE(checked) << checked.error().Message();
      ASSERT_EQ(solution->time(network), std::min(deadline, longest));
      ASSERT_TRUE(solution->extra_energy == EnergyAt(frontier, deadline)) << deadline << " ns";
    }
    const Result<frontier::Solution> too_fast = frontier::SolveDeadline(network, least - 1);
    ASSERT_FALSE(too_fast);
    ASSERT_EQ(too_fast.error().kind, ErrorKind::kUnreachable);
  }
}

TEST(SolveDeadline, PriceFloorStopsWhereTheFrontierCrossesIt) {
  for (std::uint64_t seed = 0; seed < Seeds(kNetworks); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const frontier::Network network = RandomNetwork(seed);
    const std::vector<Point> frontier = WalkedFrontier(network);
    Draw draw(seed);
    const auto breakpoint = draw.Between(0, static_cast<std::int64_t>(frontier.size()) - 1);
    const Microwatts slope = frontier[static_cast<std::size_t>(breakpoint)].price;
    const Nanoseconds deadline = draw.Between(frontier.back().time, frontier.front().time + 1);
    for (const Microwatts floor :
         {slope, slope + 1, std::max<Microwatts>(slope - 1, 0),
          Microwatts(draw.Between(0, 2 * frontier.back().price.count()))}) {
      const Result<frontier::Solution> solution = frontier::SolveDeadline(network, deadline, floor);
      ASSERT_TRUE(solution) << solution.error().Message();
      const Result<void> checked = frontier::CheckOptimality(network, *solution);
      ASSERT_TRUE(checked) << checked.error().Message();

      // Energy plus floor * time is convex along the frontier, so its minimum is at the deadline or
      // at a breakpoint before it.
      const Nanoseconds time = solution->time(network);
      ASSERT_LE(time, deadline);
      const auto cost_at = [&](Nanoseconds t) { return EnergyAt(frontier, t) + floor * t; };
      Femtojoules least = cost_at(std::min(deadline, frontier.front().time));
      for (const Point& point : frontier) {
        if (point.time <= deadline) least = std::min(least, cost_at(point.time));
      }
      ASSERT_TRUE(solution->extra_energy + floor * time == least);
      ASSERT_GE(solution->price, floor);
      if (solution->price > floor) {
        ASSERT_EQ(time, std::min(deadline, frontier.front().time));
      }
    }
  }
}

}  // namespace
}  // namespace perseus
