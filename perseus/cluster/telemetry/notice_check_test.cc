#include "perseus/cluster/telemetry/notice_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::telemetry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

store::StragglerRecord Notice(int dp_rank, double slowdown,
                              store::StragglerSource source = store::StragglerSource::kReport) {
  return {.job = "j", .dp_rank = dp_rank, .source = source, .slowdown = slowdown};
}

class NoticeCheckTest : public testing::Test {
 protected:
  // Adds the same step `count` times. Returns the changes.
  std::vector<NoticeChange> Steps(int count, const std::map<int, double>& ratios,
                                  const std::set<int>& detected = {}) {
    std::vector<NoticeChange> changes;
    for (int i = 0; i < count; ++i) {
      now_ += 1000;
      const auto of_step = check_.Add(ratios, detected, now_);
      changes.insert(changes.end(), of_step.begin(), of_step.end());
    }
    return changes;
  }

  NoticeCheck check_;
  Milliseconds now_ = 0;
};

TEST_F(NoticeCheckTest, AFalseNoticeIsSuspendedAfterAFewSteps) {
  check_.SetNotices({Notice(1, 1.5)});
  EXPECT_THAT(Steps(NoticeCheck::kToSuspend - 1, {{0, 1.0}, {1, 1.01}}), IsEmpty());
  EXPECT_THAT(Steps(1, {{0, 1.0}, {1, 1.01}}),
              ElementsAre(NoticeChange{1, store::StragglerSource::kReport, 1.5, true, 1.01}));
  EXPECT_THAT(Steps(20, {{0, 1.0}, {1, 1.01}}), IsEmpty()) << "once";
}

TEST_F(NoticeCheckTest, ATrueNoticeHolds) {
  check_.SetNotices({Notice(1, 1.5)});
  EXPECT_THAT(Steps(50, {{0, 1.0}, {1, 1.5}}), IsEmpty());
  EXPECT_THAT(Steps(50, {{0, 1.0}, {1, 1.3}}), IsEmpty())
      << "nearer to the notice than to the plan";
  // The pipeline is slow in one step of five.
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(Steps(4, {{0, 1.0}, {1, 1.0}}), IsEmpty());
    EXPECT_THAT(Steps(1, {{0, 1.0}, {1, 1.5}}), IsEmpty());
  }
}

// A profile that is 20 % too optimistic slows all pipelines equally, so no pipeline counts as slow.
TEST_F(NoticeCheckTest, ComparesWithHealthyPipelines) {
  check_.SetNotices({Notice(1, 1.2)});
  EXPECT_THAT(Steps(20, {{0, 1.2}, {1, 1.44}, {2, 1.2}}), IsEmpty());
  EXPECT_THAT(Steps(5, {{0, 1.2}, {1, 1.2}, {2, 1.2}}), ElementsAre(testing::_));
}

// Three of four pipelines are declared slow, and are slow. The lower median over all pipelines
// would be slow, too.
TEST_F(NoticeCheckTest, DeclaredAndDetectedPipelinesAreNoReference) {
  check_.SetNotices({Notice(0, 1.5), Notice(1, 1.5), Notice(2, 1.5)});
  EXPECT_THAT(Steps(20, {{0, 1.5}, {1, 1.5}, {2, 1.5}, {3, 1.0}}), IsEmpty());
  EXPECT_THAT(Steps(20, {{0, 1.5}, {1, 1.5}, {2, 1.5}, {3, 1.4}}, {3}), IsEmpty());
}

TEST_F(NoticeCheckTest, ASlowPipelineReinstatesItsNotice) {
  check_.SetNotices({Notice(1, 1.5)});
  ASSERT_THAT(Steps(5, {{0, 1.0}, {1, 1.0}}), ElementsAre(testing::_));
  store::StragglerRecord suspended = Notice(1, 1.5);
  suspended.suspended = now_;
  check_.SetNotices({suspended});
  EXPECT_THAT(Steps(NoticeCheck::kToReinstate - 1, {{0, 1.0}, {1, 1.5}}), IsEmpty());
  EXPECT_THAT(Steps(1, {{0, 1.0}, {1, 1.5}}),
              ElementsAre(NoticeChange{1, store::StragglerSource::kReport, 1.5, false, 1.5}));
}

TEST_F(NoticeCheckTest, EachSuspensionDoublesTheStepsToReinstate) {
  check_.SetNotices({Notice(1, 1.5)});
  int to_reinstate = NoticeCheck::kToReinstate;
  for (int round = 0; round < 8; ++round) {
    ASSERT_THAT(Steps(5, {{0, 1.0}, {1, 1.0}}), ElementsAre(testing::_));
    EXPECT_THAT(Steps(to_reinstate - 1, {{0, 1.0}, {1, 1.5}}), IsEmpty());
    ASSERT_THAT(Steps(1, {{0, 1.0}, {1, 1.5}}), ElementsAre(testing::_));
    to_reinstate = std::min(2 * to_reinstate, NoticeCheck::kMaxToReinstate);
  }
}

TEST_F(NoticeCheckTest, OnlyNoticesThatHoldAreChecked) {
  store::StragglerRecord later = Notice(1, 1.5);
  later.starts = 1'000'000;
  store::StragglerRecord over = Notice(1, 1.5, store::StragglerSource::kForecast);
  over.expires = 1;
  check_.SetNotices({later, over, Notice(1, 1.5, store::StragglerSource::kDetected)});
  EXPECT_THAT(Steps(20, {{0, 1.0}, {1, 1.0}}), IsEmpty());
}

TEST_F(NoticeCheckTest, ForecastsAreChecked) {
  check_.SetNotices({Notice(0, 1.2, store::StragglerSource::kForecast)});
  EXPECT_THAT(Steps(5, {{0, 1.0}, {1, 1.0}}),
              ElementsAre(NoticeChange{0, store::StragglerSource::kForecast, 1.2, true, 1.0}));
}

}  // namespace
}  // namespace perseus::telemetry
