#include "perseus/simulation/replay/job_trace.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <regex>

#include "perseus/simulation/replay/trace_events.h"
#include "tests/support/job_traces.h"

namespace perseus::replay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string JobTraceErrorOf(const std::string& text, const TraceReadOptions& options = {}) {
  const Result<JobTrace> trace = ParseJobTrace(text, "t.json", options);
  if (trace) return "no error";
  EXPECT_EQ(trace.error().kind, ErrorKind::kInput);
  EXPECT_EQ(trace.error().Message().find('\n'), std::string::npos);
  EXPECT_TRUE(trace.error().Message().starts_with("t.json: ")) << trace.error().Message();
  return trace.error().Message();
}

std::string JobTraceErrorOf(const std::vector<TracedEvent>& events) {
  return JobTraceErrorOf(FormatTimeline(events));
}

template <typename Drop>
std::vector<TracedEvent> Without(std::vector<TracedEvent> events, Drop drop) {
  std::erase_if(events, drop);
  return events;
}

TEST(JobTrace, ReadsEveryRankAndStep) {
  const auto trace = ParseJobTrace(FormatTimeline(TwoPipelines({.steps = 3})), "t.json");
  ASSERT_TRUE(trace) << trace.error().Message();
  EXPECT_EQ(trace->pipelines, 2);
  EXPECT_EQ(trace->pp_ranks, 2);
  ASSERT_EQ(trace->steps.size(), 3U);
  EXPECT_EQ(trace->steps[2].number, 9);
  EXPECT_EQ(trace->steps[2].start, 268'000'000);
  EXPECT_EQ(trace->steps[2].time, 131'000'000);
  const JobEvent& first = trace->steps[0].events[0];
  EXPECT_EQ(first.kind, EventKind::kForward);
  EXPECT_EQ(first.start, 0);
  EXPECT_EQ(first.duration, 10'000'000);
  EXPECT_EQ(Describe(first, 7), "event 0 (forward-compute, dp_rank 0, pp_rank 0, step 7)");
}

// Times in seconds are a millionth of those in microseconds, times in milliseconds a thousandth,
// and times in nanoseconds 1,000 times as large.
TEST(JobTrace, OtherUnitsOfTimeAreRefused) {
  const auto scaled = [](double factor) {
    std::vector<TracedEvent> events = TwoPipelines();
    for (TracedEvent& event : events) {
      event.start_ms *= factor;
      event.end_ms *= factor;
    }
    return events;
  };
  EXPECT_THAT(JobTraceErrorOf(scaled(1e-6)),
              AllOf(HasSubstr("half of the computations take no more than 0.0175 us"),
                    HasSubstr("is the unit of ts and dur seconds? Write them in microseconds")));
  EXPECT_THAT(JobTraceErrorOf(scaled(1e-3)), HasSubstr("ts and dur milliseconds?"));
  EXPECT_THAT(JobTraceErrorOf(scaled(1e3)), HasSubstr("ts and dur nanoseconds?"));
  EXPECT_EQ(JobTraceErrorOf(scaled(0.01)), "no error");
  EXPECT_EQ(JobTraceErrorOf(scaled(100)), "no error");
}

TEST(JobTrace, ReadsGzipAndTheObjectForm) {
  const std::string list = FormatTimeline(TwoPipelines());
  const std::string object =
      R"({"displayTimeUnit": "ms", "other": [{"name": "x", "args": {}}], "traceEvents": )" + list +
      "}";
  for (const std::string& text : {Gzip(list), object, Gzip(object), Gzip(list) + Gzip(" ")}) {
    const auto trace = ParseJobTrace(text, "t.json");
    ASSERT_TRUE(trace) << trace.error().Message();
    EXPECT_EQ(trace->steps[0].events.size(), TwoPipelines().size());
  }
}

TEST(JobTrace, CountersInstantsAndOtherMetadataAreSkipped) {
  const std::string text = Replaced(
      FormatTimeline(TwoPipelines()), "[",
      R"([{"name":"power","ph":"C","args":{"W":[1,{"x":2}]}},{"ph":"i"},{"ph":"M","name":"sort"},)");
  const auto trace = ParseJobTrace(text, "t.json");
  ASSERT_TRUE(trace) << trace.error().Message();
  EXPECT_EQ(trace->steps[0].events[0].index, 3);
}

