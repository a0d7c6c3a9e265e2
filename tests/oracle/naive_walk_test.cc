// Compares the walk with the textbook algorithm that bench/ measures its speed against.
#include "bench/naive_walk.h"

#include <gtest/gtest.h>

#include "bench/measured_job.h"
#include "perseus/planning/frontier/walk.h"
#include "tests/oracle/random_network.h"
#include "tests/support/seeds.h"

namespace perseus {
namespace {

std::vector<FrontierVertex> FrontierOf(const frontier::Network& network) {
  frontier::Walk walk(network);
  std::vector<FrontierVertex> frontier = {{walk.time(), walk.extra_energy()}};
  while (!walk.finished()) {
    walk.Advance(0);
    frontier.push_back({walk.time(), walk.extra_energy()});
  }
  return frontier;
}

TEST(NaiveFrontier, EqualsTheWalkOnRandomNetworks) {
  for (std::uint64_t seed = 0; seed < Seeds(6000); ++seed) {
    const frontier::Network network = RandomNetwork(seed);
    ASSERT_TRUE(NaiveFrontier(network) == FrontierOf(network)) << "seed " << seed;
  }
}

TEST(NaiveFrontier, EqualsTheWalkOnMeasuredJobs) {
  for (const MeasuredJob& job : kMeasuredJobs) {
    if (!std::filesystem::exists(ProfilePath(job))) {
      GTEST_SKIP() << ProfilePath(job)
                   << " is absent (set PERSEUS_SHARED_DIR to the folder of measurements)";
    }
    const Result<schedule::InstructionGraph> graph = ReadIteration(job, 24);
    ASSERT_TRUE(graph) << graph.error().message;
    const frontier::Network network = NetworkOf(*graph, job.blocking_power_w);
    const std::vector<FrontierVertex> frontier = FrontierOf(network);
    EXPECT_GT(frontier.size(), 100U);
    EXPECT_TRUE(NaiveFrontier(network) == frontier) << job.name;
  }
}

}  // namespace
}  // namespace perseus
