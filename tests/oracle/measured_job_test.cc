// Compares both solvers with CLP on the measured jobs, and on the example profile of this
// repository.
#include <gtest/gtest.h>

#include "bench/measured_job.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/frontier/walk.h"
#include "tests/oracle/linear_program.h"

namespace perseus {
namespace {

// Compares the walk along the frontier, the solver of one deadline, and the linear program, at 20,
// 10, 2 and 0 % above the least time.
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
    ASSERT_TRUE(solution) << solution.error().Message();
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

TEST(MeasuredJob, BothSolversAgreeWithTheLinearProgram) {
  for (const MeasuredJob& job : kMeasuredJobs) {
    for (const int microbatches : {12, 96}) {
      SCOPED_TRACE(testing::Message() << job.name << ", " << microbatches << " microbatches");
      const Result<schedule::InstructionGraph> graph = ReadIteration(job, microbatches);
      ASSERT_TRUE(graph) << graph.error().Message();
      ExpectSolversAgree(NetworkOf(*graph, job.blocking_power_w));
    }
  }
}

TEST(ExampleJob, BothSolversAgreeWithTheLinearProgram) {
  constexpr double kBlockingPowerW = 83.64;
  for (const int microbatches : {12, 48}) {
    SCOPED_TRACE(testing::Message() << microbatches << " microbatches");
    const auto graph = ReadIterationOf(PERSEUS_SOURCE_DIR "/examples/gpt3-like_a100_pp8.csv",
                                       kBlockingPowerW, microbatches);
    ExpectSolversAgree(NetworkOf(*graph, kBlockingPowerW));
  }
}

}  // namespace
}  // namespace perseus
