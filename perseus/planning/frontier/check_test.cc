#include "perseus/planning/frontier/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace perseus::frontier {
namespace {

using ::testing::HasSubstr;

constexpr Microwatts kMostFlow = std::numeric_limits<Microwatts>::max();

//            a        d
//        .-------> u ---.       a: 1..5 ns at 7 uW     (in the middle of its segment: exactly 7)
//      s           ~2~   t      b: 3..9 ns at 4 uW, then 2 uW from 6 ns  (at a vertex: 2..4)
//        `-------> v ---'       c: 2 ns                (fixed: from 0 up)
//            b        c         d: 1..2 ns at 8 uW     (beyond its slowest time: 0)
//
// Event u is the end of a and the start of d. The end of d is t. Instruction c starts at least 2 ns
// after the end of a.
class CheckOptimalityTest : public ::testing::Test {
 protected:
  CheckOptimalityTest() {
    const std::vector<profile::Curve> curves = {
        profile::Curve{{1, 5}, {7}, {}, 0}, profile::Curve{{3, 6, 9}, {4, 2}, {}, 0},
        profile::Curve{{2}, {}, {}, 0}, profile::Curve{{1, 2}, {8}, {}, 0}};
    const std::vector<std::int32_t> curve_of_instruction = {0, 1, 2, 3};
    const std::vector<schedule::Dependency> dependencies = {{0, 3}, {0, 2, 2}, {1, 2}};
    network_ = *BuildNetwork(curves, curve_of_instruction, dependencies);
    u_ = network_.arcs[0].head;
    v_ = network_.arcs[1].head;
    time_of(network_.source) = 0;
    time_of(u_) = 4;
    time_of(v_) = 6;
    time_of(network_.sink) = 8;
    solution_.flow = {7, 3, 10, 0, 7};  // a, b, c, d and the delay from u to v.
    solution_.price = 10;
    solution_.extra_energy = 1 * 7 + 3 * 2;
  }

  Nanoseconds& time_of(std::int32_t node) {
    if (solution_.event_times.empty()) {
      solution_.event_times.resize(static_cast<std::size_t>(network_.nodes));
    }
    return solution_.event_times[static_cast<std::size_t>(node)];
  }
  // The error of CheckOptimality for the present solution. "" if the solution is optimal.
  std::string Verdict() const {
    const Result<void> checked = CheckOptimality(network_, solution_);
    return checked ? "" : checked.error().Message();
  }

