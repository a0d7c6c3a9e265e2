// Tests of traces of torch.profiler and of veScale's ndtimeline: the same job as in a timeline.
#include "perseus/simulation/replay/torch_profiler.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "perseus/simulation/replay/job_trace.h"
#include "perseus/simulation/replay/trace_replay.h"
#include "tests/support/job_traces.h"

namespace perseus::replay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool IsComputed(const TracedEvent& event) { return event.microbatch >= 0; }

// What torch.profiler writes for a rank of TwoPipelines, which has ranks 2 * dp_rank + pp_rank. Its
// GPU has the compute stream 7, and stream 20, on which the forwards communicate.
struct ProfileSpec {
  std::string category = "gpu_user_annotation";
  std::string prefix = "PP:";
  std::int64_t base_ns = 0;  // Times count from here.
  std::string groups = R"({"pg_desc": "mesh_pp", "ranks": [0, 1]})";
};

std::string FormatProfile(const std::vector<TracedEvent>& events, int rank,
                          const ProfileSpec& spec = {}) {
  std::string text =
      fmt::format(R"({{"schemaVersion": 1, "distributedInfo": {{"rank": {}, "pg_config": [{}]}},)"
                  R"("baseTimeNanoseconds": {}, "traceEvents": [)",
                  rank, spec.groups, 1'000'000'000'000'000'000 + spec.base_ns);
  const auto add = [&](const std::string& name, const std::string& category, int stream,
                       double start_ms, double end_ms) {
    text += fmt::format(
        R"({{"ph":"X","cat":"{}","name":"{}","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f}}},)",
        category, name, stream, start_ms * 1e3 - static_cast<double>(spec.base_ns) * 1e-3,
        (end_ms - start_ms) * 1e3);
  };
  add("ProfilerStep#7", "user_annotation", 1, 5000, 5500);
  add("aten::mm", "cpu_op", 1, 5000, 5001);
  for (const TracedEvent& event : events) {
    if (!IsComputed(event) || 2 * event.dp_rank + event.pp_rank != rank) continue;
    const bool is_forward = event.name == "forward-compute";
    const std::string name = fmt::format("{}{}{}{}", spec.prefix, event.pp_rank,
                                         is_forward ? "F" : "B", event.microbatch);
    add(name, "user_annotation", 1, 5000, 5001);
    add(name, spec.category, 7, 5000 + event.start_ms, 5000 + event.end_ms);
    if (is_forward) add(name, spec.category, 20, 5000 + event.start_ms, 5000 + event.end_ms);
    add(fmt::format("PP:{}SEND_F{}", event.pp_rank, event.microbatch), spec.category, 20, 5000,
        9000);
  }
  text.back() = ']';
  return text + R"(, "traceName": "x"})";
}

Result<JobTrace> ReadAll(const std::vector<std::string>& files) {
  const TraceReadOptions options;
  JobTraceReader reader(options);
  for (std::size_t i = 0; i < files.size(); ++i) {
    PERSEUS_RETURN_IF_ERROR(reader.Add(files[i], fmt::format("{}.json", i)));
  }
  return reader.Finish();
}

std::vector<std::string> ProfilesOfAllRanks(const std::vector<TracedEvent>& events,
                                            const ProfileSpec& spec = {}) {
  std::vector<std::string> files;
  for (int rank = 0; rank < 4; ++rank) files.push_back(FormatProfile(events, rank, spec));
  return files;
}

std::vector<JobEvent> ComputationsOf(const RecordedStep& step) {
  std::vector<JobEvent> events;
  std::ranges::copy_if(step.events, std::back_inserter(events),
                       [](const JobEvent& event) { return IsComputation(event.kind); });
  return events;
}

void ExpectTheComputationsOf(const std::vector<TracedEvent>& events,
                             const Result<JobTrace>& trace) {
  ASSERT_TRUE(trace) << trace.error().Message();
  const auto timeline = ParseJobTrace(FormatTimeline(events), "t.json");
  ASSERT_EQ(trace->steps.size(), timeline->steps.size());
  EXPECT_EQ(trace->pipelines, 2);
  EXPECT_EQ(trace->pp_ranks, 2);
  for (std::size_t i = 0; i < trace->steps.size(); ++i) {
    EXPECT_EQ(trace->steps[i].number, timeline->steps[i].number);
    const std::vector<JobEvent> expected = ComputationsOf(timeline->steps[i]);
    const std::vector<JobEvent> read = ComputationsOf(trace->steps[i]);
    ASSERT_EQ(read.size(), expected.size());
    for (std::size_t j = 0; j < read.size(); ++j) {
      EXPECT_EQ(read[j].kind, expected[j].kind);
      EXPECT_EQ(read[j].dp_rank, expected[j].dp_rank);
      EXPECT_EQ(read[j].pp_rank, expected[j].pp_rank);
      EXPECT_EQ(read[j].microbatch, expected[j].microbatch);
      EXPECT_EQ(read[j].start, expected[j].start);
      EXPECT_EQ(read[j].duration, expected[j].duration);
    }
  }
}

std::string ErrorOf(const std::vector<std::string>& files) {
  const auto trace = ReadAll(files);
  return trace ? "no error" : trace.error().Message();
}

