// Compares both solvers of perseus/planning/frontier with CLP on thousands of random networks.
#include "tests/oracle/linear_program.h"

#include <gtest/gtest.h>

#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/frontier/walk.h"
#include "tests/oracle/random_network.h"
#include "tests/support/seeds.h"

namespace perseus {
namespace {

ProgramUnits UnitsOf(Scale scale) {
  if (scale == Scale::kMeasured) return {.time = 1'000'000, .slope = 1'000'000};  // ms, W
  return {};
}

// CLP's dual values prove the walk's energy to 1 ppm, and never prove more than this energy. The
// rounding errors of doubles are a thousandth of 1 ppm: 1e-16 times a few hundred terms, each up to
// 1e4 times the result.
void ExpectAgreement(const frontier::Network& network, Nanoseconds deadline,
                     const ProgramUnits& units, double energy_j) {
  const LinearOptimum optimum = SolveLinearProgram(network, deadline, units);
  ASSERT_TRUE(optimum.solved);
  const double tolerance_j = 1e-6 * energy_j + optimum.slack_j;
  EXPECT_NEAR(optimum.proved_j, energy_j, tolerance_j);
  EXPECT_NEAR(optimum.objective_j, energy_j, tolerance_j);
}

TEST(LinearProgram, AgreesWithBothSolversOnRandomNetworks) {
  for (std::uint64_t seed = 0; seed < Seeds(3000); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Scale scale = kScales[seed % std::size(kScales)];
    const Shape shape = kShapes[seed / std::size(kScales) % std::size(kShapes)];
    const frontier::Network network = RandomNetwork(shape, scale, seed);
    const auto sink = static_cast<std::size_t>(network.sink);
    const Nanoseconds least = frontier::EarliestTimes(network, frontier::Pace::kFastest)[sink];
    const Nanoseconds longest = frontier::EarliestTimes(network, frontier::Pace::kSlowest)[sink];
    for (const int part : {0, 1, 3}) {  // Quarters of the time range, from the least time on.
      const Nanoseconds deadline = least + (longest - least) * part / 4;
      frontier::Walk walk(network);
      while (walk.time() > deadline) walk.Advance(deadline);
      const Result<frontier::Solution> solution = frontier::SolveDeadline(network, deadline);
      ASSERT_TRUE(solution) << solution.error().Message();
      ASSERT_TRUE(solution->extra_energy == walk.extra_energy());
      ExpectAgreement(network, deadline, UnitsOf(scale), ToJoules(walk.extra_energy()));
    }
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace perseus
