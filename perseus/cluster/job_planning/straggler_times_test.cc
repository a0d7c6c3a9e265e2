#include "perseus/cluster/job_planning/straggler_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::job_planning {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

store::StragglerRecord Said(int pipeline, double slowdown, store::Milliseconds starts,
                            store::Milliseconds expires, std::string source = "report") {
  return {.job = "j",
          .dp_rank = pipeline,
          .source = std::move(source),
          .slowdown = slowdown,
          .starts = starts,
          .expires = expires};
}

TEST(SlowdownsAt, CountWhileTheyLast) {
  const std::vector<store::StragglerRecord> said{Said(1, 1.25, 1000, 2000)};
  EXPECT_THAT(SlowdownsAt(said, 4, 999), IsEmpty());
  EXPECT_THAT(SlowdownsAt(said, 4, 1000), ElementsAre(Pair(1, 1.25)));
  EXPECT_THAT(SlowdownsAt(said, 4, 1999), ElementsAre(Pair(1, 1.25)));
  EXPECT_THAT(SlowdownsAt(said, 4, 2000), IsEmpty());
}

TEST(SlowdownsAt, OneThatNeverExpiresHolds) {
  EXPECT_THAT(SlowdownsAt(std::vector{Said(0, 1.1, 0, 0)}, 2, 1'000'000'000'000),
              ElementsAre(Pair(0, 1.1)));
}

TEST(SlowdownsAt, OfSeveralSourcesTheLargestCounts) {
  const std::vector<store::StragglerRecord> said{Said(0, 1.1, 0, 0), Said(0, 1.3, 0, 0, "detected"),
                                                 Said(0, 1.2, 0, 0, "forecast")};
  EXPECT_THAT(SlowdownsAt(said, 2, 5), ElementsAre(Pair(0, 1.3)));
}

TEST(SlowdownsAt, PipelinesThatAreNotThereAndNoSlowdownDoNotCount) {
  EXPECT_THAT(SlowdownsAt(std::vector{Said(7, 1.3, 0, 0), Said(1, 1, 0, 0)}, 2, 5), IsEmpty());
}

TEST(FactorsOf, TheSlowestKeepsItsPlanAndTheOthersWait) {
  EXPECT_THAT(FactorsOf({{1, 1.25}}, 3), ElementsAre(DoubleEq(1.25), 1, DoubleEq(1.25)));
  EXPECT_THAT(FactorsOf({}, 2), ElementsAre(1, 1));
}

TEST(FactorsOf, ALesserStragglerTakesWhatIsLeft) {
  EXPECT_THAT(FactorsOf({{0, 1.2}, {2, 1.5}}, 3), ElementsAre(DoubleEq(1.25), DoubleEq(1.5), 1));
}

TEST(FactorsOf, RoundsDownToHalfPercents) {
  EXPECT_THAT(FactorsOf({{0, 1.2549}}, 2), ElementsAre(1, DoubleEq(1.25)));
  EXPECT_THAT(FactorsOf({{0, 1.004}}, 2), ElementsAre(1, 1));
}

TEST(NextChange, IsTheNextBeginOrEnd) {
  const std::vector<store::StragglerRecord> said{Said(0, 1.2, 1000, 5000), Said(1, 1.2, 3000, 0)};
  EXPECT_EQ(NextChange(said, 0), 1000);
  EXPECT_EQ(NextChange(said, 1000), 3000);
  EXPECT_EQ(NextChange(said, 3000), 5000);
  EXPECT_EQ(NextChange(said, 5000), std::nullopt);
}

}  // namespace
}  // namespace perseus::job_planning