TEST(TorchProfiler, FilesOfAllRanksAreOneTimeline) {
  const std::vector<TracedEvent> events = TwoPipelines({.steps = 3});
  std::vector<std::string> files = ProfilesOfAllRanks(events);
  ExpectTheComputationsOf(events, ReadAll(files));
  std::ranges::reverse(files);
  ExpectTheComputationsOf(events, ReadAll(files));
  files[1] = FormatProfile(events, 2, {.base_ns = 3'000'000'000});
  ExpectTheComputationsOf(events, ReadAll(files));
}

// Rank 1 of pipeline 0 cannot begin before rank 0 has computed its input.
TEST(TorchProfiler, AComputationWaitsForTheOneThatMakesItsInput) {
  const auto trace = ReadAll(ProfilesOfAllRanks(TwoPipelines({.steps = 3})));
  ASSERT_TRUE(trace) << trace.error().Message();
  const auto graph = BuildTraceGraph(*trace);
  ASSERT_TRUE(graph) << graph.error().Message();
  for (const StepGraph& step : graph->steps) {
    std::vector<Nanoseconds> durations = step.durations;
    EXPECT_EQ(ReplayStep(step, durations).time, step.step->time);
    durations[0] += 50 * kMillisecond;  // The first forward of pipeline 0.
    EXPECT_GE(ReplayStep(step, durations).time, step.step->time + 20 * kMillisecond);
  }
}

TEST(TorchProfiler, RanksOfTensorParallelismCountOnce) {
  const std::vector<TracedEvent> events = TwoPipelines();
  std::vector<std::string> files = ProfilesOfAllRanks(events);
  files.push_back(FormatProfile(events, 3, {.groups = R"({"pg_desc":"mesh_tp","ranks":[1,3]})"}));
  ExpectTheComputationsOf(events, ReadAll(files));
}

TEST(TorchProfiler, WhatIsMissingIsNamed) {
  const std::vector<TracedEvent> events = TwoPipelines({.steps = 2});
  std::vector<std::string> files = ProfilesOfAllRanks(events);
  EXPECT_THAT(ErrorOf({files[0], files[1], files[2]}),
              HasSubstr("0.json and 2 other files: 1 file of stage 1, but 2 files of stage 0 (give "
                        "the files of all ranks)"));
  EXPECT_THAT(ErrorOf({files[1], files[3]}), HasSubstr("stage 0 is in no file, but stage 1 is"));
  EXPECT_THAT(ErrorOf({files[0], files[0]}), HasSubstr("two files are of rank 0"));
  EXPECT_THAT(ErrorOf(ProfilesOfAllRanks(events, {.category = "user_annotation"})),
              AllOf(HasSubstr("0.json: this trace of torch.profiler has no times of the GPU"),
                    HasSubstr("ProfilerActivity.CUDA")));
  EXPECT_THAT(ErrorOf(ProfilesOfAllRanks(events, {.prefix = "## "})),
              HasSubstr("this trace of torch.profiler does not name the actions of a pipeline"));
  files[1] = FormatProfile(events, 1);
  files[1].replace(files[1].find("PP:1B0"), 6, "PP:1I0");
  EXPECT_THAT(ErrorOf(files), HasSubstr("\"PP:1I0\" is a part of a split backward"));
  EXPECT_THAT(ErrorOf({files[0], FormatTimeline(events)}), HasSubstr("give files of one tracer"));
}

// A clock that is 100 ms behind lets rank 1 begin before its input.
TEST(TorchProfiler, AClockThatIsBehindIsNamed) {
  const std::vector<TracedEvent> events = TwoPipelines();
  std::vector<TracedEvent> early = events;
  for (TracedEvent& event : early) {
    event.start_ms -= 100;
    event.end_ms -= 100;
  }
  const auto trace = ReadAll({FormatProfile(events, 0), FormatProfile(early, 1)});
  ASSERT_TRUE(trace) << trace.error().Message();
  const auto graph = BuildTraceGraph(*trace);
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().Message(), HasSubstr("before its input is complete"));
}

// ndtimeline writes no microbatch, and names the rank in each event.
std::string FormatNdtimeline(const std::vector<TracedEvent>& events) {
  std::string text = "[";
  for (const TracedEvent& event : events) {
    const int lane = event.microbatch >= 0 ? 0 : 1;
    text += fmt::format(
        R"({{"name":"{0}","cat":"{0}","pid":{1},"tid":{2},"args":{{"rank":{3},"step":{4},"tp":0,)"
        R"("pp":{5}}},"ts":{6:.3f},"dur":{7:.3f},"ph":"X"}},)",
        event.name, event.dp_rank, 20 * event.pp_rank + lane, 2 * event.pp_rank, event.step,
        event.pp_rank, event.start_ms * 1e3, (event.end_ms - event.start_ms) * 1e3);
    text += fmt::format(R"({{"name":"tp-allreduce","ph":"X","pid":{},"tid":4,"ts":0,"dur":1,)"
                        R"("args":{{"rank":1,"step":{},"tp":1,"pp":{}}}}},)",
                        event.dp_rank, event.step, event.pp_rank);
  }
  text.back() = ']';
  return text;
}

TEST(Ndtimeline, IsReadWithoutLanesAndMicrobatches) {
  const std::vector<TracedEvent> events = TwoPipelines({.steps = 2});
  ExpectTheComputationsOf(events, ReadAll({FormatNdtimeline(events)}));
}

TEST(JobTrace, ATimelineMayHaveSeveralFiles) {
  const std::vector<TracedEvent> events = TwoPipelines({.steps = 2});
  std::vector<TracedEvent> first;
  std::vector<TracedEvent> second;
  for (const TracedEvent& event : events) (event.dp_rank == 0 ? first : second).push_back(event);
  ExpectTheComputationsOf(events, ReadAll({FormatTimeline(second), FormatTimeline(first)}));
}

}  // namespace
}  // namespace perseus::replay
