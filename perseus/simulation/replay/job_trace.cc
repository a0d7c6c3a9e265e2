#include "perseus/simulation/replay/job_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/index.h"
#include "perseus/base/limits.h"
#include "perseus/base/wording.h"
#include "perseus/simulation/replay/job_trace_checks.h"
#include "perseus/simulation/replay/torch_profiler.h"
#include "perseus/simulation/replay/trace_events.h"

namespace perseus::replay {
namespace {

constexpr std::array<EventName, 16> kKnownEvents{{
    {"forward-compute", EventKind::kForward},
    {"backward-compute", EventKind::kBackward},
    {"forward-send", EventKind::kForwardSend},
    {"forward-recv", EventKind::kForwardReceive},
    {"backward-send", EventKind::kBackwardSend},
    {"backward-recv", EventKind::kBackwardReceive},
    {"params-all-gather", EventKind::kDataParallel},
    {"params-sync", EventKind::kDataParallel},
    {"grads-reduce-scatter", EventKind::kDataParallel},
    {"grads-all-reduce", EventKind::kDataParallel},
    {"grads-sync", EventKind::kDataParallel},
    {"embedding-grads-all-reduce", EventKind::kPipeline},
    {"optimizer-clip-main-grad", EventKind::kAllRanks},
    {"layernorm-grads-all-reduce", EventKind::kLocalCollective},
    {"optimizer", EventKind::kLocal},
    {"gc", EventKind::kLocal},
}};

constexpr std::string_view kLaneForm = "\"PP rank 0, TP rank 0, compute\"";
constexpr std::int64_t kLargestNumber = 1'000'000'000;

struct Lane {
  int pp_rank = 0;
  int tp_rank = 0;
  std::string name;
};

// Removes `literal` and the whole number after it from the front of `text`, and returns the number.
std::optional<int> TakeNumber(std::string_view& text, std::string_view literal) {
  if (!text.starts_with(literal)) return {};
  text.remove_prefix(literal.size());
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::optional<Lane> ParseLane(std::string_view text) {
  const auto rank = TakeNumber(text, "PP rank ");
  const auto tp_rank = rank ? TakeNumber(text, ", TP rank ") : std::nullopt;
  if (!tp_rank || !text.starts_with(", ")) return {};
  return Lane{*rank, *tp_rank, std::string(text.substr(2))};
}

using Thread = std::tuple<int, std::int64_t, std::int64_t>;  // The file, pid and tid.

// An event whose rank may be unknown yet, because a lane's name may follow its events.
struct UnplacedEvent {
  JobEvent event;
  std::int64_t step = 0;
  std::optional<Thread> lane;  // None if the event names its rank itself.
};

}  // namespace

class JobTraceReader::Impl {
 public:
  explicit Impl(const TraceReadOptions& options) : options_(options) {
    trace_.unused_ignored = options.ignored;
    for (std::size_t i = 0; i < kKnownEvents.size(); ++i) {
      name_number_.emplace(kKnownEvents[i].name, static_cast<int>(i));
    }
    for (const std::string& ignored : options.ignored) name_number_[ignored] = kIgnored;
  }

  Result<void> Add(std::string_view bytes, std::string_view name) {
    if (files_++ == 0) trace_.name = name;
    TextStream text(bytes, options_.most_bytes);
    TorchProfilerFile profiled;
    const Result<TraceHeader> read =
        ReadTraceEvents(text, [&](const TraceEvent& event, const TraceHeader& header) {
          return header.is_torch_profiler ? profiled.Take(event) : Take(event);
        });
    if (!read) return Fail(read, InFile(name));
    if (!read->is_torch_profiler) return {};
    auto rank = std::move(profiled).Finish(*read, files_ - 1);
    if (rank) rank = SinceFirstBase(*std::move(rank), read->base_time_ns);
    if (!rank) return Fail(rank, InFile(name));
    profiled_ranks_.push_back(*std::move(rank));
    return {};
  }

  Result<JobTrace> Finish() {
    Result<void> finished = Place();
    if (finished) finished = CheckRanks();
    if (finished) SplitIntoSteps();
    if (finished) finished = NumberMicrobatches();
    if (finished) finished = CheckJobTrace(trace_, options_.clock_tolerance);
    if (!finished) return Fail(finished, InFile(NameOfAll()));
    return std::move(trace_);
  }

