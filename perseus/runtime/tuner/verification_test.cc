#include "perseus/runtime/tuner/verification.h"

#include <gmock/gmock.h>

#include "tests/support/simulated_job.h"

namespace perseus::tuner {
namespace {

using ::testing::HasSubstr;

class VerificationTest : public testing::Test {
 protected:
  VerificationTest() : job_({{0, 0, 0}, {0, 1, 0}, {1, 0, 0}}) {
    job_.cost = [](const protocol::Assignment& assignment) {
      return assignment.plan.empty() ? SimulatedJob::Cost{0.5, 100} : SimulatedJob::Cost{0.505, 90};
    };
    options_.job_directory = job_.directory();
    options_.plan = "a plan";
    options_.ranks = job_.ranks();
    options_.steps = 120;
    options_.timeout = 1'000'000'000;
    // The verifier calls this whenever it waits.
    options_.should_end = [this] {
      if (job_.steps() < last_step_) job_.RunStep();
      return false;
    };
  }
  Result<Verification> Run() { return Verify(options_, clock_); }

  SimulatedJob job_;
  VerificationOptions options_;
  std::int64_t last_step_ = 1'000'000;
  FakeClock clock_;
};

TEST_F(VerificationTest, FindsTheTruth) {
  const auto verified = Run();
  ASSERT_TRUE(verified) << verified.error().message;
  const profiler::Comparison& comparison = verified->comparison;
  // Two steps of each block of four count, in 15 pairs. The standard error of a mean time is
  // 0.001 / sqrt(30), and that of the ratio of two means sqrt(2) times as large, 0.00026. Energies
  // have the noise of time and of power. The tolerance is four standard errors.
  EXPECT_EQ(verified->layout.pairs, 15);
  EXPECT_NEAR(comparison.slowdown.estimate, 0.01, 0.0011);
  EXPECT_NEAR(comparison.saving.estimate, 0.1, 0.0015);
  EXPECT_LT(comparison.slowdown.upper - comparison.slowdown.lower, 0.004);
  EXPECT_EQ(comparison.saves, profiler::Verdict::kGreater);
  EXPECT_EQ(verified->left_out, 0);
  // The energies are sums over all three ranks.
  EXPECT_NEAR(verified->pairs.front().baseline_energy_j, 300, 3);
}

TEST_F(VerificationTest, TheFormerAssignmentIsRestored) {
  protocol::Assignment before;
  before.version = 5;
  before.plan = "plans/5.json";
  ASSERT_TRUE(protocol::WriteAssignment(job_.directory(), before));
  ASSERT_TRUE(Run());
  const auto after = protocol::ReadAssignment(job_.directory());
  EXPECT_EQ((*after)->plan, "plans/5.json");
  EXPECT_GT((*after)->version, 5);
}

TEST_F(VerificationTest, AJobThatEndsMeanwhileIsAnErrorAndLeavesNoPlan) {
  last_step_ = 60;
  const auto verified = Run();
  ASSERT_FALSE(verified);
  EXPECT_THAT(verified.error().message, HasSubstr("has the job ended?"));
  EXPECT_EQ((*protocol::ReadAssignment(job_.directory()))->plan, "");
}

// A job that was started with PERSEUS_PLAN continues with it. The last assignment would also expire
// if the verifier were killed.
TEST_F(VerificationTest, LeavesRanksWithTheirOwnPlans) {
  bool all_temporary = true;
  options_.should_end = [&] {
    const auto assignment = protocol::ReadAssignment(job_.directory());
    all_temporary = all_temporary && (!*assignment || (*assignment)->until_step);
    job_.RunStep();
    return false;
  };
  ASSERT_TRUE(Run());
  EXPECT_TRUE(all_temporary);
  EXPECT_TRUE((*protocol::ReadAssignment(job_.directory()))->own);
}

// The blocks were laid out for steps of half a second. If steps become shorter than the period of
// the counter, it is not enough to leave out one step at each end: windows that hold parts of both
// blocks would make the saving too small.
TEST_F(VerificationTest, BlocksTooShortForTheCounterAreLeftOut) {
  job_.cost = [this](const protocol::Assignment& assignment) {
    const SimulatedJob::Cost cost =
        assignment.plan.empty() ? SimulatedJob::Cost{0.5, 100} : SimulatedJob::Cost{0.505, 90};
    const double part = job_.steps() > 10 ? 0.12 : 1;
    return SimulatedJob::Cost{cost.time_s * part, cost.energy_j * part};
  };
  const auto verified = Run();
  ASSERT_FALSE(verified);
  EXPECT_THAT(verified.error().message, HasSubstr("only 0 of 15 pairs"));
  EXPECT_THAT(verified.error().message,
              HasSubstr("too short for the period of the energy counter"));
}

TEST_F(VerificationTest, RankThatDoesNotFollowIsNamed) {
  job_.ignoring = {{0, 1, 0}};
  const auto verified = Run();
  ASSERT_FALSE(verified);
  EXPECT_THAT(verified.error().message, HasSubstr("rank dp0-pp1-tp0 ran step"));
}

TEST_F(VerificationTest, ARankThatMayNotSetClocksIsAnErrorAtOnce) {
  protocol::RankHeader header;
  header.name = {0, 1, 0};
  header.host = "n7";
  header.pid = 1;
  job_.Announce(header);
  const auto verified = Run();
  ASSERT_FALSE(verified);
  EXPECT_THAT(verified.error().message,
              HasSubstr("rank dp0-pp1-tp0 may not set the clock of its GPU"));
  EXPECT_LT(job_.steps(), 10);
  EXPECT_FALSE(*protocol::ReadAssignment(job_.directory()));
}

TEST_F(VerificationTest, TooFewStepsAreAnErrorThatNamesTheNeededNumber) {
  options_.steps = 20;
  const auto verified = Run();
  ASSERT_FALSE(verified);
  EXPECT_EQ(verified.error().kind, ErrorKind::kUnreachable);
  // Six pairs of blocks have three steps each, of which the middle one counts.
  EXPECT_THAT(verified.error().message, HasSubstr("at least 36 are needed"));
  EXPECT_FALSE(*protocol::ReadAssignment(job_.directory()));
}

TEST_F(VerificationTest, EndsOnRequestWithTheFormerAssignment) {
  options_.should_end = [this] {
    job_.RunStep();
    return job_.steps() > 40;
  };
  const auto verified = Run();
  ASSERT_FALSE(verified);
  EXPECT_EQ(verified.error().message, EndedByRequest().message);
  EXPECT_EQ((*protocol::ReadAssignment(job_.directory()))->plan, "");
}

TEST(BlockLayoutTest, BlocksAreLongEnoughForCounterAndAssignment) {
  // With steps of 20 ms, each side leaves out 6 for the counter and its reading, and 50 until the
  // assignment is read.
  const auto layout = LayOutBlocks(10'000, 0.02, 0.1, 0.95);
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->front, 6);
  EXPECT_EQ(layout->back, 6);
  EXPECT_GE(layout->length, 50);
  EXPECT_LE(layout->steps(), 10'000);
}

}  // namespace
}  // namespace perseus::tuner