  Network network_;
  Solution solution_;
  std::int32_t u_ = 0;
  std::int32_t v_ = 0;
};

TEST_F(CheckOptimalityTest, AcceptsAnOptimum) { EXPECT_EQ(Verdict(), ""); }

TEST_F(CheckOptimalityTest, RefusesAnyOtherEventTime) {
  for (std::int32_t node = 0; node < network_.nodes; ++node) {
    for (const Nanoseconds change : {-1, 1}) {
      time_of(node) += change;
      EXPECT_NE(Verdict(), "") << "node " << node << " by " << change;
      time_of(node) -= change;
    }
  }
}

TEST_F(CheckOptimalityTest, RefusesAnyOtherFlow) {
  for (std::size_t arc = 0; arc < solution_.flow.size(); ++arc) {
    for (const Microwatts change : {-1, 1}) {
      solution_.flow[arc] += change;
      EXPECT_NE(Verdict(), "") << "arc " << arc << " by " << change;
      solution_.flow[arc] -= change;
    }
  }
}

TEST_F(CheckOptimalityTest, NamesAnArcThatIsTooFast) {
  time_of(v_) = 7;        // c would last 1 ns.
  solution_.flow[1] = 2;  // This is right for b, which now lasts 7 ns.
  EXPECT_EQ(Verdict(), "arc 2 lasts 1 ns, less than its fastest 2 ns");
}

TEST_F(CheckOptimalityTest, NamesADelayThatIsTooShort) {
  time_of(u_) = 5;
  solution_.flow[0] = 0;  // This is right for a, which now runs beyond its slowest time.
  EXPECT_EQ(Verdict(), "arc 4 lasts 1 ns, less than its fastest 2 ns");
}

TEST_F(CheckOptimalityTest, InsideASegmentTheFlowIsTheSlope) {
  solution_.flow[0] = 8;
  EXPECT_EQ(Verdict(), "arc 0 of 4 ns carries 8 uW, outside 7..7");
}

TEST_F(CheckOptimalityTest, AtAVertexTheFlowIsBetweenTheSlopes) {
  solution_.flow[1] = 5;
  EXPECT_EQ(Verdict(), "arc 1 of 6 ns carries 5 uW, outside 2..4");
  solution_.flow[1] = 1;
  EXPECT_EQ(Verdict(), "arc 1 of 6 ns carries 1 uW, outside 2..4");
  solution_.flow[1] =
      4;  // The slopes allow this, but now more flow than `price` leaves the source.
  EXPECT_THAT(Verdict(), HasSubstr("keeps -1 uW"));
}

TEST_F(CheckOptimalityTest, AnArcBeyondItsSlowestTimeCarriesNoFlow) {
  solution_.flow[3] = 1;
  EXPECT_EQ(Verdict(), "arc 3 of 4 ns carries 1 uW, outside 0..0");
}

TEST_F(CheckOptimalityTest, NoFlowIsNegative) {
  solution_.flow[2] = -1;
  EXPECT_THAT(Verdict(), HasSubstr("arc 2 of 2 ns carries -1 uW, outside 0.."));
}

TEST_F(CheckOptimalityTest, FlowIsConserved) {
  solution_.flow[2] = 11;  // More flow leaves v than enters it. The slopes of c allow it.
  EXPECT_EQ(Verdict(), "node " + std::to_string(v_) + " keeps -1 uW of flow");
}

TEST_F(CheckOptimalityTest, ThePriceIsTheValueOfTheFlow) {
  for (const Microwatts price : {9, 11, 0, -10}) {
    solution_.price = price;
    EXPECT_THAT(Verdict(), HasSubstr("of flow")) << price;
  }
}

TEST_F(CheckOptimalityTest, TheEnergyIsTheSumOverTheArcs) {
  for (const Femtojoules change : {-1, 1}) {
    solution_.extra_energy += change;
    EXPECT_EQ(Verdict(), "the energy of the solution is not the sum over its arcs");
    solution_.extra_energy -= change;
  }
}

// If the source were not at 0, time(network) would not be the length of the schedule.
TEST_F(CheckOptimalityTest, TimeCountsFromTheSource) {
  for (Nanoseconds& time : solution_.event_times) time += 100;
  EXPECT_EQ(Verdict(), "the source happens at 100 ns instead of 0");
}

TEST_F(CheckOptimalityTest, RefusesASolutionOfOtherSizes) {
  solution_.flow.push_back(0);
  EXPECT_THAT(Verdict(), HasSubstr("not of this network"));
  solution_.flow.pop_back();
  solution_.event_times.pop_back();
  EXPECT_THAT(Verdict(), HasSubstr("not of this network"));
  solution_ = {};
  EXPECT_THAT(Verdict(), HasSubstr("not of this network"));
}

// The checker must refuse a wrong solution even if a sum of its flows would wrap around.
TEST_F(CheckOptimalityTest, FlowsTooLargeForTheirSumDoNotWrapAround) {
  //   s --0--> t, twice: both are fixed, so their slopes allow any flow.
  const std::vector<profile::Curve> curves = {profile::Curve{{2}, {}, {}, 0}};
  network_ = *BuildNetwork(curves, std::vector<std::int32_t>{0, 0}, {});
  solution_ = {};
  time_of(network_.sink) = 2;
  solution_.flow = {kMostFlow, kMostFlow};
  solution_.price = -2;  // This is the sum in 64 bits.
  EXPECT_THAT(Verdict(), HasSubstr("of flow"));
}

// CheckDeadline for the optimum above: 8 ns at a price of 10 uW.
TEST_F(CheckOptimalityTest, CheckDeadlineRefusesALateScheduleAndUnusedTime) {
  const auto verdict = [this](Nanoseconds deadline, Microwatts price_floor) {
    const Result<void> checked = CheckDeadline(network_, solution_, deadline, price_floor);
    return checked ? "" : checked.error().Message();
  };
  EXPECT_EQ(verdict(8, 0), "");
  EXPECT_EQ(verdict(8, 10), "");
  EXPECT_EQ(verdict(20, 10), "") << "more time costs as much as it saves";
  EXPECT_EQ(verdict(7, 0), "the schedule takes 8 ns, longer than the deadline 7 ns");
  EXPECT_EQ(verdict(8, 11), "the price 10 uW is below the floor 11 uW");
  EXPECT_EQ(verdict(9, 9),
            "the schedule takes 8 ns of a deadline of 9 ns, although its price 10 uW is above the "
            "floor 9 uW");
  solution_.flow[0] = 8;  // CheckDeadline also checks optimality.
  EXPECT_EQ(verdict(8, 0), "arc 0 of 4 ns carries 8 uW, outside 7..7");
}

//   s ---> t: 1..5 ns at 7 uW, run at 5 ns, where any flow from 0 to 7 is allowed.
TEST(CheckDeadline, TheCheapestScheduleNeedNotUseTheDeadline) {
  const std::vector<profile::Curve> curves = {profile::Curve{{1, 5}, {7}, {}, 0}};
  const Network network = *BuildNetwork(curves, std::vector<std::int32_t>{0}, {});
  Solution solution{.event_times = {0, 5}, .flow = {3}, .price = 3, .extra_energy = 0};
  EXPECT_TRUE(CheckDeadline(network, solution, 9, 2));
  solution = {.event_times = {0, 4}, .flow = {7}, .price = 7, .extra_energy = 7};
  EXPECT_FALSE(CheckDeadline(network, solution, 9, 2));
}

TEST(CheckConvex, AcceptsOnlyAFrontier) {
  const auto verdict = [](const std::vector<Breakpoint>& points) {
    const Result<void> checked = CheckConvex(points);
    return checked ? "" : checked.error().Message();
  };
  EXPECT_EQ(verdict({{30, 0}}), "");
  EXPECT_EQ(verdict({{30, 0}, {24, 24}, {18, 60}, {16, 80}}), "");
  EXPECT_EQ(verdict({}), "the slowest point is not the cheapest");
  EXPECT_EQ(verdict({{30, 1}, {24, 24}}), "the slowest point is not the cheapest");
  EXPECT_EQ(verdict({{30, 0}, {30, 24}}), "point 1 is not faster than the one before");
  EXPECT_EQ(verdict({{30, 0}, {24, 24}, {25, 30}}), "point 2 is not faster than the one before");
  for (const Breakpoint last :
       {Breakpoint{18, 20}, Breakpoint{18, 24}, Breakpoint{18, 42},
        Breakpoint{18, 61}}) {  // Less energy, the same energy, a lower price, no whole price.
    EXPECT_EQ(verdict({{30, 0}, {24, 24}, last}),
              "point 2 is 6 ns faster than the one before, but the price of that time is not "
              "whole, not positive, or below the previous price");
  }
}

TEST_F(CheckOptimalityTest, AScheduleHasItsEnergy) {
  const auto energy = CheckSchedule(network_, solution_.event_times);
  ASSERT_TRUE(energy) << energy.error().Message();
  EXPECT_EQ(*energy, solution_.extra_energy);
  time_of(u_) = 0;
  const auto too_short = CheckSchedule(network_, solution_.event_times);
  ASSERT_FALSE(too_short);
  EXPECT_THAT(too_short.error().Message(), HasSubstr("less than its fastest"));
}

// The line of the optimal flow touches the frontier: 13 fJ at 8 ns, at 10 uW.
TEST_F(CheckOptimalityTest, AFlowProvesItsLine) {
  const auto line = CheckFlow(network_, solution_.flow, solution_.price);
  ASSERT_TRUE(line) << line.error().Message();
  EXPECT_EQ(line->price, 10);
  EXPECT_EQ(line->At(8), 13);
}

TEST_F(CheckOptimalityTest, AFlowThatIsNoFlowProvesNothing) {
  std::vector<Microwatts> flow = solution_.flow;
  flow[0] += 1;
  const auto unbalanced = CheckFlow(network_, flow, solution_.price);
  ASSERT_FALSE(unbalanced);
  EXPECT_THAT(unbalanced.error().Message(), HasSubstr("keeps"));
  flow = {-7, 17, 10, 0, -7};
  const auto negative = CheckFlow(network_, flow, solution_.price);
  ASSERT_FALSE(negative);
  EXPECT_THAT(negative.error().Message(), HasSubstr("less than 0"));
}

}  // namespace
}  // namespace perseus::frontier
