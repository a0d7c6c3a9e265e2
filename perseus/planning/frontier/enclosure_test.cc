#include "perseus/planning/frontier/enclosure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "perseus/planning/frontier/deadline.h"
#include "tests/support/make_network.h"
#include "tests/support/seeds.h"

namespace perseus::frontier {
namespace {

// All instructions of a layer wait for all instructions of the previous layer.
using Layer = std::vector<profile::Curve>;
Network LayeredNetwork(const std::vector<Layer>& layers) {
  std::vector<profile::Curve> curves;
  std::vector<schedule::Dependency> dependencies;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto begin = static_cast<std::int32_t>(curves.size());
    const auto before = i == 0 ? begin : begin - static_cast<std::int32_t>(layers[i - 1].size());
    curves.insert(curves.end(), layers[i].begin(), layers[i].end());
    for (std::int32_t a = before; a < begin; ++a) {
      for (std::int32_t b = begin; b < static_cast<std::int32_t>(curves.size()); ++b) {
        dependencies.push_back({a, b});
      }
    }
  }
  return MakeNetwork(curves, dependencies);
}

// Checks the bounds from the fastest to the slowest time.
void ExpectEncloses(const Network& network, Femtojoules most_error) {
  const auto time_at = [&](Pace pace) {
    return EarliestTimes(network, pace)[static_cast<std::size_t>(network.sink)];
  };
  const Nanoseconds least = time_at(Pace::kFastest);
  const Nanoseconds most = time_at(Pace::kSlowest);
  const std::vector<Solution> ends = {*SolveDeadline(network, least),
                                      *SolveDeadline(network, most)};
  const auto points = EncloseFrontier(network, ends, most_error, {}, {});
  ASSERT_TRUE(points) << points.error().Message();
  for (const EnclosedPoint& point : *points) {
    const Femtojoules exact = SolveDeadline(network, point.time)->extra_energy;
    EXPECT_LE(point.lower, exact) << point.time;
    EXPECT_GE(point.upper, exact) << point.time;
    // Times and prices are rounded.
    EXPECT_LE(point.upper - point.lower, most_error + point.price * 1 + (most - least))
        << point.time;
  }
}

// With such small flows, the rounding error of a mean is as large as a flow.
TEST(EncloseFrontier, EnclosesFlowsOfAFewMicrowatts) {
  for (std::uint64_t seed = 0; seed < Seeds(200); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto from_to = [&](std::int64_t least, std::int64_t most) {
      return std::uniform_int_distribution<std::int64_t>(least, most)(random);
    };
    std::vector<Layer> layers;
    for (int i = 0; i < 9; ++i) {
      Layer layer;
      const Nanoseconds fastest = from_to(10, 20);
      for (std::int64_t width = i % 2 == 0 ? 1 : from_to(2, 12); width > 0; --width) {
        const Nanoseconds middle = fastest + from_to(5, 10);
        const Microwatts gentle(from_to(1, 2));
        layer.push_back({{fastest, middle, middle + from_to(5, 10)}, {gentle + 1, gentle}, {}, 0});
      }
      layers.push_back(std::move(layer));
    }
    ExpectEncloses(LayeredNetwork(layers), 4);
  }
}

// In each of 12 instructions, the mean of 0 and 1 uW is rounded to 0. So 6 uW are missing at the
// node where 6 instructions with 1 uW begin. This is more than the flow of any of these
// instructions.
TEST(EncloseFrontier, EnclosesWhereTheRoundingExceedsAnyFlow) {
  const Layer one = {Fixed(10)};
  const Layer many(12, profile::Curve{{10, 40}, {1}, {}, 0});
  const Layer fewer(6, profile::Curve{{10, 40}, {2}, {}, 0});
  ExpectEncloses(LayeredNetwork({many, one, fewer}), 1);
}

}  // namespace
}  // namespace perseus::frontier
