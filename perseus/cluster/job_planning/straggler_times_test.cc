#include "perseus/cluster/job_planning/straggler_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::job_planning {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

store::StragglerRecord Straggler(int pipeline, double slowdown, Milliseconds starts,
                                 Milliseconds expires,
                                 store::StragglerSource source = store::StragglerSource::kReport) {
  return {.job = "j",
          .dp_rank = pipeline,
          .source = source,
          .slowdown = slowdown,
          .starts = starts,
          .expires = expires};
}

TEST(SlowdownsAt, AStragglerLastsFromItsStartToItsEnd) {
  const std::vector<store::StragglerRecord> stragglers{Straggler(1, 1.25, 1000, 2000)};
  EXPECT_THAT(SlowdownsAt(stragglers, 4, 999), IsEmpty());
  EXPECT_THAT(SlowdownsAt(stragglers, 4, 1000), ElementsAre(Pair(1, 1.25)));
  EXPECT_THAT(SlowdownsAt(stragglers, 4, 1999), ElementsAre(Pair(1, 1.25)));
  EXPECT_THAT(SlowdownsAt(stragglers, 4, 2000), IsEmpty());
}

TEST(SlowdownsAt, AStragglerWithoutAnEndLasts) {
  EXPECT_THAT(SlowdownsAt(std::vector{Straggler(0, 1.1, 0, 0)}, 2, Milliseconds::Max()),
              ElementsAre(Pair(0, 1.1)));
}

TEST(SlowdownsAt, TheLargestOfSeveralSourcesCounts) {
  const std::vector<store::StragglerRecord> stragglers{
      Straggler(0, 1.1, 0, 0), Straggler(0, 1.3, 0, 0, store::StragglerSource::kDetected),
      Straggler(0, 1.2, 0, 0, store::StragglerSource::kForecast)};
  EXPECT_THAT(SlowdownsAt(stragglers, 2, 5), ElementsAre(Pair(0, 1.3)));
}

TEST(SlowdownsAt, IgnoresUnknownPipelinesAndSlowdownsOf1) {
  EXPECT_THAT(SlowdownsAt(std::vector{Straggler(7, 1.3, 0, 0), Straggler(1, 1, 0, 0)}, 2, 5),
              IsEmpty());
}

TEST(FactorsOf, TheSlowestPipelineKeepsItsPlan) {
  EXPECT_THAT(FactorsOf({{1, 1.25}}, 3), ElementsAre(DoubleEq(1.25), 1, DoubleEq(1.25)));
  EXPECT_THAT(FactorsOf({}, 2), ElementsAre(1, 1));
}

TEST(FactorsOf, ASmallerStragglerIsSlowedByTheRest) {
  EXPECT_THAT(FactorsOf({{0, 1.2}, {2, 1.5}}, 3), ElementsAre(DoubleEq(1.25), DoubleEq(1.5), 1));
}

TEST(FactorsOf, RoundsDownToHalfPercents) {
  EXPECT_THAT(FactorsOf({{0, 1.2549}}, 2), ElementsAre(1, DoubleEq(1.25)));
  EXPECT_THAT(FactorsOf({{0, 1.004}}, 2), ElementsAre(1, 1));
}

TEST(NextChange, IsTheNextStartOrEnd) {
  const std::vector<store::StragglerRecord> stragglers{Straggler(0, 1.2, 1000, 5000),
                                                       Straggler(1, 1.2, 3000, 0)};
  EXPECT_EQ(NextChange(stragglers, 0), 1000);
  EXPECT_EQ(NextChange(stragglers, 1000), 3000);
  EXPECT_EQ(NextChange(stragglers, 3000), 5000);
  EXPECT_EQ(NextChange(stragglers, 5000), std::nullopt);
}

}  // namespace
}  // namespace perseus::job_planning
