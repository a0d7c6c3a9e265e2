#include "perseus/planning/profile/curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace perseus::profile {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Option At(Nanoseconds time, double energy_j) {
  return Option{.frequency_mhz = 1000, .other_knobs = {}, .time = time, .energy_j = energy_j};
}

// If an option takes one second longer and saves one joule, the slope is one watt.
constexpr int kWatt = 1'000'000;

TEST(ParetoFront, DropsOptionsThatAreNeitherFasterNorCheaper) {
  const std::vector<Option> options = {At(30, 1), At(10, 9), At(20, 9),
                                       At(20, 4), At(40, 1), At(10, 9)};
  EXPECT_THAT(ParetoFront(options, 0), ElementsAre(1, 3, 0));
}

// At a power limit, the rows of all clocks that the GPU does not reach are the same.
TEST(ParetoFront, OfEqualOptionsTheLowestClockRemains) {
  std::vector<Option> options = {At(10, 9), At(10, 9), At(10, 9), At(20, 4)};
  options[0].frequency_mhz = 1410;
  options[1].frequency_mhz = 1200;
  options[2].frequency_mhz = 1305;
  options[3].frequency_mhz = 900;
  EXPECT_THAT(ParetoFront(options, 0), ElementsAre(1, 3));
}

TEST(ParetoFront, CountsTheWaitingThatASlowerOptionSaves) {
  // The slow option takes 1 J more than the fast one but saves a second of waiting at 2 W.
  const std::vector<Option> options = {At(1 * kSecond, 10), At(2 * kSecond, 11)};
  EXPECT_THAT(ParetoFront(options, 0), ElementsAre(0));
  EXPECT_THAT(ParetoFront(options, 2), ElementsAre(0, 1));
}

//  20 J *
//        \          slope 8 W
//  12 J   *
//          `  x     13 J at 2.5 s: on the front, but above the hull
//   9 J      `-*    slope 1.5 W over two seconds
TEST(LowerHull, KeepsTheVerticesAndTheirSlopes) {
  const std::vector<Option> options = {At(4 * kSecond, 9), At(2 * kSecond, 12), At(kSecond, 20),
                                       At(5 * kSecond / 2, 11.5)};
  const Result<Curve> curve = LowerHull(options, 0);
  ASSERT_TRUE(curve);
  EXPECT_THAT(curve->times, ElementsAre(kSecond, 2 * kSecond, 4 * kSecond));
  EXPECT_THAT(curve->slopes, ElementsAre(8 * kWatt, 3 * kWatt / 2));
  EXPECT_THAT(curve->options, ElementsAre(2, 1, 0));
  EXPECT_EQ(curve->least_effective_energy_j, 9);

  EXPECT_EQ(ToJoules(curve->ExtraEnergyAt(kSecond)), 11);
  EXPECT_EQ(ToJoules(curve->ExtraEnergyAt(3 * kSecond / 2)), 7);
  EXPECT_EQ(ToJoules(curve->ExtraEnergyAt(3 * kSecond)), 1.5);
  EXPECT_EQ(ToJoules(curve->ExtraEnergyAt(4 * kSecond)), 0);
  EXPECT_EQ(ToJoules(curve->ExtraEnergyAt(9 * kSecond)), 0);
}

TEST(LowerHull, OneOptionGivesAFixedInstruction) {
  const Result<Curve> curve = LowerHull(std::vector{At(7, 3), At(8, 4)}, 0);
  ASSERT_TRUE(curve);
  EXPECT_THAT(curve->times, ElementsAre(7));
  EXPECT_THAT(curve->slopes, ElementsAre());
  EXPECT_THAT(curve->options, ElementsAre(0));
}

TEST(LowerHull, OptionsOnOneLineGiveOneSegment) {
  const Result<Curve> curve = LowerHull(std::vector{At(1, 30), At(2, 20), At(3, 10)}, 0);
  ASSERT_TRUE(curve);
  EXPECT_THAT(curve->times, ElementsAre(1, 3));
}

TEST(LowerHull, ASavingOfLessThanAMicrowattCountsAsZero) {
  // The last two seconds save 0.9 and 0.3 microwatts, which are counted as 0. The least energy is
  // still the energy of the slowest option, so the curve stays below all options.
  const double least = 1 - 1.2e-6;
  const Result<Curve> curve =
      LowerHull(std::vector{At(kSecond, 2), At(2 * kSecond, 1), At(3 * kSecond, 1 - 0.9e-6),
                            At(4 * kSecond, least)},
                0);
  ASSERT_TRUE(curve);
  EXPECT_THAT(curve->times, ElementsAre(kSecond, 2 * kSecond));
  EXPECT_THAT(curve->slopes, ElementsAre(kWatt));
  EXPECT_THAT(curve->options, ElementsAre(0, 1));
  EXPECT_EQ(curve->least_effective_energy_j, least);
}

