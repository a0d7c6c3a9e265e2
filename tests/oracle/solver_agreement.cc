#include "tests/oracle/solver_agreement.h"

#include <gtest/gtest.h>

#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/frontier/walk.h"
#include "tests/oracle/linear_program.h"

namespace perseus {

void ExpectSolversAgree(const frontier::Network& network) {
  const auto sink = static_cast<std::size_t>(network.sink);
  const Nanoseconds least = frontier::EarliestTimes(network, frontier::Pace::kFastest)[sink];
  frontier::Walk walk(network);
  for (const int slowdown_percent : {20, 10, 2, 0}) {
    SCOPED_TRACE(testing::Message() << slowdown_percent << " % above the least time");
    const Nanoseconds deadline = least + least * slowdown_percent / 100;
    while (walk.time() > deadline) walk.Advance(deadline);
    ASSERT_TRUE(frontier::CheckOptimality(network, walk.solution()));
    const Result<frontier::Solution> solution = frontier::SolveDeadline(network, deadline);
    ASSERT_TRUE(solution) << solution.error().message;
    ASSERT_TRUE(frontier::CheckOptimality(network, *solution));
    ASSERT_TRUE(solution->extra_energy == walk.extra_energy());

    const LinearOptimum optimum =
        SolveLinearProgram(network, deadline, {.time = 1'000'000, .slope = 1'000'000});
    ASSERT_TRUE(optimum.solved);
    const double energy_j = ToJoules(walk.extra_energy());
    EXPECT_NEAR(optimum.proved_j, energy_j, 1e-6 * energy_j);
    EXPECT_NEAR(optimum.objective_j, energy_j, 1e-6 * energy_j);
  }
}

}  // namespace perseus