 private:
  static constexpr int kIgnored = -1;
  static constexpr int kUnknownMicrobatch = -1;

  std::string NameOfAll() const {
    return files_ == 1 ? trace_.name
                       : fmt::format("{} and {}", trace_.name, Counted(files_ - 1, "other file"));
  }

  // Files of torch.profiler may count time from different bases.
  Result<ProfiledRank> SinceFirstBase(ProfiledRank rank, std::int64_t base_ns) {
    constexpr std::int64_t kLargestBase = 4'000'000'000'000'000'000;
    if (std::abs(base_ns) > kLargestBase) return Fail("baseTimeNanoseconds is out of range");
    if (profiled_ranks_.empty()) first_base_ns_ = base_ns;
    const Nanoseconds shift = base_ns - first_base_ns_;
    if (std::abs(shift) > kLargestBase / 4) {
      return Fail("baseTimeNanoseconds differs by years from that of {} (give files of one run)",
                  trace_.name);
    }
    for (StepEvent& one : rank.events) one.event.start += shift;
    return rank;
  }

  Result<void> Take(const TraceEvent& event) {
    if (event.phase == "X") return TakeSlice(event);
    if (event.phase == "M") {
      TakeMetadata(event);
      return {};
    }
    constexpr std::string_view kPhasesWithDuration = "BEben";
    if (event.phase.size() == 1 &&
        kPhasesWithDuration.find(event.phase) == std::string_view::npos) {
      return {};  // A counter, an instant or an arrow.
    }
    return Fail(
        "event {} ({}): ph {} is not supported (write an event with a duration as one event with "
        "ph \"X\")",
        event.index, Excerpt(event.name), Excerpt(event.phase));
  }

  template <typename... Args>
  static auto FailAt(const TraceEvent& event, MessageOf<Args...> message, Args&&... args) {
    return tl::unexpected<Error>(message(ErrorKind::kInput, std::forward<Args>(args)...)
                                     .In(fmt::format("event {} ({})", event.index, event.name)));
  }

  Result<void> TakeSlice(const TraceEvent& event) {
    if (event.pp_rank) return TakeNdtimeline(event);
    PERSEUS_ASSIGN_OR_RETURN(const int name, FindName(event));
    if (name == kIgnored) {
      std::erase(trace_.unused_ignored, event.name);
      return {};
    }
    UnplacedEvent taken;
    taken.event.name = name;
    taken.event.kind = kKnownEvents[At(name)].kind;
    taken.event.index = event.index;
    PERSEUS_RETURN_IF_ERROR(TakePlace(event, taken));
    PERSEUS_RETURN_IF_ERROR(TakeTimes(event, taken.event));
    PERSEUS_RETURN_IF_ERROR(TakeArguments(event, taken.event));
    events_.push_back(taken);
    return {};
  }

  // An event of veScale's ndtimeline.
  Result<void> TakeNdtimeline(const TraceEvent& event) {
    const auto known = name_number_.find(event.name);
    if (known == name_number_.end() || known->second == kIgnored) return {};
    UnplacedEvent taken;
    taken.event.name = known->second;
    taken.event.kind = kKnownEvents[At(known->second)].kind;
    taken.event.index = event.index;
    const bool is_taken = IsComputation(taken.event.kind) || event.name == "optimizer";
    if (!is_taken || event.tp_rank.value_or(0) != 0) return {};
    if (*event.pp_rank < 0 || *event.pp_rank > kLargestNumber) {
      return FailAt(event, "args.pp is out of range (expected the pp_rank, from 0)");
    }
    taken.event.pp_rank = static_cast<int>(*event.pp_rank);
    PERSEUS_RETURN_IF_ERROR(TakePlace(event, taken));
    taken.lane.reset();
    PERSEUS_RETURN_IF_ERROR(TakeTimes(event, taken.event));
    PERSEUS_RETURN_IF_ERROR(TakeArguments(event, taken.event));
    has_ndtimeline_ = true;
    events_.push_back(taken);
    return {};
  }

