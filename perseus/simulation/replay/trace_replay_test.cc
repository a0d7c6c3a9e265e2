#include "perseus/simulation/replay/trace_replay.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <random>
#include <tuple>

#include "tests/support/job_traces.h"

namespace perseus::replay {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The graph points into the trace.
struct TraceAndGraph {
  JobTrace trace;
  Result<TraceGraph> graph = Fail("not built");
};

std::unique_ptr<TraceAndGraph> ReadAndBuild(const std::vector<TracedEvent>& events) {
  auto read = std::make_unique<TraceAndGraph>();
  auto trace = ParseJobTrace(FormatTimeline(events), "t.json");
  EXPECT_TRUE(trace) << trace.error().Message();
  if (!trace) return read;
  read->trace = *std::move(trace);
  read->graph = BuildTraceGraph(read->trace);
  return read;
}

std::string ErrorOf(const std::vector<TracedEvent>& events) {
  const auto read = ReadAndBuild(events);
  return read->graph ? "no error" : read->graph.error().Message();
}

int Find(const StepGraph& graph, std::string_view name, int pipeline, int rank, int sequence = 0) {
  for (std::size_t i = 0; i < graph.step->events.size(); ++i) {
    const JobEvent& event = graph.step->events[i];
    if (KnownEvents()[static_cast<std::size_t>(event.name)].name == name &&
        event.dp_rank == pipeline && event.pp_rank == rank && event.sequence == sequence) {
      return static_cast<int>(i);
    }
  }
  ADD_FAILURE() << name << " is not there";
  return 0;
}

TEST(TraceReplay, GivesTheRecordedTimesOfEveryEvent) {
  for (const bool waits_are_recorded : {false, true}) {
    SCOPED_TRACE(waits_are_recorded);
    const auto read = ReadAndBuild(TwoPipelines({.waits_are_recorded = waits_are_recorded}));
    ASSERT_TRUE(read->graph) << read->graph.error().Message();
    const StepGraph& graph = read->graph->steps[0];
    const Replay replay = ReplayStep(graph, graph.durations);
    EXPECT_EQ(replay.time, 131 * kMillisecond);
    for (std::size_t i = 0; i < graph.step->events.size(); ++i) {
      EXPECT_EQ(replay.ends[i], graph.step->events[i].end())
          << Describe(graph.step->events[i], graph.step->number);
    }
  }
}

TEST(TraceReplay, TransfersBeginWithTheLastMember) {
  const auto read = ReadAndBuild(TwoPipelines({.waits_are_recorded = true}));
  ASSERT_TRUE(read->graph) << read->graph.error().Message();
  const StepGraph& graph = read->graph->steps[0];
  for (std::size_t i = 0; i < graph.durations.size(); ++i) {
    const EventKind kind = graph.step->events[i].kind;
    if (IsTransfer(kind)) {
      EXPECT_EQ(graph.durations[i], kMillisecond);
    }
    if (kind == EventKind::kDataParallel) {
      EXPECT_EQ(graph.durations[i], 5 * kMillisecond);
    }
  }
}

TEST(TraceReplay, APipelineAloneWaitsForNoOther) {
  const auto read = ReadAndBuild(TwoPipelines());
  ASSERT_TRUE(read->graph) << read->graph.error().Message();
  const StepGraph& graph = read->graph->steps[0];
  // Rank 0 ends at 93. The collectives and the optimizer take 5 + 1 + 2 ms.
  EXPECT_THAT(ReplayPipelinesAlone(graph, graph.durations),
              testing::ElementsAre(101 * kMillisecond, 131 * kMillisecond));
}

TEST(TraceReplay, OtherDurationsMoveTheEventsThatWait) {
  const auto read = ReadAndBuild(TwoPipelines());
  ASSERT_TRUE(read->graph) << read->graph.error().Message();
  const StepGraph& graph = read->graph->steps[0];
  std::vector<Nanoseconds> durations = graph.durations;
  const auto backward = static_cast<std::size_t>(Find(graph, "backward-compute", 0, 0, 1));
  // The last backward of pipeline 0 has a slack of 30 ms until pipeline 1 arrives.
  durations[backward] += 30 * kMillisecond;
  EXPECT_EQ(ReplayStep(graph, durations).time, 131 * kMillisecond);
  durations[backward] += 1;
  EXPECT_EQ(ReplayStep(graph, durations).time, 131 * kMillisecond + 1);
}

TEST(TraceReplay, EventsThatWerePostedTogetherRunTogether) {
  const auto read = ReadAndBuild(TwoPipelines());
  ASSERT_TRUE(read->graph) << read->graph.error().Message();
  const StepGraph& graph = read->graph->steps[0];
  const int send = Find(graph, "forward-send", 0, 0, 1);
  const int receive = Find(graph, "backward-recv", 0, 0, 0);
  // Each waits for its meeting, which waits for the second forward of rank 0 and the first backward
  // of rank 1.
  for (const int transfer : {send, receive}) {
    ASSERT_EQ(graph.waits_of(transfer).size(), 1U);
    const int meeting = graph.waits_of(transfer).front();
    EXPECT_TRUE(graph.is_meeting(meeting));
    EXPECT_THAT(graph.waits_of(meeting),
                testing::UnorderedElementsAre(Find(graph, "forward-compute", 0, 0, 1),
                                              Find(graph, "backward-compute", 0, 1, 0)));
  }
}

// Each member waits for one meeting, which waits for each member once. Members do not wait for each
// other.
TEST(TraceReplay, ACollectiveNeedsAtMostTwoEdgesPerMember) {
  constexpr int kPipelines = 40;
  std::vector<TracedEvent> events;
  for (int p = 0; p < kPipelines; ++p) {
    for (int r = 0; r < 2; ++r) {
      events.push_back({"forward-compute", p, r, 7, 0, 10, 0});
      events.push_back({"backward-compute", p, r, 7, 10, 20.0 + p, 0});
      events.push_back({"grads-sync", p, r, 7, 60, 61, -1});
      events.push_back({"optimizer-clip-main-grad", p, r, 7, 61, 62, -1});
    }
  }
  const auto read = ReadAndBuild(events);
  ASSERT_TRUE(read->graph) << read->graph.error().Message();
  const StepGraph& graph = read->graph->steps[0];
  EXPECT_EQ(graph.nodes(), graph.events() + 3);
  // A backward waits for its forward. The two collectives wait for their meetings, which wait for
  // their members.
  EXPECT_EQ(graph.waited.size(), kPipelines * 2U * 5);
  // The last backward ends at 59.
  EXPECT_EQ(ReplayStep(graph, graph.durations).time, 61 * kMillisecond);
}

// The host begins each step 4 ms late. Only the other steps show this.
TEST(TraceReplay, HostDelaysComeFromTheOtherSteps) {
  const auto read = ReadAndBuild(TwoPipelines({.steps = 3, .late_ms = 4}));
  ASSERT_TRUE(read->graph) << read->graph.error().Message();
  for (const StepGraph& graph : read->graph->steps) {
    EXPECT_EQ(graph.step->time, (1 + 4 + 131) * kMillisecond);
    EXPECT_EQ(ReplayStep(graph, graph.durations).time, graph.step->time);
    EXPECT_EQ(ReplayStep(graph, graph.durations, HostDelays::kNone).time, 132 * kMillisecond);
  }
  const auto alone = ReadAndBuild(TwoPipelines({.steps = 1, .late_ms = 4}));
  ASSERT_TRUE(alone->graph) << alone->graph.error().Message();
  EXPECT_EQ(ReplayStep(alone->graph->steps[0], alone->graph->steps[0].durations).time,
            132 * kMillisecond);
}

// A rank of one pipeline always waits 30 ms for something that the trace does not record. The other
// pipeline shows that the event does not need this time.
TEST(TraceReplay, AWaitOfOnePipelineIsNoHostDelay) {
  std::vector<TracedEvent> events = TwoPipelines({.steps = 3, .slowness = {1}});
  for (TracedEvent& event : events) {
    if (event.name == "optimizer" && event.dp_rank == 1 && event.pp_rank == 1) {
      event.start_ms += 30;
      event.end_ms += 30;
    }
  }
  for (TracedEvent& event : events) {
    event.start_ms += 40 * (event.step - 7);
    event.end_ms += 40 * (event.step - 7);
  }
  const auto read = ReadAndBuild(events);
  ASSERT_TRUE(read->graph) << read->graph.error().Message();
  const StepGraph& graph = read->graph->steps[1];
  EXPECT_EQ(graph.step->time, 131 * kMillisecond);
  EXPECT_EQ(ReplayStep(graph, graph.durations).time, 101 * kMillisecond);
}

TEST(TraceReplay, MissingCounterpartsAreNamed) {
  const auto without = [](auto drop) {
    std::vector<TracedEvent> events = TwoPipelines();
    std::erase_if(events, drop);
    return ErrorOf(events);
  };
  EXPECT_THAT(without([](auto& e) { return e.name == "forward-recv" && e.dp_rank == 1; }),
              AllOf(HasSubstr("(forward-send, dp_rank 1, pp_rank 0, step 7)"),
                    HasSubstr("pp_rank 1 has no forward-recv of seq_id 0")));
  EXPECT_THAT(without([](auto& e) { return e.name == "backward-send" && e.dp_rank == 0; }),
              AllOf(HasSubstr("(backward-recv, dp_rank 0, pp_rank 0, step 7)"),
                    HasSubstr("pp_rank 1 has no backward-send of seq_id 0")));
  EXPECT_THAT(without([](auto& e) {
                return e.name == "grads-reduce-scatter" && e.dp_rank == 1 && e.pp_rank == 1;
              }),
              AllOf(HasSubstr("(grads-reduce-scatter, dp_rank 0, pp_rank 1, step 7)"),
                    HasSubstr("dp_rank 1, pp_rank 1 does not take part")));
  EXPECT_THAT(without([](auto& e) {
                return e.name == "optimizer-clip-main-grad" && e.dp_rank == 0 && e.pp_rank == 1;
              }),
              HasSubstr("dp_rank 0, pp_rank 1 does not take part"));
}

TEST(TraceReplay, AClockAheadOfItsCounterpartIsNamed) {
  std::vector<TracedEvent> events = TwoPipelines();
  for (TracedEvent& event : events) {
    if (event.dp_rank != 0 || event.pp_rank != 1) continue;
    event.start_ms += 5;
    event.end_ms += 5;
  }
  EXPECT_THAT(ErrorOf(events), AllOf(HasSubstr("t.json: event"),
                                     HasSubstr("one of the clocks jumps"), HasSubstr("dp_rank 0")));
}

TEST(TraceReplay, AClockWithinTheToleranceIsAccepted) {
  std::vector<TracedEvent> events = TwoPipelines();
  for (TracedEvent& event : events) {
    if (event.dp_rank != 0 || event.pp_rank != 1) continue;
    event.start_ms += 0.3;
    event.end_ms += 0.3;
  }
  EXPECT_EQ(ErrorOf(events), "no error");
}

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
  ASSERT_TRUE(order) << order.error().Message();
  EXPECT_THAT((*order)[0], IsEmpty());
  EXPECT_THAT((*order)[1], ElementsAre(0));
  EXPECT_THAT((*order)[2], ElementsAre(0));
  EXPECT_THAT((*order)[3], ElementsAre(2, 1));
}

