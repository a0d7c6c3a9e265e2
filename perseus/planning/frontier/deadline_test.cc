#include "perseus/planning/frontier/deadline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/make_network.h"

namespace perseus::frontier {
namespace {

using ::testing::HasSubstr;

Solution Solve(const Network& network, Nanoseconds deadline, Microwatts price_floor = 0) {
  const Result<Solution> solution = SolveDeadline(network, deadline, price_floor);
  EXPECT_TRUE(solution) << solution.error().Message();
  if (!solution) return {};
  const Result<void> checked = CheckOptimality(network, *solution);
  EXPECT_TRUE(checked) << checked.error().Message();
  return *solution;
}

// The bridge of walk_test.cc, whose frontier is
//
//   E (fJ)  80 x                             a, e: 10..2 ns at 5 uW
//              \  10 uW                      c:    10..2 ns at 4 uW
//           60  x.                           b, d: 14 ns
//                 `-. 6 uW                          a     d
//           24       `-x._                        .--> u ---.
//                         `-._ 4 uW             s      |c    t
//            0                 `-x----            `--> v ---'
//              16 18   24       30  T (ns)          b     e
Network DeadlineBridge() {
  const profile::Curve outer{{2, 10}, {5}, {}, 0};
  const profile::Curve middle{{2, 10}, {4}, {}, 0};
  return MakeNetwork({outer, Fixed(14), middle, Fixed(14), outer},
                     {{0, 2}, {0, 3}, {1, 4}, {2, 4}});
}

TEST(SolveDeadline, FindsEveryPointOfTheFrontier) {
  const Network network = DeadlineBridge();
  const auto energy_at = [](Nanoseconds time) {
    if (time >= 24) return 4 * (30 - time);
    if (time >= 18) return 24 + 6 * (24 - time);
    return 60 + 10 * (18 - time);
  };
  for (Nanoseconds deadline = 16; deadline <= 30; ++deadline) {
    const Solution solution = Solve(network, deadline);
    EXPECT_EQ(solution.time(network), deadline);
    EXPECT_EQ(solution.extra_energy, energy_at(deadline)) << deadline;
  }
}

TEST(SolveDeadline, ThePriceIsASlopeOfTheFrontierAtTheDeadline) {
  const Network network = DeadlineBridge();
  EXPECT_EQ(Solve(network, 29).price, 4);
  EXPECT_EQ(Solve(network, 20).price, 6);
  EXPECT_EQ(Solve(network, 17).price, 10);
  // At a breakpoint, any price between the slopes of both sides is optimal.
  const Solution at_breakpoint = Solve(network, 24);
  EXPECT_GE(at_breakpoint.price, 4);
  EXPECT_LE(at_breakpoint.price, 6);
  EXPECT_GE(Solve(network, 16).price, 10);  // No schedule is shorter: any higher price is right.
}

TEST(SolveDeadline, TimeBeyondTheSlowEndChangesNothing) {
  const Network network = DeadlineBridge();
  for (const Nanoseconds deadline : {Nanoseconds{31}, std::numeric_limits<Nanoseconds>::max()}) {
    const Solution solution = Solve(network, deadline);
    EXPECT_EQ(solution.time(network), 30);
    EXPECT_EQ(solution.extra_energy, 0);
    EXPECT_EQ(solution.price, 0);
  }
}

TEST(SolveDeadline, BelowTheLeastTimeIsUnreachable) {
  for (const Nanoseconds deadline : {Nanoseconds{0}, Nanoseconds{15}}) {
    const Result<Solution> solution = SolveDeadline(DeadlineBridge(), deadline);
    ASSERT_FALSE(solution);
    EXPECT_EQ(solution.error().kind, ErrorKind::kUnreachable);
  }
  const Network seconds = MakeNetwork({Fixed(1'500'000'000)}, {});
  const Result<Solution> solution = SolveDeadline(seconds, 1'250'000'000);
  ASSERT_FALSE(solution);
  EXPECT_EQ(solution.error().Message(),
            "no plan can meet 1.250000 s: the least possible iteration time is 1.500000 s "
            "(allow at least that)");
}

// The schedule is shorter than the deadline if more time would save less than the floor.
TEST(SolveDeadline, APriceFloorStopsWhereTheFrontierBecomesFlatter) {
  const Network network = DeadlineBridge();
  struct Case {
    Microwatts floor;
    Nanoseconds deadline;
    Nanoseconds time;
    Microwatts price;
  };
  for (const Case& c : {Case{3, 40, 30, 3}, Case{5, 40, 24, 5}, Case{5, 24, 24, 5},
                        Case{7, 30, 18, 7}, Case{1000, 30, 16, 1000}}) {
    const Solution solution = Solve(network, c.deadline, c.floor);
    EXPECT_EQ(solution.time(network), c.time) << "floor " << c.floor;
    EXPECT_EQ(solution.price, c.price) << "floor " << c.floor;
  }
  // If the deadline limits the schedule, the price is above the floor.
  const Solution bound = Solve(network, 20, 5);
  EXPECT_EQ(bound.time(network), 20);
  EXPECT_EQ(bound.price, 6);
  // If the floor is equal to a slope, all schedules along this slope are equally good.
  const Solution along = Solve(network, 40, 6);
  EXPECT_EQ(along.extra_energy + Femtojoules{6} * along.time(network), 24 + 6 * 24);
}

// An instruction may take up to 11.6 days, and the solver multiplies times by the number of nodes.
TEST(SolveDeadline, ADeadlineThatDoesNotFitItsIntegersIsAnError) {
  constexpr Nanoseconds kDays = 1'000'000'000'000'000;
  std::vector<profile::Curve> curves(20'000, profile::Curve{{1, 2}, {3}, {}, 0});
  curves.front() = profile::Curve{{kDays / 2, kDays}, {3}, {}, 0};
  std::vector<schedule::Dependency> chain;
  for (int i = 1; i < 20'000; ++i) chain.push_back({i - 1, i, 0});
  const Network network = MakeNetwork(curves, chain);
  const Result<Solution> solution = SolveDeadline(network, 2 * kDays / 3);
  ASSERT_FALSE(solution);
  EXPECT_EQ(solution.error().kind, ErrorKind::kInput);
  EXPECT_THAT(solution.error().Message(), HasSubstr("check that all times are in seconds"));
}

// The deadline is short, but the slowest option of one instruction takes days.
TEST(SolveDeadline, ACurveThatDoesNotFitItsIntegersIsAnError) {
  constexpr Nanoseconds kDays = 1'000'000'000'000'000;
  std::vector<profile::Curve> curves(20'000, profile::Curve{{1, 2}, {3}, {}, 0});
  curves.front() = profile::Curve{{1, kDays}, {3}, {}, 0};
  std::vector<schedule::Dependency> chain;
  for (int i = 1; i < 20'000; ++i) chain.push_back({i - 1, i, 0});
  const Result<Solution> solution = SolveDeadline(MakeNetwork(curves, chain), 30'000);
  ASSERT_FALSE(solution);
  EXPECT_THAT(solution.error().Message(), HasSubstr("check that all times are in seconds"));
}

// One instruction is as long as all others together. The problem just fits the limit.
//   s --0--> o --1--> o ... o --n--> t
TEST(SolveDeadline, OneLongInstructionAmongManyShortOnesDoesNotOverflow) {
  constexpr int kInstructions = 2'000;
  constexpr Nanoseconds kLong = std::numeric_limits<Nanoseconds>::max() / 8 / (kInstructions + 8);
  std::vector<profile::Curve> curves(kInstructions, profile::Curve{{1'000, 2'000}, {3}, {}, 0});
  curves.front() = profile::Curve{{kLong / 4, kLong / 2}, {2}, {}, 0};
  std::vector<schedule::Dependency> chain;
  for (int i = 1; i < kInstructions; ++i) chain.push_back({i - 1, i, 0});
  const Network network = MakeNetwork(curves, chain);
  const Solution solution = Solve(network, kLong / 4 + 3'000'000);
  // The long instruction runs at its fastest (its slope is 2 uW). The others take 3,998,000 ns at
  // their slowest and have 3,000,000 ns.
  EXPECT_EQ(solution.extra_energy,
            Femtojoules{2} * (kLong / 2 - kLong / 4) + Femtojoules{3} * 998'000);
}

TEST(SolveDeadline, StopsOnRequest) {
  std::stop_source stop;
  stop.request_stop();
  const Result<Solution> solution = SolveDeadline(DeadlineBridge(), 20, 0, stop.get_token());
  ASSERT_FALSE(solution);
  EXPECT_EQ(solution.error().kind, ErrorKind::kSystem);
}

TEST(ApproximateSchedule, CostsAtMostTheGapMoreOrMoreThanTheLimit) {
  const Network network = DeadlineBridge();
  const Solution fast = Solve(network, 16);
  const Solution slow = Solve(network, 30);
  for (Nanoseconds deadline = 16; deadline <= 31; ++deadline) {
    for (const Microwatts floor : {0, 5, 7}) {
      const Solution best = Solve(network, deadline, floor);
      const Femtojoules least = best.extra_energy + floor * best.time(network);
      for (const Solution* near : {static_cast<const Solution*>(nullptr), &fast, &slow}) {
        for (const int most_gap : {1, 3, 40}) {
          for (const int above : {-30, -1, 0, 5}) {
            const auto solution = ApproximateSchedule(
                network, deadline, floor,
                {.most_gap = most_gap, .near = near, .most_cost = least + above});
            ASSERT_TRUE(solution) << solution.error().Message();
            EXPECT_LE(solution->time(network), deadline);
            const auto energy = CheckSchedule(network, solution->event_times);
            ASSERT_TRUE(energy) << energy.error().Message();
            EXPECT_EQ(*energy, solution->extra_energy);
            const Femtojoules cost = *energy + floor * solution->time(network);
            EXPECT_TRUE(above < 0 ? cost > least + above : cost <= least + most_gap);
          }
        }
      }
    }
  }
  EXPECT_EQ(ApproximateSchedule(network, 15, 0, {}).error().kind, ErrorKind::kUnreachable);
}

// Between the optima for 16 and 30 ns, with a gap of at most 3 fJ.
TEST(ApproximateDeadline, ItsScheduleAndItsFlowAreThatClose) {
  const Network network = DeadlineBridge();
  const Solution fast = Solve(network, 16);
  const Solution slow = Solve(network, 30);
  for (const Solution& near : {fast, slow}) {
    for (Nanoseconds deadline = 17; deadline < 30; ++deadline) {
      for (const std::int64_t most_gap : {1, 3, 40}) {
        const Result<Solution> solution =
            ApproximateDeadline(network, deadline, near, Femtojoules{most_gap});
        ASSERT_TRUE(solution) << solution.error().Message();
        EXPECT_LE(solution->time(network), deadline);
        const auto energy = CheckSchedule(network, solution->event_times);
        const auto line = CheckFlow(network, solution->flow, solution->price);
        ASSERT_TRUE(energy) << energy.error().Message();
        ASSERT_TRUE(line) << line.error().Message();
        EXPECT_EQ(*energy, solution->extra_energy);
        EXPECT_LE(*energy - line->At(deadline), most_gap);
        const Femtojoules least = Solve(network, deadline).extra_energy;
        EXPECT_GE(*energy, least);
        EXPECT_LE(line->At(deadline), least);
      }
    }
  }
}

TEST(ApproximateDeadline, StopsOnRequest) {
  const Network network = DeadlineBridge();
  std::stop_source stop;
  stop.request_stop();
  const auto solution =
      ApproximateDeadline(network, 20, Solve(network, 30), Femtojoules{1}, stop.get_token());
  ASSERT_FALSE(solution);
  EXPECT_EQ(solution.error().kind, ErrorKind::kSystem);
}

}  // namespace
}  // namespace perseus::frontier
