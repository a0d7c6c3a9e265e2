#include "perseus/simulation/replay/rank_order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <tuple>

namespace perseus::replay {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobEvent Event(EventKind kind, Nanoseconds start, Nanoseconds end) {
  JobEvent event;
  event.kind = kind;
  event.start = start;
  event.duration = end - start;
  return event;
}

RecordedStep StepOf(std::vector<JobEvent> events) {
  std::ranges::stable_sort(events, {}, [](const JobEvent& event) {
    return std::tuple(event.dp_rank, event.pp_rank, event.start, event.end());
  });
  return {.number = 3, .start = 0, .time = 0, .events = std::move(events)};
}

//   0    10   20   30   40
//   [0 F ]    [2 B       ]
//        [1 send    ]         overlaps B by half of itself: B waits for F alone
//                        [3 gc]
TEST(RankOrder, WaitsForEventsThatHadEnded) {
  const auto order = OrderWithinRanks(
      StepOf({Event(EventKind::kForward, 0, 10), Event(EventKind::kForwardSend, 10, 31),
              Event(EventKind::kBackward, 20, 40), Event(EventKind::kLocal, 40, 45)}));
  ASSERT_TRUE(order) << order.error().message;
  EXPECT_THAT((*order)[0], IsEmpty());
  EXPECT_THAT((*order)[1], ElementsAre(0));
  EXPECT_THAT((*order)[2], ElementsAre(0));
  EXPECT_THAT((*order)[3], ElementsAre(2, 1));
}

TEST(RankOrder, RanksDoNotWaitForEachOther) {
  JobEvent other = Event(EventKind::kForward, 20, 30);
  other.pp_rank = 1;
  const auto order = OrderWithinRanks(StepOf({Event(EventKind::kForward, 0, 10), other}));
  ASSERT_TRUE(order) << order.error().message;
  EXPECT_THAT((*order)[1], IsEmpty());
}

TEST(RankOrder, OverlappingComputationsRunOneAfterTheOther) {
  const auto order =
      OrderWithinRanks(StepOf({Event(EventKind::kForward, 0, 10), Event(EventKind::kBackward, 1, 9),
                               Event(EventKind::kForward, 2, 8)}));
  ASSERT_TRUE(order) << order.error().message;
  EXPECT_THAT((*order)[1], ElementsAre(0));
  EXPECT_THAT((*order)[2], ElementsAre(1));
}

// Checks the definition for each pair: an event waits, directly or through others, for exactly the
// events that ended before it, and directly for none that another one implies.
TEST(RankOrderProperty, IsTheTransitiveReduction) {
  std::mt19937_64 random(3);
  constexpr EventKind kKinds[] = {EventKind::kForward, EventKind::kBackward, EventKind::kLocal,
                                  EventKind::kForwardSend};
  int edges = 0;
  for (int run = 0; run < 400; ++run) {
    SCOPED_TRACE(run);
    const std::size_t events = 2 + random() % 40;
    // In a short range many events overlap, many times are equal, and some durations are zero.
    const std::uint64_t length = 4 + random() % 200;
    std::vector<JobEvent> recorded;
    for (std::size_t i = 0; i < events; ++i) {
      const auto start = static_cast<Nanoseconds>(random() % length);
      const auto duration = static_cast<Nanoseconds>(random() % (run % 2 == 0 ? 6 : 60));
      recorded.push_back(Event(kKinds[random() % 4], start, start + duration));
    }
    const RecordedStep step = StepOf(std::move(recorded));
    const auto order = OrderWithinRanks(step);
    ASSERT_TRUE(order) << order.error().message;
    std::vector<std::vector<bool>> comes_after(events, std::vector<bool>(events, false));
    for (std::size_t i = 0; i < events; ++i) {
      for (const int waited : (*order)[i]) {
        const auto j = static_cast<std::size_t>(waited);
        ASSERT_LT(j, i);
        EXPECT_TRUE(IsAfter(step.events[j], step.events[i]));
        comes_after[i][j] = true;
        for (std::size_t k = 0; k < j; ++k) {
          if (comes_after[j][k]) comes_after[i][k] = true;
        }
        for (const int other : (*order)[i]) {
          if (other <= waited) continue;
          EXPECT_FALSE(IsAfter(step.events[j], step.events[static_cast<std::size_t>(other)]));
        }
        ++edges;
      }
      for (std::size_t j = 0; j < i; ++j) {
        if (IsAfter(step.events[j], step.events[i])) {
          EXPECT_TRUE(comes_after[i][j]) << j << " before " << i;
        }
      }
    }
  }
  EXPECT_GT(edges, 5000);
}

TEST(RankOrder, TooManyConcurrentEventsAreRefused) {
  std::vector<JobEvent> events;
  for (int i = 0; i < kMostConcurrentEvents; ++i)
    events.push_back(Event(EventKind::kLocal, i, 1000 + i));
  EXPECT_TRUE(OrderWithinRanks(StepOf(events)));
  events.push_back(Event(EventKind::kLocal, 500, 2000));
  const auto order = OrderWithinRanks(StepOf(events));
  ASSERT_FALSE(order);
  EXPECT_THAT(order.error().message, AllOf(HasSubstr("step 3"), HasSubstr("while 64 other events"),
                                           HasSubstr("fewer than 64")));
}

}  // namespace
}  // namespace perseus::replay
