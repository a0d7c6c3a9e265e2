#include "perseus/planning/frontier/walk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/make_network.h"

namespace perseus::frontier {
namespace {

using ::testing::ElementsAre;

// A breakpoint of the frontier, and the price for a shorter schedule.
struct Breakpoint {
  Nanoseconds time;
  std::int64_t extra_energy;
  Microwatts price;

  bool operator==(const Breakpoint&) const = default;
};

void PrintTo(const Breakpoint& point, std::ostream* stream) {
  *stream << "{" << point.time << " ns, " << point.extra_energy << " fJ, " << point.price << " uW}";
}

// The whole frontier, with a check of optimality at every point. The last point has the price 0,
// because no shorter schedule exists.
std::vector<Breakpoint> FrontierOf(const Network& network) {
  Walk walk(network);
  std::vector<Breakpoint> frontier;
  const auto note = [&](Microwatts price) {
    frontier.push_back({walk.time(), static_cast<std::int64_t>(walk.extra_energy()), price});
    const Solution solution = walk.solution();
    const Result<void> checked = CheckOptimality(network, solution);
    EXPECT_TRUE(checked) << "at " << walk.time() << " ns: " << checked.error().Message();
    EXPECT_EQ(solution.time(network), walk.time());
  };
  while (!walk.finished()) {
    note(walk.price());
    walk.Advance(0);
  }
  note(0);
  return frontier;
}

Nanoseconds LengthOf(const Network& network, const Solution& solution, int instruction) {
  const Arc& arc = network.arcs[static_cast<std::size_t>(instruction)];
  return solution.event_times[static_cast<std::size_t>(arc.head)] -
         solution.event_times[static_cast<std::size_t>(arc.tail)];
}

//   s --a--> t        a: 7 ns, 3 ns for 1 uW, 1 ns for 6 uW
TEST(Walk, OneInstructionFollowsItsCurve) {
  EXPECT_THAT(FrontierOf(MakeNetwork({profile::Curve{{1, 3, 7}, {6, 1}, {}, 0}}, {})),
              ElementsAre(Breakpoint{7, 0, 1}, Breakpoint{3, 4, 6}, Breakpoint{1, 16, 0}));
}

TEST(Walk, TheFrontierOfAFixedInstructionIsAPoint) {
  const Network network = MakeNetwork({Fixed(5)}, {});
  EXPECT_THAT(FrontierOf(network), ElementsAre(Breakpoint{5, 0, 0}));
}

//   s --a--> o --b--> t        the flatter slope bends first, wherever it is
TEST(Walk, AChainShortensInTheOrderOfSlopes) {
  const Network network = MakeNetwork(
      {profile::Curve{{1, 3, 7}, {6, 1}, {}, 0}, profile::Curve{{2, 4}, {3}, {}, 0}}, {{0, 1}});
  EXPECT_THAT(FrontierOf(network), ElementsAre(Breakpoint{11, 0, 1}, Breakpoint{7, 4, 3},
                                               Breakpoint{5, 10, 6}, Breakpoint{3, 22, 0}));
}

//   s --a--> o ~10~> o --b--> t
TEST(Walk, NoEnergyShortensADelay) {
  const Network network = MakeNetwork(
      {profile::Curve{{1, 3}, {2}, {}, 0}, profile::Curve{{2, 4}, {3}, {}, 0}}, {{0, 1, 10}});
  EXPECT_THAT(FrontierOf(network),
              ElementsAre(Breakpoint{17, 0, 2}, Breakpoint{15, 4, 3}, Breakpoint{13, 10, 0}));
}

//   s --a--> o --b--> t        a: 6..2 ns at 2 uW, b: 3 ns
//   s --c--> o --d--> t        c: 5..1 ns at 3 uW, d: 4..2 ns at 1 uW
//
// Both last 9 ns and shorten together: a with d to 7 ns, then a with c, until a is at its fastest.
TEST(Walk, ParallelChainsPayTogether) {
  const Network network =
      MakeNetwork({profile::Curve{{2, 6}, {2}, {}, 0}, Fixed(3), profile::Curve{{1, 5}, {3}, {}, 0},
                   profile::Curve{{2, 4}, {1}, {}, 0}},
                  {{0, 1}, {2, 3}});
  EXPECT_THAT(FrontierOf(network),
              ElementsAre(Breakpoint{9, 0, 3}, Breakpoint{7, 6, 5}, Breakpoint{5, 16, 0}));
}

// The smallest network in which a shorter schedule makes an arc longer.
//
//          a     d = 14
//        .--> u ---.          a, e: 10..2 ns at 5 uW
//      s      |c    t         c:    10..2 ns at 4 uW
//        `--> v ---'
//      b = 14     e
//
// T = 30: only a-c-e is critical, and c is cheapest.
// T = 24: now a-d and b-e are critical as well. The cut {s, v | u, t} shortens a and e for 10 uW.
//         Arc c crosses the cut backward, gets longer, and gives 4 uW back.
// T = 18: c is at its slowest again.
// T = 16: a and e are at their fastest.
Network Bridge() {
  const profile::Curve outer{{2, 10}, {5}, {}, 0};
  const profile::Curve middle{{2, 10}, {4}, {}, 0};
  return MakeNetwork({outer, Fixed(14), middle, Fixed(14), outer},
                     {{0, 2}, {0, 3}, {1, 4}, {2, 4}});
}

TEST(Walk, ShorteningOneArcCanLengthenAnother) {
  const Network network = Bridge();
  EXPECT_THAT(FrontierOf(network), ElementsAre(Breakpoint{30, 0, 4}, Breakpoint{24, 24, 6},
                                               Breakpoint{18, 60, 10}, Breakpoint{16, 80, 0}));
  Walk walk(network);
  for (const auto& [time, shared] : {std::pair<Nanoseconds, Nanoseconds>{24, 4}, {18, 10}}) {
    while (walk.time() > time) walk.Advance(time);
    EXPECT_EQ(LengthOf(network, walk.solution(), 2), shared);
  }
}

TEST(Walk, StopsAtTheGivenTimeAndContinuesFromThere) {
  const Network network = Bridge();
  Walk walk(network);
  for (Nanoseconds time = 29; time >= 16; --time) {
    walk.Advance(time);
    ASSERT_EQ(walk.time(), time);
    ASSERT_TRUE(CheckOptimality(network, walk.solution()));
  }
  EXPECT_EQ(walk.extra_energy(), 80);
  walk.Advance(0);
  EXPECT_TRUE(walk.finished());
  EXPECT_EQ(walk.time(), 16);
}

// A stop that is not shorter than the present length has no effect.
TEST(Walk, NeverGetsLonger) {
  Walk walk(Bridge());
  walk.Advance(20);  // Stops at the breakpoint before it.
  EXPECT_EQ(walk.time(), 24);
  walk.Advance(25);
  walk.Advance(24);
  EXPECT_EQ(walk.time(), 24);
  EXPECT_EQ(walk.extra_energy(), 24);
}

//   s --a--> o --b--> t        a and b are alike: the price is the same from 20 ns down to 4 ns,
//                              although both arcs pass vertices
TEST(Walk, AVertexThatKeepsThePriceIsNotABreakpoint) {
  const profile::Curve curve{{2, 10}, {3}, {}, 0};
  const Network network = MakeNetwork({curve, curve}, {{0, 1}});
  EXPECT_THAT(FrontierOf(network), ElementsAre(Breakpoint{20, 0, 3}, Breakpoint{4, 48, 0}));
  Walk walk(network);
  walk.Advance(0);
  EXPECT_EQ(walk.time(), 4);
}

TEST(Walk, KnowsThePriceOfTheFirstNanosecond) {
  EXPECT_EQ(Walk(Bridge()).price(), 4);
  EXPECT_EQ(Walk(MakeNetwork({Fixed(5)}, {})).price(), 0);
}

//   o-->o-->o-->            A grid of equal instructions. Instruction (row, column) waits for its
//   |   |   |               left and upper neighbors. All monotone paths cost the same, so nearly
//   v   v   v               every pivot is degenerate, with either rule for ties.
//   o-->o-->o-->
TEST(Walk, EndsOnADegenerateGrid) {
  constexpr int kSide = 12;
  const std::vector<profile::Curve> curves = {profile::Curve{{10, 20, 30}, {5, 3}, {}, 0}};
  std::vector<schedule::Dependency> dependencies;
  for (int i = 0; i < kSide * kSide; ++i) {
    if (i % kSide > 0) dependencies.push_back({i - 1, i, 0});
    if (i >= kSide) dependencies.push_back({i - kSide, i, 0});
  }
  const Network network =
      *BuildNetwork(curves, std::vector<std::int32_t>(std::size_t{kSide} * kSide), dependencies);
  for (const std::int64_t most_stalled : {1'000'000, 0}) {
    Walk walk(network, most_stalled);
    while (!walk.finished()) walk.Advance(0);
    EXPECT_EQ(walk.time(), 10 * (2 * kSide - 1));
    EXPECT_TRUE(CheckOptimality(network, walk.solution()));
    const Walk::Statistics& statistics = walk.statistics();
    EXPECT_GT(statistics.longest_stall, kSide);
    EXPECT_LT(statistics.degenerate_pivots, statistics.pivots);
    EXPECT_GE(statistics.nodes_moved, statistics.degenerate_pivots);
  }
}

}  // namespace
}  // namespace perseus::frontier
