#include "perseus/simulation/replay/trace_replay.h"

#include <gmock/gmock.h>

#include <memory>

#include "tests/support/job_traces.h"

namespace perseus::replay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The graph points into the trace.
struct TraceAndGraph {
  JobTrace trace;
  Result<TraceGraph> graph = Fail("not built");
};

std::unique_ptr<TraceAndGraph> ReadAndBuild(const std::vector<TracedEvent>& events) {
  auto read = std::make_unique<TraceAndGraph>();
  auto trace = ParseJobTrace(FormatTimeline(events), "t.json");
  EXPECT_TRUE(trace) << trace.error().message;
  if (!trace) return read;
  read->trace = *std::move(trace);
  read->graph = BuildTraceGraph(read->trace);
  return read;
}

std::string ErrorOf(const std::vector<TracedEvent>& events) {
  const auto read = ReadAndBuild(events);
  return read->graph ? "no error" : read->graph.error().message;
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
    ASSERT_TRUE(read->graph) << read->graph.error().message;
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
  ASSERT_TRUE(read->graph) << read->graph.error().message;
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
  ASSERT_TRUE(read->graph) << read->graph.error().message;
  const StepGraph& graph = read->graph->steps[0];
  // Rank 0 is done at 93; 5 + 1 + 2 ms of collectives and optimizer.
  EXPECT_THAT(ReplayPipelinesAlone(graph, graph.durations),
              testing::ElementsAre(101 * kMillisecond, 131 * kMillisecond));
}

TEST(TraceReplay, OtherDurationsMoveTheEventsThatWait) {
  const auto read = ReadAndBuild(TwoPipelines());
  ASSERT_TRUE(read->graph) << read->graph.error().message;
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
  ASSERT_TRUE(read->graph) << read->graph.error().message;
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
  ASSERT_TRUE(read->graph) << read->graph.error().message;
  const StepGraph& graph = read->graph->steps[0];
  EXPECT_EQ(graph.nodes(), graph.events() + 3);
  // A backward waits for its forward. The two collectives wait for their meetings, which wait for
  // their members.
  EXPECT_EQ(graph.waited.size(), kPipelines * 2U * 5);
  // The last backward ends at 59.
  EXPECT_EQ(ReplayStep(graph, graph.durations).time, 61 * kMillisecond);
}

// The host begins each step 4 ms late, which only the other steps reveal.
TEST(TraceReplay, HostDelaysComeFromTheOtherSteps) {
  const auto read = ReadAndBuild(TwoPipelines({.steps = 3, .late_ms = 4}));
  ASSERT_TRUE(read->graph) << read->graph.error().message;
  for (const StepGraph& graph : read->graph->steps) {
    EXPECT_EQ(graph.step->time, (1 + 4 + 131) * kMillisecond);
    EXPECT_EQ(ReplayStep(graph, graph.durations).time, graph.step->time);
    EXPECT_EQ(ReplayStep(graph, graph.durations, HostDelays::kNone).time, 132 * kMillisecond);
  }
  const auto alone = ReadAndBuild(TwoPipelines({.steps = 1, .late_ms = 4}));
  ASSERT_TRUE(alone->graph) << alone->graph.error().message;
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
  ASSERT_TRUE(read->graph) << read->graph.error().message;
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

}  // namespace
}  // namespace perseus::replay
