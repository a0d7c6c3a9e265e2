#include "perseus/runtime/tuner/edge_microbatches.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "perseus/base/random.h"
#include "tests/support/temporary_directory.h"

namespace perseus::tuner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// One rank runs steps of 8 microbatches: all forwards, then all backwards. Durations vary by 2 %,
// and one in 25 is twice as long, as on an H100.
class EdgeMicrobatchesTest : public testing::Test {
 protected:
  static constexpr int kMicrobatches = 8;
  static constexpr int kSteps = 12;

  double first_backward_ = 1;  // Factors on durations.
  double last_backward_ = 1;
  int forward_mhz_ = 1400;
  int microbatches_ = kMicrobatches;

  EdgeMicrobatches Measured(std::uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    const TemporaryDirectory directory;
    std::filesystem::create_directory(directory / "ranks");
    protocol::RankHeader header;
    header.name = {0, 2, 0};
    std::string text = protocol::FormatRecord(header);
    Nanoseconds now = 0;
    for (int number = 0; number < kSteps; ++number) {
      protocol::RanStep step;
      step.step = number;
      step.begin = now;
      const auto run = [&](InstructionKind kind, int microbatch, double milliseconds, int mhz) {
        const double factor = (1 + 0.02 * Normal(random)) * (Uniform(random) < 0.04 ? 2 : 1);
        const Nanoseconds duration = ToNanoseconds(milliseconds * factor / 1000);
        step.instructions.push_back({kind, microbatch, 0, now - step.begin, duration, mhz});
        now += duration;
      };
      for (int i = 0; i < microbatches_; ++i) run(InstructionKind::kForward, i, 20, forward_mhz_);
      for (int i = 0; i < microbatches_; ++i) {
        const double factor = i == 0                   ? first_backward_
                              : i + 1 == microbatches_ ? last_backward_
                                                       : 1;
        run(InstructionKind::kBackward, i, 40 * factor, 1400);
      }
      step.end = now;
      text += protocol::FormatRecord(step);
      now += kMillisecond;
    }
    std::ofstream(protocol::RankLogPath(directory.path(), header.name)) << text;
    auto logs = JobLogs::Open(directory.path(), JobLogs::Job::kIsOver).value();
    EdgeMicrobatches edges;
    edges.Add(logs, {header.name}, 0, kSteps - 1);
    return edges;
  }
};

TEST_F(EdgeMicrobatchesTest, FindsWhatDiffersByMoreThanTheNoise) {
  first_backward_ = 0.92;
  last_backward_ = 1.3;
  const auto differences = Measured().Differences();
  ASSERT_THAT(differences, SizeIs(2));
  EXPECT_EQ(differences[0].group, (EdgeGroup{2, 0, InstructionKind::kBackward, Edge::kFirst}));
  // The standard error of a median of 12 values with the deviation 2.2 % is 0.8 %. The tolerance is
  // four of them.
  EXPECT_NEAR(differences[0].relative, -0.08, 0.032);
  EXPECT_EQ(differences[1].group, (EdgeGroup{2, 0, InstructionKind::kBackward, Edge::kLast}));
  EXPECT_NEAR(differences[1].relative, 0.3, 0.032);
  EXPECT_NEAR(differences[1].difference_s, 0.012, 0.0013);
  EXPECT_EQ(differences[1].samples, kSteps);
  const std::string text = DescribeEdges(differences);
  EXPECT_THAT(text, AllOf(HasSubstr("others: the last backward of pp_rank 2 takes "),
                          HasSubstr(", the first backward of pp_rank 2 takes ")));
}

// 400 groups without a difference.
TEST_F(EdgeMicrobatchesTest, NoiseIsNoDifference) {
  std::size_t found = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) found += Measured(seed).Differences().size();
  EXPECT_LE(found, 4U);
  EXPECT_EQ(DescribeEdges({}), "");
}

TEST_F(EdgeMicrobatchesTest, OnlyStepsAtOneClockWithEnoughMicrobatchesCount) {
  first_backward_ = 2;
  forward_mhz_ = 1200;
  EXPECT_THAT(Measured().Differences(), IsEmpty());
  forward_mhz_ = 1400;
  EXPECT_THAT(Measured().Differences(), Not(IsEmpty()));
  microbatches_ = 4;
  EXPECT_THAT(Measured().Differences(), IsEmpty());
}

TEST(DescribeEdgesTest, NamesTheLargestDifferencesFirst) {
  std::vector<EdgeDifference> differences;
  for (int i = 1; i <= 6; ++i) {
    differences.push_back({{0, i, InstructionKind::kForward, Edge::kFirst}, -0.01 * i, -0.001 * i});
  }
  EXPECT_EQ(
      DescribeEdges(differences),
      "microbatches at the edges of a step differ from the others: the first forward of "
      "pp_rank 0 on chunk 6 takes 6.0 % less (6 ms), the first forward of pp_rank 0 on chunk "
      "5 takes 5.0 % less (5 ms), the first forward of pp_rank 0 on chunk 4 takes 4.0 % less "
      "(4 ms), the first forward of pp_rank 0 on chunk 3 takes 3.0 % less (3 ms), and 2 more; "
      "plans use one time for all microbatches of a kind");
}

}  // namespace
}  // namespace perseus::tuner
