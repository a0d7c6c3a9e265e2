// A recorded timeline of a real training job: the events of every rank in several steps.
//
// The file format is Chrome's Trace Event Format in JSON, compressed with gzip or not
// (docs/formats.md has an example): a list of events, or an object with such a list in
// "traceEvents". Two kinds of events are used:
//   - "ph": "X" is an event with a duration. It has name, pid (the dp_rank), tid (a lane of one
//     rank), ts and dur (in us), args.step, and for computations args.mb_id. args.seq_id counts
//     the events of a name on a rank within a step.
//   - "ph": "M" with the name "thread_name" says what a lane is: "PP rank 2, TP rank 0, compute".
// Counters, instants and flow arrows are skipped. Everything else is an error. Two other tracers
// write files that are read, too: torch.profiler (torch_profiler.h), and veScale's ndtimeline,
// whose events have args.pp (the pp_rank), args.tp and no microbatch. From these, only computations
// and the optimizer are taken, because they do not record both sides of each communication.
//
// Invariants of a JobTrace:
//   1. Each dp_rank from 0 to pipelines - 1 has the pp_ranks from 0 to ranks - 1. Each of these has
//      computations in every step.
//   2. In a step, every rank of a pipeline has the same (microbatch, chunk) pairs. Each pair has
//      one forward and one backward.
//   3. The events of a step are sorted by (dp_rank, pp_rank, start). Computations of a rank do not
//      overlap, and none begins before its input was received. The steps of a rank do not overlap.
//      Each of these rules holds within the clock tolerance.
//   4. The steps are numbered in the order of time.
//   5. In every step, at least one computation has a duration above 0. The median duration of the
//      computations of all steps is 0, or from 50 us to 10 s. Otherwise, the unit of time in the
//      file is probably not the microsecond.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"

namespace perseus::replay {

// The kind of an event. It determines what the event waits for, and so how the event is replayed.
enum class EventKind : std::uint8_t {
  kForward,  // Computations: a clock changes the time of these events only.
  kBackward,
  kForwardSend,  // To the next rank of the pipeline. It begins when both sides are ready.
  kForwardReceive,
  kBackwardSend,  // To the previous rank of the pipeline. Otherwise like kForwardSend.
  kBackwardReceive,
  kDataParallel,  // A collective of the same pp_rank of all pipelines.
  kPipeline,      // A collective within a pipeline, of the ranks that record it.
  kAllRanks,      // A collective of all ranks of all pipelines.
  // A collective of GPUs that work in step. Only one is recorded, so it waits for no recorded rank.
  kLocalCollective,
  kLocal,  // Waits for no other rank.
};

constexpr bool IsComputation(EventKind kind) { return kind <= EventKind::kBackward; }
constexpr bool IsTransfer(EventKind kind) {
  return kind >= EventKind::kForwardSend && kind <= EventKind::kBackwardReceive;
}
// Whether an event of this kind waits for other recorded ranks.
constexpr bool IsCollective(EventKind kind) {
  return kind >= EventKind::kDataParallel && kind <= EventKind::kAllRanks;
}
constexpr bool IsCommunication(EventKind kind) {
  return IsTransfer(kind) || IsCollective(kind) || kind == EventKind::kLocalCollective;
}

struct EventName {
  std::string_view name;
  EventKind kind;
};
// All names that a trace may have, except those that the caller ignores.
std::span<const EventName> KnownEvents();

struct JobEvent {
  std::int64_t index = 0;  // In the list of the file, from 0.
  int name = 0;            // An index into KnownEvents().
  EventKind kind = EventKind::kLocal;
  int dp_rank = 0;
  int pp_rank = 0;
  int lane = 0;  // A number that stands for the name of the lane.
  int chunk = 0;
  int microbatch = 0;  // Computations only.
  // Computations only: the stage, if the tracer does not record transfers. Then the forward waits
  // for the forward of the previous stage, and the backward for the backward of the next stage.
  // -1 if transfers are recorded.
  int stage = -1;
  int sequence = 0;  // Counts the events of this name on this rank within the step.
  Nanoseconds start = 0;
  Nanoseconds duration = 0;

  Nanoseconds end() const { return start + duration; }
};

struct RecordedStep {
  std::int64_t number = 0;
  Nanoseconds start = 0;  // When its earliest event starts. Event times are relative to this.
  Nanoseconds time = 0;   // From the start to the last end.
  std::vector<JobEvent> events;
};

struct JobTrace {
  std::string name;  // For messages: the path of the file, or of the first of several.
  int pipelines = 0;
  int pp_ranks = 0;                 // In each pipeline.
  std::vector<RecordedStep> steps;  // In the order of time.
  // The number of events that end before they begin, within the clock tolerance. Their duration is
  // set to 0.
  int negative_durations = 0;
  std::vector<std::string> unused_ignored;  // Names to leave out that no event of the file has.

  int gpus() const { return pipelines * pp_ranks; }
};

struct TraceReadOptions {
  // Names of events to leave out, known or unknown.
  std::vector<std::string> ignored;
  // The clocks of two machines are never exactly equal. If one event has to come before another
  // one, the two may overlap by at most this time. An event may also end before it begins, by at
  // most this time.
  Nanoseconds clock_tolerance = kMillisecond;
  // The maximum size of the text in the file, in bytes. If the file is gzip, only the events are in
  // memory.
  std::size_t most_bytes = std::size_t{1} << 30;
};

// Parses `bytes`, gzip or JSON. `name` stands for the file in messages. Errors (kInput) are one
// line that names the event: "trace.json: event 12 (forward-compute, dp_rank 0, pp_rank 1, step 3):
// cause (remedy)". 21 MB of JSON take about 0.2 s.
Result<JobTrace> ParseJobTrace(std::string_view bytes, std::string_view name,
                               const TraceReadOptions& options = {});

// The same for a timeline in several files, one after another. The files may be in any order, but
// must be of the same tracer.
class JobTraceReader {
 public:
  // `options` must outlive the reader.
  explicit JobTraceReader(const TraceReadOptions& options);
  ~JobTraceReader();
  JobTraceReader(const JobTraceReader&) = delete;
  JobTraceReader& operator=(const JobTraceReader&) = delete;

  Result<void> Add(std::string_view bytes, std::string_view name);
  Result<JobTrace> Finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// "event 12 (forward-compute, dp_rank 0, pp_rank 1, step 3)"
std::string Describe(const JobEvent& event, std::int64_t step);

}  // namespace perseus::replay
