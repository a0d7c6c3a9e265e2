// A recorded timeline of a real training job: the events of every rank in several steps.
//
// File format (Chrome's Trace Event Format in JSON, gzip or not; docs/formats.md has an example): a
// list of events, or an object with one in "traceEvents". What counts:
//   - "ph": "X", an event that lasts: name, pid (the dp_rank), tid (a lane
//     of one rank), ts and dur (us), args.step, and for computations args.mb_id; args.seq_id counts
//     the events of a name on a rank within a step;
//   - "ph": "M" with name "thread_name" says what a lane is: "PP rank 2, TP rank 0, compute".
// Counters, instants and flow arrows are skipped. Everything else is an error.
//
// Invariants of a JobTrace:
//   1. the dp_ranks 0..pipelines-1 each have the pp_ranks 0..ranks-1, and each of these computes in
//      every step;
//   2. on every rank of a pipeline a step has the same (microbatch, chunk) pairs, each forward once
//      and each backward once;
//   3. events of a step are sorted by (dp_rank, pp_rank, start); the computations of a rank do not
//      overlap, none begins before what it computes on was received, and a rank's steps do not
//      overlap (but for the clock tolerance each); steps are numbered in the order of time;
//   4. some computation of every step takes time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"

namespace perseus::replay {

// What an event waits for. This determines how it is replayed.
enum class EventKind : std::uint8_t {
  kForward,  // Computations: the only events that a clock makes slower or faster.
  kBackward,
  kForwardSend,  // To the next rank of the pipeline; done when both sides are there.
  kForwardReceive,
  kBackwardSend,  // To the rank before.
  kBackwardReceive,
  kDataParallel,  // A collective of one rank of every pipeline.
  kPipeline,      // A collective within a pipeline, of those ranks that record it.
  kEverybody,     // A collective of all ranks of all pipelines.
  kAlone,         // Waits for nobody that is recorded.
};

constexpr bool IsComputation(EventKind kind) { return kind <= EventKind::kBackward; }
constexpr bool IsTransfer(EventKind kind) {
  return kind >= EventKind::kForwardSend && kind <= EventKind::kBackwardReceive;
}
constexpr bool IsCollective(EventKind kind) {
  return kind >= EventKind::kDataParallel && kind <= EventKind::kEverybody;
}

struct EventName {
  std::string_view name;
  EventKind kind;
};
// All that a trace may have, but for those that the caller says to ignore.
std::span<const EventName> KnownEvents();

struct JobEvent {
  std::int64_t index = 0;  // In the file's list, from 0.
  int name = 0;            // In KnownEvents().
  EventKind kind = EventKind::kAlone;
  int dp_rank = 0;
  int pp_rank = 0;
  int lane = 0;  // Of its rank.
  int chunk = 0;
  int microbatch = 0;  // Computations only.
  int sequence = 0;    // Counts its name on its rank within the step.
  Nanoseconds start = 0;
  Nanoseconds duration = 0;

  Nanoseconds end() const { return start + duration; }
};

struct RecordedStep {
  std::int64_t number = 0;
  Nanoseconds start = 0;  // The earliest of its events; they count from here.
  Nanoseconds time = 0;   // From there to the last end.
  std::vector<JobEvent> events;
};

struct JobTrace {
  std::string name;  // For messages; usually the file's path.
  int pipelines = 0;
  int ranks = 0;                    // Of a pipeline.
  std::vector<RecordedStep> steps;  // In the order of time.

  int gpus() const { return pipelines * ranks; }
};

struct TraceReadOptions {
  // Names of events to leave out, known or not.
  std::vector<std::string> ignored;
  // Clocks of different machines are never quite the same. Where one event must come before
  // another, this much of the opposite is taken for that.
  Nanoseconds clock_tolerance = 1'000'000;
  // Of the text inside a gzip file.
  std::size_t most_bytes = std::size_t{4} << 30;
};

// Parses `bytes`, gzip or JSON; `name` stands for the file in messages. Errors (kInput) are one
// line that names the event: "trace.json: event 12 (forward-compute, dp_rank 0, pp_rank 1, step 3):
// cause (remedy)". 21 MB of JSON take about 0.2 s.
Result<JobTrace> ParseJobTrace(std::string_view bytes, std::string_view name,
                               const TraceReadOptions& options = {});

// "event 12 (forward-compute, dp_rank 0, pp_rank 1, step 3)"
std::string Describe(const JobEvent& event, std::int64_t step);

}  // namespace perseus::replay
