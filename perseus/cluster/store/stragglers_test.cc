// Tests stragglers, with every database.
#include "tests/support/store_fixture.h"

namespace perseus::store {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class StoreStragglersTest : public StoreTest {};

INSTANTIATE_TEST_SUITE_P(Every, StoreStragglersTest, kBackends, NameOf);

TEST_P(StoreStragglersTest, EachSourceHasOneStragglerOfAPipeline) {
  StragglerRecord straggler = {
      .job = job_, .dp_rank = 1, .source = StragglerSource::kReport, .slowdown = 1.25};
  Succeed(store_->PutStraggler(straggler, 100));
  EXPECT_EQ(Job().generation, 1);
  EXPECT_EQ(Get(store_->NextPlanningTime()), 100);
  straggler.slowdown = 1.5;
  Succeed(store_->PutStraggler(straggler, 200));
  StragglerRecord forecast = straggler;
  forecast.source = StragglerSource::kForecast;
  Succeed(store_->PutStraggler(forecast, 300));
  EXPECT_THAT(Get(store_->ListStragglers(job_)), ElementsAre(forecast, straggler));
  EXPECT_EQ(Job().generation, 3);

  EXPECT_TRUE(Get(store_->DeleteStraggler(job_, 1, StragglerSource::kReport, 400)));
  EXPECT_FALSE(Get(store_->DeleteStraggler(job_, 1, StragglerSource::kReport, 400)));
  EXPECT_EQ(Job().generation, 4);
  EXPECT_THAT(Get(store_->ListStragglers(job_)), ElementsAre(forecast));
}

TEST_P(StoreStragglersTest, EndedStragglersAreHistory) {
  StragglerRecord straggler = {
      .job = job_, .dp_rank = 1, .source = StragglerSource::kReport, .slowdown = 1.25};
  straggler.expires = 1'000;
  Succeed(store_->PutStraggler(straggler, 100));
  EXPECT_THAT(Get(store_->ListPastStragglers(job_, 10)), IsEmpty());
  straggler.slowdown = 1.5;
  Succeed(store_->PutStraggler(straggler, 200));
  EXPECT_TRUE(Get(store_->DeleteStraggler(job_, 1, StragglerSource::kReport, 300)));
  straggler.slowdown = 1.75;
  Succeed(store_->PutStraggler(straggler, 400));
  EXPECT_TRUE(Get(store_->DeleteStraggler(job_, 1, StragglerSource::kReport, 5'000)));
  const auto past = Get(store_->ListPastStragglers(job_, 10));
  ASSERT_EQ(past.size(), 3U);
  EXPECT_EQ(past[0], (PastStragglerRecord{1, StragglerSource::kReport, 1.75, 0, 1'000, 0,
                                          StragglerEnd::kExpired}));
  EXPECT_EQ(past[1], (PastStragglerRecord{1, StragglerSource::kReport, 1.5, 0, 300, 0,
                                          StragglerEnd::kWithdrawn}));
  EXPECT_EQ(past[2], (PastStragglerRecord{1, StragglerSource::kReport, 1.25, 0, 200, 0,
                                          StragglerEnd::kReplaced}));
  for (int i = 0; i < 2 * Store::kMaxPastStragglers; ++i) {
    straggler.slowdown = 2 + i;
    Succeed(store_->PutStraggler(straggler, 6'000));
  }
  EXPECT_EQ(Get(store_->ListPastStragglers(job_, 1'000)).size(),
            static_cast<std::size_t>(Store::kMaxPastStragglers));
}

// Sends twelve notices in 24 s. Without damping, each notice would make an assignment.
TEST_P(StoreStragglersTest, FlappingNoticesAreDamped) {
  constexpr Milliseconds kStart = 1'000'000;
  int plannings = 0;
  for (int time = 0; time < 24'000; time += 100) {
    const Milliseconds now = kStart + time;
    if (time % 2'000 == 0) {
      const int notice = time / 2'000;
      Succeed(store_->PutStraggler({.job = job_,
                                    .dp_rank = 0,
                                    .source = StragglerSource::kReport,
                                    .slowdown = notice % 2 == 0 ? 1.5 : 1.1,
                                    .starts = now,
                                    .expires = now + 3'600'000},
                                   now));
    }
    if (const auto task = Get(store_->ClaimPlanning("worker", now, 10'000))) {
      ++plannings;
      EXPECT_TRUE(Get(store_->CompletePlanning(*task, {.generation = Job().generation}, now)));
    }
  }
  EXPECT_GE(plannings, 3) << "the first changes take effect at once";
  EXPECT_LE(plannings, 5);
  EXPECT_TRUE(Get(store_->NextPlanningTime())) << "the newest notice will be planned";
  // The planning for a detected straggler does not wait.
  Succeed(store_->PutStraggler(
      {.job = job_, .dp_rank = 0, .source = StragglerSource::kDetected, .slowdown = 1.3},
      kStart + 24'000));
  EXPECT_TRUE(Get(store_->ClaimPlanning("worker", kStart + 24'000, 10'000)));
}

TEST_P(StoreStragglersTest, SuspendsAndReinstatesAStraggler) {
  StragglerRecord straggler = {.job = job_,
                               .dp_rank = 1,
                               .source = StragglerSource::kReport,
                               .slowdown = 1.5,
                               .expires = 10'000};
  Succeed(store_->PutStraggler(straggler, 100));
  StragglerRecord suspended = straggler;
  suspended.suspended = 200;
  suspended.measured = 1.01;
  Succeed(store_->MarkStraggler(suspended, 200));
  EXPECT_THAT(Get(store_->ListStragglers(job_)), ElementsAre(suspended));
  EXPECT_EQ(Job().generation, 2);
  Succeed(store_->MarkStraggler(suspended, 250));
  EXPECT_EQ(Job().generation, 2) << "it is suspended already";
  const auto trail = Get(store_->ListAudit({.action = "straggler.suspend"}));
  ASSERT_EQ(trail.size(), 1U);
  EXPECT_EQ(trail[0].subject, "pipeline 1 report");
  EXPECT_EQ(trail[0].after, R"({"slowdown":1.5,"suspended":true,"measured":1.01})");
  EXPECT_EQ(trail[0].by.role, std::nullopt);
  suspended.expires = 20'000;
  Succeed(store_->PutStraggler({.job = job_,
                                .dp_rank = 1,
                                .source = StragglerSource::kReport,
                                .slowdown = 1.5,
                                .starts = 300,
                                .expires = 20'000},
                               300));
  EXPECT_THAT(Get(store_->ListStragglers(job_)), ElementsAre(suspended))
      << "the same notice again does not count either";
  StragglerRecord other = straggler;
  other.slowdown = 1.6;
  Succeed(store_->PutStraggler(other, 400));
  EXPECT_THAT(Get(store_->ListStragglers(job_)), ElementsAre(other)) << "another one does";
  Succeed(store_->MarkStraggler({.job = job_,
                                 .dp_rank = 1,
                                 .source = StragglerSource::kReport,
                                 .slowdown = 1.5,
                                 .suspended = 500},
                                500));
  EXPECT_THAT(Get(store_->ListStragglers(job_)), ElementsAre(other)) << "that one is gone";
}

TEST_P(StoreStragglersTest, ExtendsAStraggler) {
  StragglerRecord straggler = {.job = job_,
                               .dp_rank = 1,
                               .source = StragglerSource::kDetected,
                               .slowdown = 1.1,
                               .starts = 100,
                               .expires = 200};
  Succeed(store_->PutStraggler(straggler, 100));
  ASSERT_EQ(Job().generation, 1);
  const auto put = [&](Milliseconds starts, Milliseconds expires, Milliseconds now) {
    StragglerRecord again = straggler;
    again.starts = starts;
    again.expires = expires;
    Succeed(store_->PutStraggler(again, now));
    return Job().generation;
  };
  EXPECT_EQ(put(150, 250, 150), 1);
  StragglerRecord extended = straggler;
  extended.expires = 250;
  EXPECT_THAT(Get(store_->ListStragglers(job_)), ElementsAre(extended))
      << "the start does not change";
  EXPECT_EQ(put(160, 240, 160), 2) << "an earlier end";
  EXPECT_EQ(put(180, 300, 170), 3) << "a later start";
  EXPECT_EQ(put(310, 400, 310), 4) << "the first one was over";
  EXPECT_EQ(put(320, 0, 320), 4) << "no end";
  EXPECT_EQ(put(330, 500, 330), 5) << "an end instead of none";
  straggler.slowdown = 1.2;
  EXPECT_EQ(put(340, 600, 340), 6);
}

}  // namespace
}  // namespace perseus::store