  // An index into kKnownEvents, or kIgnored.
  Result<int> FindName(const TraceEvent& event) const {
    const auto known = name_number_.find(event.name);
    if (known != name_number_.end()) return known->second;
    const bool is_planned = event.name.size() > 1 &&
                            event.name.find_first_not_of("0123456789", 1) == std::string::npos &&
                            std::string_view("FBIWR").find(event.name[0]) != std::string_view::npos;
    if (is_planned) {
      return Fail(
          "event {}: {} is a name in a trace that perseus wrote, which lacks communication (give "
          "the timeline that a job recorded, as in docs/replay.md)",
          event.index, Excerpt(event.name));
    }
    std::vector<std::string_view> names;
    for (const EventName& name : kKnownEvents) names.push_back(name.name);
    return Fail(
        "event {}: the name {} is unknown, so what waits for this event is unknown, too ({} Or "
        "use `ignore` if nothing waits for it)",
        event.index, Excerpt(event.name), DidYouMean(event.name, names));
  }

  Result<void> TakePlace(const TraceEvent& event, UnplacedEvent& taken) const {
    if (!event.process) {
      return FailAt(event, "pid is not a whole number (expected the dp_rank, from 0)");
    }
    if (!event.thread) return FailAt(event, "tid is not a whole number (expected the lane)");
    if (!event.step) return FailAt(event, "args.step is not a whole number (expected the step)");
    if (*event.process < 0 || *event.process > kLargestNumber) {
      return FailAt(event, "pid is out of range (expected the dp_rank, from 0)");
    }
    taken.event.dp_rank = static_cast<int>(*event.process);
    taken.lane = {files_, *event.process, *event.thread};
    taken.step = *event.step;
    return {};
  }

  Result<void> TakeTimes(const TraceEvent& event, JobEvent& taken) {
    // These comparisons are false for NaN, so NaN is refused.
    if (!event.timestamp_us || !(std::abs(*event.timestamp_us) <= kLatestMicroseconds)) {
      return FailAt(event, "ts is not a time (expected microseconds)");
    }
    constexpr double kLongestMicroseconds = kLongestSeconds * 1e6;
    if (!event.duration_us || !(std::abs(*event.duration_us) <= kLongestMicroseconds)) {
      return FailAt(event, "dur is not a duration (expected microseconds, from 0 to 1e12)");
    }
    if (*event.timestamp_us < 0) {
      return FailAt(event,
                    "ts is before 0: its clock jumps (fix ts, or count all from the first event)");
    }
    taken.start = std::llround(*event.timestamp_us * kMicrosecond);
    taken.duration = std::llround(*event.duration_us * kMicrosecond);
    if (taken.duration < 0) TakeNegativeDuration(event, taken);
    return {};
  }

  // The start and the end of a communication may come from the clocks of two hosts. So it may end
  // before it begins.
  void TakeNegativeDuration(const TraceEvent& event, JobEvent& taken) {
    if (-taken.duration <= options_.clock_tolerance) {
      ++trace_.negative_durations;
    } else {
      ++too_negative_durations_;
      if (!most_negative_ || *event.duration_us < *most_negative_->duration_us) {
        most_negative_ = event;
      }
    }
    taken.duration = 0;
  }

  Result<void> CheckNegativeDurations() const {
    if (!most_negative_) return {};
    return FailAt(*most_negative_,
                  "dur is {:g} us: the event ends before it begins by more than the clock "
                  "tolerance of {}, as {} in total (leave {} out, fix dur, or raise "
                  "`clock_tolerance`)",
                  *most_negative_->duration_us, InMilliseconds(options_.clock_tolerance),
                  too_negative_durations_ == 1
                      ? "1 event does"
                      : fmt::format("{} events do", too_negative_durations_),
                  too_negative_durations_ == 1 ? "its step" : "their steps");
  }