TEST(JobTrace, TruncatedOrDamagedGzipIsAnError) {
  const std::string whole = Gzip(FormatTimeline(TwoPipelines({.steps = 20})));
  for (std::size_t size = 2; size < whole.size(); size += 97) {
    EXPECT_THAT(JobTraceErrorOf(whole.substr(0, size)), HasSubstr("gzip data ends early")) << size;
  }
  // The text is complete, but its checksum and size are not.
  for (std::size_t missing = 1; missing <= 8; ++missing) {
    EXPECT_THAT(JobTraceErrorOf(whole.substr(0, whole.size() - missing)),
                HasSubstr("gzip data ends early"))
        << missing;
  }
  EXPECT_THAT(JobTraceErrorOf(whole + "other"), HasSubstr("damaged"));
  std::string damaged = whole;
  damaged[damaged.size() - 6] =
      static_cast<char>(damaged[damaged.size() - 6] + 1);  // This damages the checksum.
  EXPECT_THAT(JobTraceErrorOf(damaged), HasSubstr("damaged"));
}

// A gzip file of a megabyte may contain a gigabyte of text. The values of a trace are small.
TEST(JobTrace, ATextOrAValueWithoutEndIsRefused) {
  const std::string events = FormatTimeline(TwoPipelines());
  for (const std::string& text : {events, Gzip(events)}) {
    EXPECT_THAT(JobTraceErrorOf(text, {.ignored = {}, .most_bytes = events.size() - 1}),
                HasSubstr(fmt::format("more than {} bytes of text (record fewer steps)",
                                      events.size() - 1)));
    EXPECT_TRUE(ParseJobTrace(text, "t.json", {.ignored = {}, .most_bytes = events.size()}));
  }
  constexpr std::size_t kTooLong = kMostBytesOfValue + (std::size_t{1} << 20);
  const std::string name = "[{\"ph\":\"i\"},{\"name\":\"" + std::string(kTooLong, 'a') + "\"}]";
  const std::string gap = "[{\"ph\":\"i\"}," + std::string(kTooLong, ' ') + "]";
  for (const std::string& text : {name, Gzip(name), gap, Gzip(gap)}) {
    EXPECT_THAT(JobTraceErrorOf(text),
                AllOf(HasSubstr("in or after event 1: the value or gap after byte "),
                      HasSubstr("of the text is longer than 16 MiB")));
  }
}