TEST(LowerHull, OptionsThatDoNotFitAreAnErrorWithARemedy) {
  const auto message = [](const std::vector<Option>& options, double blocking_power_w) {
    const Result<Curve> curve = LowerHull(options, blocking_power_w);
    return curve ? "no error" : curve.error().Message();
  };
  EXPECT_THAT(message({At(1, 2e12), At(2, 1)}, 0), HasSubstr("are the units mixed up?"));
  EXPECT_THAT(message({At(kSecond, 1)}, 1e300), HasSubstr("not finite numbers below"));
  EXPECT_THAT(message({At(kSecond, 1)}, std::numeric_limits<double>::quiet_NaN()),
              HasSubstr("not finite numbers below"));
  EXPECT_THAT(message({}, 0), HasSubstr("give each instruction an option"));
}

// Random option sets of four kinds: a noisy convex curve, pure noise, nearly a straight line
// (slopes that differ by fractions of a microwatt), and many equal times and energies.
std::vector<Option> RandomOptions(std::mt19937_64& random) {
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
  };
  const auto character = random() % 4;
  const auto count = 1 + random() % 60;
  std::vector<Option> options;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double x = uniform(0.02, 0.2);
    switch (character) {
      case 0:
        options.push_back(At(ToNanoseconds(x), (1 / x + 80 * x) * uniform(0.99, 1.01)));
        break;
      case 1:
        options.push_back(At(ToNanoseconds(x), uniform(1, 100)));
        break;
      case 2:
        options.push_back(At(ToNanoseconds(x), 100 - 3e-6 * x - uniform(0, 1e-7)));
        break;
      default:
        options.push_back(At(1'000'000 * static_cast<Nanoseconds>(1 + random() % 5),
                             static_cast<double>(1 + random() % 5)));
    }
  }
  return options;
}

class RandomCurves : public ::testing::Test {
 protected:
  template <typename Check>
  void ForEach(Check check) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 8000 && !HasFailure(); ++round) {
      SCOPED_TRACE(round);
      const std::vector<Option> options = RandomOptions(random);
      const double blocking_power_w = static_cast<double>(random() % 3) * 45.5;
      const Result<Curve> curve = LowerHull(options, blocking_power_w);
      ASSERT_TRUE(curve) << curve.error().Message();
      check(options, blocking_power_w, *curve);
    }
  }
};

TEST_F(RandomCurves, AreStrictlyConvexAndDecreasing) {
  ForEach([](const auto&, double, const Curve& curve) {
    ASSERT_EQ(curve.times.size(), curve.slopes.size() + 1);
    ASSERT_EQ(curve.times.size(), curve.options.size());
    EXPECT_TRUE(std::is_sorted(curve.times.begin(), curve.times.end(), std::less_equal<>()));
    EXPECT_TRUE(std::is_sorted(curve.slopes.begin(), curve.slopes.end(), std::greater_equal<>()));
    EXPECT_TRUE(curve.slopes.empty() || curve.slopes.back() > 0);
  });
}

TEST_F(RandomCurves, LieBelowEveryOption) {
  ForEach([](const auto& options, double blocking_power_w, const Curve& curve) {
    for (const Option& option : options) {
      if (option.time < curve.fastest()) continue;
      const double cost = EffectiveEnergy(option, blocking_power_w);
      const double bound =
          curve.least_effective_energy_j + ToJoules(curve.ExtraEnergyAt(option.time));
      // A double stores energies near 100 J to about 1e-14 J. Rounding to femtojoules adds less
      // than 1e-15 J.
      EXPECT_LE(bound, cost + 1e-13);
    }
  });
}

TEST_F(RandomCurves, TouchEveryVertexUpToTheRoundingOfSlopes) {
  ForEach([](const auto& options, double blocking_power_w, const Curve& curve) {
    Nanoseconds slowest_vertex = 0;
    for (const int front : ParetoFront(options, blocking_power_w)) {
      slowest_vertex = std::max(slowest_vertex, options[static_cast<std::size_t>(front)].time);
    }
    for (std::size_t j = 0; j < curve.times.size(); ++j) {
      const Option& option = options.at(static_cast<std::size_t>(curve.options[j]));
      EXPECT_EQ(option.time, curve.times[j]);
      const double cost = EffectiveEnergy(option, blocking_power_w);
      const double bound =
          curve.least_effective_energy_j + ToJoules(curve.ExtraEnergyAt(option.time));
      // Each slope is computed from the cheapest option, and rounded down by less than a microwatt.
      EXPECT_GE(bound, cost - 1e-6 * ToSeconds(slowest_vertex - option.time) - 1e-13);
    }
  });
}

TEST_F(RandomCurves, StartAtTheFastestOptionAndHaveNoDominatedVertex) {
  ForEach([](const auto& options, double blocking_power_w, const Curve& curve) {
    const auto is_faster = [](const Option& a, const Option& b) { return a.time < b.time; };
    EXPECT_EQ(curve.fastest(), std::min_element(options.begin(), options.end(), is_faster)->time);
    for (const int vertex : curve.options) {
      const Option& chosen = options[static_cast<std::size_t>(vertex)];
      const double cost = EffectiveEnergy(chosen, blocking_power_w);
      for (const Option& other : options) {
        const double other_cost = EffectiveEnergy(other, blocking_power_w);
        EXPECT_FALSE(other.time <= chosen.time && other_cost < cost);
        EXPECT_FALSE(other.time < chosen.time && other_cost <= cost);
      }
    }
  });
}

}  // namespace
}  // namespace perseus::profile