  Result<void> TakeArguments(const TraceEvent& event, JobEvent& taken) {
    // An event that belongs to no chunk has the chunk -1.
    const std::int64_t chunk = std::max<std::int64_t>(event.chunk.value_or(0), 0);
    if (chunk > kLargestNumber) {
      return FailAt(event, "args.model_chunk is out of range (expected the chunk)");
    }
    taken.chunk = static_cast<int>(chunk);
    if (IsComputation(taken.kind)) {
      const std::int64_t microbatch = event.microbatch.value_or(0);
      if (microbatch < 0 || microbatch > kLargestNumber) {
        return FailAt(event,
                      "args.mb_id is not a whole number from 0 to {} (expected the microbatch, or "
                      "null in every event: then the n-th forward of a rank is microbatch n)",
                      kLargestNumber);
      }
      has_microbatches_ |= event.microbatch.has_value();
      taken.microbatch = event.microbatch ? static_cast<int>(microbatch) : kUnknownMicrobatch;
    }
    const std::int64_t sequence = event.sequence.value_or(IsTransfer(taken.kind) ? -1 : 0);
    if (sequence < 0 || sequence > kLargestNumber) {
      return FailAt(event,
                    "args.seq_id is not a whole number from 0 to {} (expected the "
                    "number of this event among those of its name)",
                    kLargestNumber);
    }
    taken.sequence = static_cast<int>(sequence);
    return {};
  }

  void TakeMetadata(const TraceEvent& event) {
    if (event.name != "thread_name" || !event.process || !event.thread) return;
    lane_names_.insert_or_assign(Thread{files_, *event.process, *event.thread}, event.thread_name);
  }

  Result<void> Place() {
    if (!profiled_ranks_.empty() && !events_.empty()) {
      return Fail(
          "some files are traces of torch.profiler, and others are not (give files of one "
          "tracer)");
    }
    PERSEUS_ASSIGN_OR_RETURN(const auto profiled, PlaceProfiledRanks(std::move(profiled_ranks_)));
    for (const StepEvent& one : profiled) events_.push_back({one.event, one.step, std::nullopt});
    if (events_.empty()) return Fail("no event has ph \"X\" (record at least one step)");
    has_microbatches_ |= !profiled.empty();
    PERSEUS_RETURN_IF_ERROR(CheckNegativeDurations());
    return PlaceByLane();
  }

  Result<void> PlaceByLane() {
    std::map<Thread, Lane> lanes;
    std::map<std::string, int> number_of_lane;
    for (UnplacedEvent& unplaced : events_) {
      if (!unplaced.lane) continue;
      JobEvent& event = unplaced.event;
      auto lane = lanes.find(*unplaced.lane);
      if (lane == lanes.end()) {
        PERSEUS_ASSIGN_OR_RETURN(auto parsed, LaneOf(unplaced));
        lane = lanes.emplace(*unplaced.lane, std::move(parsed)).first;
      }
      event.pp_rank = lane->second.pp_rank;
      event.lane =
          number_of_lane.try_emplace(lane->second.name, static_cast<int>(number_of_lane.size()))
              .first->second;
    }
    return {};
  }

  Result<Lane> LaneOf(const UnplacedEvent& unplaced) const {
    const auto named = lane_names_.find(*unplaced.lane);
    const auto parsed = named == lane_names_.end() ? std::nullopt : ParseLane(named->second);
    const auto [file, pid, tid] = *unplaced.lane;
    const std::string what = fmt::format("event {} ({}, pid {}, tid {})", unplaced.event.index,
                                         kKnownEvents[At(unplaced.event.name)].name, pid, tid);
    if (!parsed) {
      return Fail("{}: its lane has {}, so its rank is unknown (expected thread_name {})", what,
                  named == lane_names_.end() ? "no thread_name"
                                             : "the thread_name " + Excerpt(named->second),
                  kLaneForm);
    }
    if (parsed->tp_rank != 0) {
      return Fail(
          "{}: this lane is TP rank {} (record TP rank 0 only: the GPUs of a stage run in step)",
          what, parsed->tp_rank);
    }
    if (parsed->pp_rank > kLargestNumber) return Fail("{}: its rank is out of range", what);
    return *parsed;
  }

  Result<void> CheckRanks() {
    std::map<int, std::unordered_set<int>> ranks_of_pipeline;
    for (const UnplacedEvent& unplaced : events_) {
      const JobEvent& event = unplaced.event;
      trace_.pipelines = std::max(trace_.pipelines, event.dp_rank + 1);
      trace_.pp_ranks = std::max(trace_.pp_ranks, event.pp_rank + 1);
      ranks_of_pipeline[event.dp_rank].insert(event.pp_rank);
    }
    for (int pipeline = 0; pipeline < trace_.pipelines; ++pipeline) {
      const auto found = ranks_of_pipeline.find(pipeline);
      if (found == ranks_of_pipeline.end()) {
        return Fail("dp_rank {} is missing, but dp_rank {} exists (record every pid)", pipeline,
                    trace_.pipelines - 1);
      }
      for (int rank = 0; rank < trace_.pp_ranks; ++rank) {
        if (!found->second.contains(rank)) {
          return Fail(
              "dp_rank {} has no pp_rank {}, but pp_rank {} exists (record every pp_rank of it)",
              pipeline, rank, trace_.pp_ranks - 1);
        }
      }
    }
    return {};
  }