TEST(RankOrder, RanksDoNotWaitForEachOther) {
  JobEvent other = Event(EventKind::kForward, 20, 30);
  other.pp_rank = 1;
  const auto order = OrderWithinRanks(StepOf({Event(EventKind::kForward, 0, 10), other}));
  ASSERT_TRUE(order) << order.error().Message();
  EXPECT_THAT((*order)[1], IsEmpty());
}

TEST(RankOrder, OverlappingComputationsRunOneAfterTheOther) {
  const auto order =
      OrderWithinRanks(StepOf({Event(EventKind::kForward, 0, 10), Event(EventKind::kBackward, 1, 9),
                               Event(EventKind::kForward, 2, 8)}));
  ASSERT_TRUE(order) << order.error().Message();
  EXPECT_THAT((*order)[1], ElementsAre(0));
  EXPECT_THAT((*order)[2], ElementsAre(1));
}

// Checks the definition for each pair. An event waits, directly or indirectly, for exactly the
// events that ended before it. It waits directly only for events that no other of its waits
// implies.
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
    ASSERT_TRUE(order) << order.error().Message();
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
  EXPECT_THAT(
      order.error().Message(),
      AllOf(HasSubstr("step 3"), HasSubstr("while 64 other events"), HasSubstr("fewer than 64")));
}

}  // namespace
}  // namespace perseus::replay