// The pieces in which text is read have 256 KiB.
TEST(JobTrace, LongTextsAreReadPieceByPiece) {
  const std::string events = FormatTimeline(TwoPipelines());
  for (const std::size_t gap : {262'100U, 262'144U, 524'288U, 3'000'000U}) {
    const std::string text = "[" + std::string(gap, ' ') + events.substr(1);
    for (const std::string& bytes : {text, Gzip(text), Gzip(text) + Gzip("  ")}) {
      const auto trace = ParseJobTrace(bytes, "t.json");
      ASSERT_TRUE(trace) << trace.error().Message();
      EXPECT_EQ(trace->steps[0].events.size(), TwoPipelines().size());
    }
  }
}

TEST(JobTrace, InvalidTracesAreRefusedWithTheEvent) {
  const std::string text = FormatTimeline(TwoPipelines());
  std::size_t line = 0;  // The line of event 5.
  for (int i = 0; i < 5; ++i) line = text.find('\n', line) + 1;
  EXPECT_THAT(JobTraceErrorOf(text.substr(0, line + 40)), HasSubstr("in or after event 5"));
  EXPECT_THAT(JobTraceErrorOf("[{}, 3]"), HasSubstr("event 0"));
  EXPECT_THAT(JobTraceErrorOf("[3]"), HasSubstr("event 0 is not an object"));
  EXPECT_THAT(JobTraceErrorOf("{\"a\": []}"), HasSubstr("no list of events"));
  EXPECT_THAT(JobTraceErrorOf("[]"), HasSubstr("no event has ph"));
  EXPECT_THAT(JobTraceErrorOf("[{\"ts\": 1e999}]"),
              HasSubstr("in or after event 0: not JSON: number overflow"));
  EXPECT_THAT(JobTraceErrorOf("time,energy\n"), HasSubstr("not JSON"));
}

TEST(JobTrace, OtherFormatsAreNamed) {
  using namespace std::string_literals;
  EXPECT_THAT(JobTraceErrorOf(""), HasSubstr("the file has no text"));
  EXPECT_THAT(JobTraceErrorOf(Gzip("")), HasSubstr("the file has no text"));
  EXPECT_THAT(JobTraceErrorOf(Gzip(Gzip("[]"))), HasSubstr("content of the gzip data is gzip"));
  EXPECT_THAT(JobTraceErrorOf("\x28\xb5\x2f\xfd..."), HasSubstr("the file is zstd"));
  EXPECT_THAT(JobTraceErrorOf("\xff\xfe[\0]\0"s),
              HasSubstr("the file is UTF-16 (expected text in UTF-8, or such text in gzip)"));
  EXPECT_THAT(JobTraceErrorOf("[\0]\0"s), HasSubstr("the file is binary data"));
  EXPECT_TRUE(ParseJobTrace("\xef\xbb\xbf" + FormatTimeline(TwoPipelines()), "t.json"));
}

// Some tracers pass all numbers through a table of floating-point numbers.
TEST(JobTrace, WholeNumbersMayHaveAFraction) {
  std::string text = FormatTimeline(TwoPipelines());
  for (const char* field :
       {"\"pid\":0", "\"tid\":0", "\"step\":7", "\"mb_id\":0", "\"seq_id\":0"}) {
    text = Replaced(std::move(text), field, std::string(field) + ".0");
  }
  const auto trace = ParseJobTrace(text, "t.json");
  ASSERT_TRUE(trace) << trace.error().Message();
  EXPECT_EQ(trace->steps[0].events.size(), TwoPipelines().size());
  EXPECT_THAT(JobTraceErrorOf(Replaced(text, "\"step\":7.0", "\"step\":7.5")),
              HasSubstr("args.step is not a whole number"));
}

TEST(JobTrace, EqualEventsAreRefused) {
  for (const char* name : {"optimizer", "optimizer-clip-main-grad"}) {
    const std::string text = FormatTimeline(TwoPipelines());
    const std::size_t at = text.find(fmt::format("{{\"name\":\"{}\"", name));
    ASSERT_NE(at, std::string::npos);
    const std::string event = text.substr(at, text.find('\n', at) + 1 - at);
    EXPECT_THAT(JobTraceErrorOf("[" + event + text.substr(1)),
                AllOf(HasSubstr(name), HasSubstr("event 0 is equal to it (keep one of them)")));
  }
}

TEST(JobTrace, UnknownEventsAreRefusedUnlessIgnored) {
  std::vector<TracedEvent> events = TwoPipelines();
  events.push_back({"forward-comput", 0, 0, 7, 200, 201, 1});
  const std::string text = FormatTimeline(events);
  EXPECT_THAT(
      JobTraceErrorOf(text),
      AllOf(HasSubstr(fmt::format("event {}:", events.size() - 1)), HasSubstr("\"forward-comput\""),
            HasSubstr("did you mean \"forward-compute\"?"), HasSubstr("`ignore`")));
  const auto trace = ParseJobTrace(text, "t.json", {.ignored = {"forward-comput"}});
  ASSERT_TRUE(trace) << trace.error().Message();
  EXPECT_EQ(trace->steps[0].events.size(), events.size() - 1);
  EXPECT_THAT(trace->unused_ignored, testing::IsEmpty());
  const auto other = ParseJobTrace(text, "t.json", {.ignored = {"forward-comput", "other"}});
  EXPECT_THAT(other->unused_ignored, testing::ElementsAre("other"));
  EXPECT_THAT(JobTraceErrorOf(Replaced(text, "\"ph\":\"X\"", "\"ph\":\"B\"")),
              AllOf(HasSubstr("event 0 (\"forward-compute\")"), HasSubstr("ph \"B\"")));
  EXPECT_THAT(JobTraceErrorOf(Replaced(FormatTimeline(TwoPipelines()), "forward-compute", "F0")),
              HasSubstr("event 0: \"F0\" is a name in a trace that perseus wrote"));
  EXPECT_THAT(JobTraceErrorOf("{\"format\": \"perseus-plan\"}"),
              HasSubstr("the file is a \"perseus-plan\" file"));
}

TEST(JobTrace, MissingOrWrongFieldsAreNamed) {
  const std::string text = FormatTimeline(TwoPipelines());
  const struct {
    const char *from, *to, *complaint;
  } cases[] = {
      {"\"pid\":0", "\"pid\":\"a\"", "pid"},        {"\"pid\":0", "\"pid\":-1", "pid"},
      {"\"tid\":0", "\"tid\":0.5", "tid"},          {"\"ts\":0.000", "\"ts\":null", "ts"},
      {"\"ts\":0.000", "\"ts\":1e300", "ts"},       {"\"dur\":10000.000", "\"dur\":null", "dur"},
      {"\"dur\":10000.000", "\"dur\":1e13", "dur"}, {"\"step\":7", "\"stop\":7", "args.step"},
      {"\"mb_id\":0", "\"mb_id\":-1", "args.mb_id"}};
  for (const auto& [from, to, complaint] : cases) {
    EXPECT_THAT(JobTraceErrorOf(Replaced(text, from, to)),
                AllOf(HasSubstr("event 0 (forward-compute): "), HasSubstr(complaint)))
        << to;
  }
}

// Some tracers leave microbatches out. Pipelines take them in order.
TEST(JobTrace, WithoutMicrobatchesTheNthForwardIsMicrobatchN) {
  const std::string text = FormatTimeline(TwoPipelines({.steps = 2}));
  const std::string without =
      std::regex_replace(text, std::regex("\"mb_id\":[0-9]+"), "\"mb_id\":null");
  const auto numbered = ParseJobTrace(text, "t.json");
  const auto trace = ParseJobTrace(without, "t.json");
  ASSERT_TRUE(trace) << trace.error().Message();
  for (std::size_t i = 0; i < numbered->steps.size(); ++i) {
    for (std::size_t j = 0; j < numbered->steps[i].events.size(); ++j) {
      EXPECT_EQ(trace->steps[i].events[j].microbatch, numbered->steps[i].events[j].microbatch);
    }
  }
  EXPECT_THAT(JobTraceErrorOf(Replaced(text, "\"mb_id\":1", "\"mb_id\":null")),
              HasSubstr("args.mb_id is missing, but other events have it"));
}

// The clocks of hosts differ, so some tracers record a communication that ends before it begins.
TEST(JobTrace, ANegativeDurationWithinTheClockToleranceCountsAsZero) {
  std::vector<TracedEvent> events = TwoPipelines();
  int shortened = 0;
  for (TracedEvent& event : events) {
    if (event.name != "optimizer-clip-main-grad") continue;
    event.end_ms = event.start_ms - (shortened == 0 ? 1 : 0.075);
    ++shortened;
  }
  ASSERT_EQ(shortened, 4);
  const auto trace = ParseJobTrace(FormatTimeline(events), "t.json");
  ASSERT_TRUE(trace) << trace.error().Message();
  EXPECT_EQ(trace->negative_durations, 4);
  for (const JobEvent& event : trace->steps[0].events) {
    EXPECT_GE(event.duration, 0);
    if (event.kind == EventKind::kAllRanks) {
      EXPECT_EQ(event.start, 128'000'000);
      EXPECT_EQ(event.duration, 0);
    }
  }
  EXPECT_EQ(ParseJobTrace(FormatTimeline(TwoPipelines()), "t.json")->negative_durations, 0);
}

TEST(JobTrace, ANegativeDurationBeyondTheClockToleranceIsRefusedWithTheWorst) {
  std::vector<TracedEvent> events = TwoPipelines();
  events[2].end_ms = events[2].start_ms - 1.1;
  events[5].end_ms = events[5].start_ms - 0.9;
  EXPECT_THAT(JobTraceErrorOf(events),
              AllOf(HasSubstr("event 2 ("), HasSubstr("dur is -1100 us"),
                    HasSubstr("clock tolerance of 1.000 ms, as 1 event does in total"),
                    HasSubstr("(leave its step out, fix dur, or raise `clock_tolerance`)")));
  events[7].end_ms = events[7].start_ms - 2.5;
  EXPECT_THAT(JobTraceErrorOf(events), AllOf(HasSubstr("event 7 ("), HasSubstr("dur is -2500 us"),
                                             HasSubstr("as 2 events do in total (leave their")));
}

TEST(JobTrace, LanesNameTheirRank) {
  const std::string text = FormatTimeline(TwoPipelines());
  EXPECT_THAT(JobTraceErrorOf(Replaced(text, "PP rank 0, TP rank 0, compute", "CPU 0")),
              AllOf(HasSubstr("event 0 (forward-compute, pid 0, tid 0)"), HasSubstr("\"CPU 0\"")));
  EXPECT_THAT(JobTraceErrorOf(Replaced(text, "\"name\":\"thread_name\"", "\"name\":\"other\"")),
              HasSubstr("no thread_name"));
  EXPECT_THAT(JobTraceErrorOf(Replaced(text, "TP rank 0", "TP rank 1")), HasSubstr("TP rank 1"));
}

TEST(JobTrace, MissingRanksPipelinesAndMicrobatchesAreNamed) {
  const std::vector<TracedEvent> events = TwoPipelines({.steps = 2});
  EXPECT_THAT(JobTraceErrorOf(Without(events, [](auto& e) { return e.dp_rank == 0; })),
              HasSubstr("dp_rank 0 is missing"));
  EXPECT_THAT(
      JobTraceErrorOf(Without(events, [](auto& e) { return e.dp_rank == 1 && e.pp_rank == 0; })),
      HasSubstr("dp_rank 1 has no pp_rank 0"));
  EXPECT_THAT(JobTraceErrorOf(Without(
                  events, [](auto& e) { return e.step == 8 && e.dp_rank == 1 && e.pp_rank == 1; })),
              HasSubstr("step 8: dp_rank 1, pp_rank 1 has no events"));
  EXPECT_THAT(JobTraceErrorOf(Without(events,
                                      [](auto& e) {
                                        return e.step == 8 && e.pp_rank == 1 && e.dp_rank == 0 &&
                                               e.microbatch == 1;
                                      })),
              HasSubstr("step 8: dp_rank 0, pp_rank 1 does not compute microbatch 1"));
  EXPECT_THAT(JobTraceErrorOf(Without(events,
                                      [](auto& e) {
                                        return e.step == 8 && e.pp_rank == 1 && e.microbatch == 1 &&
                                               e.name == "backward-compute";
                                      })),
              AllOf(HasSubstr("(forward-compute, dp_rank 0, pp_rank 1, step 8)"),
                    HasSubstr("its microbatch 1 has no backward-compute")));
  std::vector<TracedEvent> twice = events;
  twice.push_back(twice[0]);
  EXPECT_THAT(JobTraceErrorOf(twice), HasSubstr("event 0 already computes"));
}

TEST(JobTrace, ClockJumpsAreNamed) {
  std::vector<TracedEvent> events = TwoPipelines({.steps = 2});
  for (TracedEvent& event : events) {
    if (event.step != 8) continue;
    event.start_ms -= 20;
    event.end_ms -= 20;
  }
  // Step 7 ends at 131 and step 8 begins at 134.
  EXPECT_THAT(JobTraceErrorOf(events),
              AllOf(HasSubstr("step 8): it begins 17.000 ms before its rank has "
                              "ended step 7"),
                    HasSubstr("clock jumps")));
  events = TwoPipelines();
  events[5].start_ms += 2e9;
  events[5].end_ms += 2e9;
  EXPECT_THAT(JobTraceErrorOf(events), AllOf(HasSubstr("event 5 ("), HasSubstr("clock jumps")));
  events = TwoPipelines();
  events[3].start_ms = 2;  // F1 of rank 0, while F0 runs until 10.
  EXPECT_THAT(JobTraceErrorOf(events),
              AllOf(HasSubstr("event 3 (forward-compute, dp_rank 0, pp_rank 0"),
                    HasSubstr("begins 8.000 ms before event 0")));
}

// By default, the clocks of machines may differ by one millisecond.
TEST(JobTrace, AComputationMayBeginAMillisecondTooEarly) {
  const std::vector<TracedEvent> good = TwoPipelines({.steps = 3, .late_ms = 500});
  const auto shifted = [&](const char* name, int microbatch, double shift_ms) {
    std::vector<TracedEvent> events = good;
    for (TracedEvent& event : events) {
      if (event.name != name || event.microbatch != microbatch || event.dp_rank != 0 ||
          event.pp_rank != 0 || event.step != 8) {
        continue;
      }
      event.start_ms += shift_ms;
      event.end_ms += shift_ms;
    }
    return JobTraceErrorOf(events);
  };
  // F1 would begin before F0 ends, one millisecond before it. B0 would begin before its gradient
  // arrives.
  EXPECT_EQ(shifted("forward-compute", 1, -1.9), "no error");
  EXPECT_THAT(shifted("forward-compute", 1, -2.1), HasSubstr("1.100 ms before event"));
  EXPECT_EQ(shifted("backward-compute", 0, -0.9), "no error");
  EXPECT_THAT(shifted("backward-compute", 0, -15),
              HasSubstr("15.000 ms before what it computes on was received by event"));
  EXPECT_THAT(shifted("forward-compute", 0, -1500), HasSubstr("ts is before 0: its clock jumps"));
  std::vector<TracedEvent> events = good;
  for (TracedEvent& event : events) {
    if (event.step == 8) continue;
    event.start_ms += 1000;
    event.end_ms += 1000;
  }
  EXPECT_THAT(JobTraceErrorOf(events), HasSubstr("ms before step 7 does: its clock jumps"));
}

}  // namespace
}  // namespace perseus::replay