  void SplitIntoSteps() {
    std::sort(events_.begin(), events_.end(),
              [](const UnplacedEvent& left, const UnplacedEvent& right) {
                const auto key = [](const UnplacedEvent& unplaced) {
                  const JobEvent& event = unplaced.event;
                  return std::make_tuple(unplaced.step, event.dp_rank, event.pp_rank, event.start,
                                         event.end(), event.index);
                };
                return key(left) < key(right);
              });
    for (const UnplacedEvent& unplaced : events_) {
      if (trace_.steps.empty() || trace_.steps.back().number != unplaced.step) {
        trace_.steps.emplace_back();
        trace_.steps.back().number = unplaced.step;
        trace_.steps.back().start = unplaced.event.start;
      }
      RecordedStep& step = trace_.steps.back();
      step.start = std::min(step.start, unplaced.event.start);
      step.events.push_back(unplaced.event);
    }
    std::stable_sort(trace_.steps.begin(), trace_.steps.end(),
                     [](const RecordedStep& left, const RecordedStep& right) {
                       return left.start < right.start;
                     });
    for (RecordedStep& step : trace_.steps) {
      for (JobEvent& event : step.events) {
        event.start -= step.start;
        step.time = std::max(step.time, event.end());
      }
    }
  }

  // Without microbatches in the file, the n-th forward of a rank and chunk is microbatch n, and so
  // is the n-th backward: schedules take microbatches in order.
  Result<void> NumberMicrobatches() {
    for (RecordedStep& step : trace_.steps) {
      std::map<std::tuple<int, int, EventKind, int>, int> next;
      for (JobEvent& event : step.events) {
        if (!IsComputation(event.kind)) continue;
        if (has_ndtimeline_) event.stage = event.chunk * trace_.pp_ranks + event.pp_rank;
        if (event.microbatch != kUnknownMicrobatch) continue;
        if (has_microbatches_) {
          return Fail(
              "{}: args.mb_id is missing, but other events have it (expected the microbatch)",
              Describe(event, step.number));
        }
        // Requires that the events of a rank are in the order of time.
        event.microbatch = next[{event.dp_rank, event.pp_rank, event.kind, event.chunk}]++;
      }
    }
    return {};
  }

  const TraceReadOptions& options_;
  int files_ = 0;
  std::vector<ProfiledRank> profiled_ranks_;  // One for each file of torch.profiler.
  std::int64_t first_base_ns_ = 0;
  bool has_ndtimeline_ = false;
  bool has_microbatches_ = false;
  std::unordered_map<std::string, int> name_number_;
  std::vector<UnplacedEvent> events_;
  std::map<Thread, std::string> lane_names_;
  // Events that end before they begin by more than the clock tolerance: how many, and the worst.
  int too_negative_durations_ = 0;
  std::optional<TraceEvent> most_negative_;
  JobTrace trace_;
};

std::span<const EventName> KnownEvents() { return kKnownEvents; }

std::string Describe(const JobEvent& event, std::int64_t step) {
  return fmt::format("event {} ({}, dp_rank {}, pp_rank {}, step {})", event.index,
                     kKnownEvents[static_cast<std::size_t>(event.name)].name, event.dp_rank,
                     event.pp_rank, step);
}

Result<JobTrace> ParseJobTrace(std::string_view bytes, std::string_view name,
                               const TraceReadOptions& options) {
  JobTraceReader reader(options);
  PERSEUS_RETURN_IF_ERROR(reader.Add(bytes, name));
  return reader.Finish();
}

JobTraceReader::JobTraceReader(const TraceReadOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
JobTraceReader::~JobTraceReader() = default;

Result<void> JobTraceReader::Add(std::string_view bytes, std::string_view name) {
  return impl_->Add(bytes, name);
}

Result<JobTrace> JobTraceReader::Finish() { return impl_->Finish(); }

}  // namespace perseus::replay
