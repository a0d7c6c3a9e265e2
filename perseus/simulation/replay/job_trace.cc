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
#include "perseus/base/statistics.h"
#include "perseus/base/wording.h"
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
// Chrome counts microseconds, and some tracers count them since 1970. With larger values, a number
// of nanoseconds would overflow.
constexpr double kLatestMicroseconds = 4e15;
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

using Thread = std::pair<std::int64_t, std::int64_t>;

// An event whose rank is not known yet, because a lane's name may follow its events.
struct UnplacedEvent {
  JobEvent event;
  std::int64_t step = 0;
  Thread thread;
};

class Reader {
 public:
  Reader(std::string_view name, const TraceReadOptions& options) : options_(options) {
    trace_.name = name;
    trace_.unused_ignored = options.ignored;
    for (std::size_t i = 0; i < kKnownEvents.size(); ++i) {
      name_number_.emplace(kKnownEvents[i].name, static_cast<int>(i));
    }
    for (const std::string& ignored : options.ignored) name_number_[ignored] = kIgnored;
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

  Result<JobTrace> Finish() {
    if (events_.empty()) {
      return Fail("no event has ph \"X\" (record at least one step)");
    }
    PERSEUS_RETURN_IF_ERROR(CheckNegativeDurations());
    PERSEUS_RETURN_IF_ERROR(PlaceOnRanks());
    SplitIntoSteps();
    for (const RecordedStep& step : trace_.steps) {
      PERSEUS_RETURN_IF_ERROR(CheckStep(step));
    }
    PERSEUS_RETURN_IF_ERROR(CheckOrderOfSteps());
    return std::move(trace_);
  }

 private:
  static constexpr int kIgnored = -1;

  template <typename... Args>
  static auto FailAt(const TraceEvent& event, MessageOf<Args...> message, Args&&... args) {
    return tl::unexpected<Error>(message(ErrorKind::kInput, std::forward<Args>(args)...)
                                     .In(fmt::format("event {} ({})", event.index, event.name)));
  }

  Result<void> TakeSlice(const TraceEvent& event) {
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

  // An index into kKnownEvents, or kIgnored.
  Result<int> FindName(const TraceEvent& event) const {
    const auto known = name_number_.find(event.name);
    if (known != name_number_.end()) return known->second;
    std::vector<std::string_view> names;
    for (const EventName& name : kKnownEvents) names.push_back(name.name);
    return Fail(
        "event {}: the name {} is unknown, so what waits for this event is unknown, too ({} Or "
        "use `ignore` if nothing waits for it)",
        event.index, Excerpt(event.name), DidYouMean(event.name, names));
  }

  static Result<void> TakePlace(const TraceEvent& event, UnplacedEvent& taken) {
    if (!event.process) {
      return FailAt(event, "pid is not a whole number (expected the dp_rank, from 0)");
    }
    if (!event.thread) return FailAt(event, "tid is not a whole number (expected the lane)");
    if (!event.step) return FailAt(event, "args.step is not a whole number (expected the step)");
    if (*event.process < 0 || *event.process > kLargestNumber) {
      return FailAt(event, "pid is out of range (expected the dp_rank, from 0)");
    }
    taken.event.dp_rank = static_cast<int>(*event.process);
    taken.thread = {*event.process, *event.thread};
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

  static Result<void> TakeArguments(const TraceEvent& event, JobEvent& taken) {
    // An event that belongs to no chunk has the chunk -1.
    const std::int64_t chunk = std::max<std::int64_t>(event.chunk.value_or(0), 0);
    if (chunk > kLargestNumber) {
      return FailAt(event, "args.model_chunk is out of range (expected the chunk)");
    }
    taken.chunk = static_cast<int>(chunk);
    if (IsComputation(taken.kind)) {
      if (!event.microbatch || *event.microbatch < 0 || *event.microbatch > kLargestNumber) {
        return FailAt(event,
                      "args.mb_id is not a whole number from 0 to {} (expected the "
                      "microbatch)",
                      kLargestNumber);
      }
      taken.microbatch = static_cast<int>(*event.microbatch);
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
    lane_names_.insert_or_assign(Thread{*event.process, *event.thread}, event.thread_name);
  }

  Result<void> PlaceOnRanks() {
    std::map<Thread, Lane> lanes;
    std::map<std::string, int> number_of_lane;
    std::map<int, std::unordered_set<int>> ranks_of_pipeline;
    for (UnplacedEvent& unplaced : events_) {
      JobEvent& event = unplaced.event;
      auto lane = lanes.find(unplaced.thread);
      if (lane == lanes.end()) {
        const auto named = lane_names_.find(unplaced.thread);
        const auto parsed = named == lane_names_.end() ? std::nullopt : ParseLane(named->second);
        const auto [pid, tid] = unplaced.thread;
        const std::string what = fmt::format("event {} ({}, pid {}, tid {})", event.index,
                                             kKnownEvents[At(event.name)].name, pid, tid);
        if (!parsed) {
          return Fail("{}: its lane has {}, so its rank is unknown (expected thread_name {})", what,
                      named == lane_names_.end() ? "no thread_name"
                                                 : "the thread_name " + Excerpt(named->second),
                      kLaneForm);
        }
        if (parsed->tp_rank != 0) {
          return Fail(
              "{}: this lane is TP rank {} (record TP rank 0 only: the GPUs of a stage run in "
              "step)",
              what, parsed->tp_rank);
        }
        if (parsed->pp_rank > kLargestNumber) return Fail("{}: its rank is out of range", what);
        lane = lanes.emplace(unplaced.thread, *parsed).first;
        ranks_of_pipeline[event.dp_rank].insert(parsed->pp_rank);
      }
      event.pp_rank = lane->second.pp_rank;
      event.lane =
          number_of_lane.try_emplace(lane->second.name, static_cast<int>(number_of_lane.size()))
              .first->second;
      trace_.pipelines = std::max(trace_.pipelines, event.dp_rank + 1);
      trace_.pp_ranks = std::max(trace_.pp_ranks, event.pp_rank + 1);
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

  // Calls `check` with the events of each (dp_rank, pp_rank) that has events.
  template <typename Check>
  static Result<void> ForEachRank(const RecordedStep& step, Check check) {
    std::span<const JobEvent> rest = step.events;
    while (!rest.empty()) {
      std::size_t end = 0;
      while (end < rest.size() && rest[end].dp_rank == rest[0].dp_rank &&
             rest[end].pp_rank == rest[0].pp_rank) {
        ++end;
      }
      if (Result<void> checked = check(rest.first(end)); !checked) return checked;
      rest = rest.subspan(end);
    }
    return {};
  }

  Result<void> CheckStep(const RecordedStep& step) const {
    if (ToSeconds(step.time) > kLongestSeconds) {
      const auto last = std::ranges::max_element(step.events, {}, &JobEvent::end);
      return Fail(
          "{}: it ends {:.0f} s after the step began: its clock jumps (expected {} s at most)",
          Describe(*last, step.number), ToSeconds(step.time), kLongestSeconds);
    }
    const bool takes_time = std::ranges::any_of(step.events, [](const JobEvent& event) {
      return IsComputation(event.kind) && event.duration > 0;
    });
    if (!takes_time) {
      return Fail("step {}: all its computations have the duration 0 (record dur, in us)",
                  step.number);
    }
    int next_rank = 0;  // Counts the ranks of all pipelines.
    std::vector<std::pair<int, int>> of_first_rank;
    Result<void> checked = ForEachRank(step, [&](std::span<const JobEvent> events) -> Result<void> {
      const int rank = events[0].dp_rank * trace_.pp_ranks + events[0].pp_rank;
      if (rank != next_rank) return FailForMissingRank(step, next_rank);
      ++next_rank;
      PERSEUS_RETURN_IF_ERROR(CheckDuplicates(step, events));
      PERSEUS_ASSIGN_OR_RETURN(auto computed, CheckComputations(step, events));
      if (events[0].pp_rank == 0) of_first_rank = computed;
      if (computed != of_first_rank) {
        return FailOfDifference(step, events[0], of_first_rank, computed);
      }
      const int last_chunk = computed.back().first;
      auto forwards = CheckReceived(step, events, EventKind::kForward, {0, 0});
      if (!forwards) return forwards;
      return CheckReceived(step, events, EventKind::kBackward, {trace_.pp_ranks - 1, last_chunk});
    });
    if (!checked) return checked;
    if (next_rank != trace_.gpus()) return FailForMissingRank(step, next_rank);
    return {};
  }

  // Other checks find duplicates of computations, transfers and collectives, even at other times.
  static Result<void> CheckDuplicates(const RecordedStep& step, std::span<const JobEvent> events) {
    const auto key = [](const JobEvent& event) {
      return std::tuple(event.start, event.duration, event.lane, event.name, event.sequence);
    };
    std::map<decltype(key(events[0])), const JobEvent*> seen;
    for (const JobEvent& event : events) {
      if (IsComputation(event.kind) || event.duration == 0) continue;
      const auto [same, is_new] = seen.try_emplace(key(event), &event);
      if (is_new) continue;
      return Fail("{}: event {} is equal to it (keep one of them)", Describe(event, step.number),
                  same->second->index);
    }
    return {};
  }

  Result<void> FailForMissingRank(const RecordedStep& step, int rank) const {
    return Fail(
        "step {}: dp_rank {}, pp_rank {} has no events, but it has events in other steps (leave "
        "the step out, or record every rank)",
        step.number, rank / trace_.pp_ranks, rank % trace_.pp_ranks);
  }

  // Checks that each computation of a kind begins after its input was received. The trace does not
  // show which transfer belongs to which computation. But before the k-th computation, k transfers
  // must have ended. The computations of `first` (rank, chunk) receive nothing.
  Result<void> CheckReceived(const RecordedStep& step, std::span<const JobEvent> events,
                             EventKind kind, std::pair<int, int> first) const {
    const EventKind receive =
        kind == EventKind::kForward ? EventKind::kForwardReceive : EventKind::kBackwardReceive;
    std::vector<const JobEvent*> computations;
    std::vector<const JobEvent*> received;
    for (const JobEvent& event : events) {
      if (event.kind == receive) received.push_back(&event);
      if (event.kind == kind && std::pair(event.pp_rank, event.chunk) != first) {
        computations.push_back(&event);
      }
    }
    // The counts differ if transfers are batched, or not recorded. In the latter case, a later
    // check finds a send without a receive.
    if (computations.size() != received.size()) return {};
    std::ranges::stable_sort(received, {}, &JobEvent::end);
    for (std::size_t i = 0; i < received.size(); ++i) {
      const JobEvent& event = *computations[i];
      const Nanoseconds early = received[i]->end() - event.start;
      if (early <= options_.clock_tolerance) continue;
      return Fail(
          "{}: it begins {} before what it computes on was received by event {}: its clock jumps "
          "(leave the step out, or fix ts)",
          Describe(event, step.number), InMilliseconds(early), received[i]->index);
    }
    return {};
  }

  // Checks the computations of a rank, and returns their sorted (chunk, microbatch) pairs.
  Result<std::vector<std::pair<int, int>>> CheckComputations(
      const RecordedStep& step, std::span<const JobEvent> events) const {
    std::array<std::map<std::pair<int, int>, const JobEvent*>, 2> done;  // Forward, backward.
    const JobEvent* previous = nullptr;
    for (const JobEvent& event : events) {
      if (!IsComputation(event.kind)) continue;
      const auto [same, is_new] = done[event.kind == EventKind::kForward ? 0 : 1].try_emplace(
          {event.chunk, event.microbatch}, &event);
      if (!is_new) {
        return Fail("{}: event {} already computes microbatch {} of chunk {} (keep one of them)",
                    Describe(event, step.number), same->second->index, event.microbatch,
                    event.chunk);
      }
      if (previous != nullptr) {
        const Nanoseconds overlap = std::min(previous->end(), event.end()) - event.start;
        if (overlap > options_.clock_tolerance) {
          return Fail(
              "{}: it begins {} before event {} on the same rank has ended: its clock jumps (leave "
              "the step out, or fix ts)",
              Describe(event, step.number), InMilliseconds(previous->end() - event.start),
              previous->index);
        }
      }
      if (previous == nullptr || event.end() > previous->end()) previous = &event;
    }
    if (done[0].empty() && done[1].empty()) {
      return Fail("{}: its rank has no computation in this step (record its compute lane)",
                  Describe(events[0], step.number));
    }
    std::vector<std::pair<int, int>> pairs;
    for (std::size_t i = 0; i < 2; ++i) {
      for (const auto& [pair, event] : done[i]) {
        if (!done[1 - i].contains(pair)) {
          return Fail("{}: its microbatch {} has no {}-compute (leave the step out)",
                      Describe(*event, step.number), pair.second, i == 0 ? "backward" : "forward");
        }
        if (i == 0) pairs.push_back(pair);
      }
    }
    return pairs;
  }

  Result<void> FailOfDifference(const RecordedStep& step, const JobEvent& on_rank,
                                const std::vector<std::pair<int, int>>& first,
                                const std::vector<std::pair<int, int>>& other) const {
    std::vector<std::pair<int, int>> missing;
    std::set_symmetric_difference(first.begin(), first.end(), other.begin(), other.end(),
                                  std::back_inserter(missing));
    const auto [chunk, microbatch] = missing.front();
    const bool is_here = std::binary_search(other.begin(), other.end(), missing.front());
    return Fail(
        "step {}: dp_rank {}, pp_rank {} does not compute microbatch {} of chunk {}, but pp_rank "
        "{} does (events are missing: leave the step out)",
        step.number, on_rank.dp_rank, is_here ? 0 : on_rank.pp_rank, microbatch, chunk,
        is_here ? on_rank.pp_rank : 0);
  }

  Result<void> CheckOrderOfSteps() const {
    const auto gpus = static_cast<std::size_t>(trace_.gpus());
    std::vector<Nanoseconds> ends(gpus, 0);  // The ends of the previous step.
    for (std::size_t i = 0; i < trace_.steps.size(); ++i) {
      const RecordedStep& step = trace_.steps[i];
      if (i > 0 && step.number < trace_.steps[i - 1].number) {
        const RecordedStep& early = trace_.steps[i - 1];
        return Fail(
            "{}: it begins {} before step {} does: its clock jumps (fix ts, or number the steps in "
            "the order of time)",
            Describe(*std::ranges::min_element(early.events, {}, &JobEvent::start), early.number),
            InMilliseconds(step.start - early.start), step.number);
      }
      std::vector<Nanoseconds> latest(gpus, step.start);
      for (const JobEvent& event : step.events) {
        const std::size_t gpu = At(event.dp_rank * trace_.pp_ranks + event.pp_rank);
        const Nanoseconds start = step.start + event.start;
        if (i > 0 && start < ends[gpu] - options_.clock_tolerance) {
          return Fail(
              "{}: it begins {} before its rank has ended step {}: its clock jumps (leave one of "
              "the steps out, or fix ts)",
              Describe(event, step.number), InMilliseconds(ends[gpu] - start),
              trace_.steps[i - 1].number);
        }
        latest[gpu] = std::max(latest[gpu], start + event.duration);
      }
      ends = std::move(latest);
    }
    return {};
  }

  static std::string InMilliseconds(Nanoseconds time) {
    return fmt::format("{:.3f} ms", ToMilliseconds(time));
  }

  const TraceReadOptions& options_;
  std::unordered_map<std::string, int> name_number_;
  std::vector<UnplacedEvent> events_;
  std::map<Thread, std::string> lane_names_;
  // Events that end before they begin by more than the clock tolerance: how many, and the worst.
  int too_negative_durations_ = 0;
  std::optional<TraceEvent> most_negative_;
  JobTrace trace_;
};

// Fails if the unit of the times is probably not the microsecond. A computation of a microbatch
// starts tens of kernels, and each takes several microseconds. The computation takes less than ten
// seconds, because an iteration has many computations.
Result<void> CheckUnitOfTime(const JobTrace& trace) {
  constexpr Nanoseconds kShortest = 50 * kMicrosecond;
  constexpr Nanoseconds kLongest = 10 * kSecond;
  // A trace with times in seconds is read as if the times were in microseconds. Then a computation
  // of up to 1 s has at most this length.
  constexpr Nanoseconds kShortestInMilliseconds = 1'000;
  std::vector<double> durations_ns;
  for (const RecordedStep& step : trace.steps) {
    for (const JobEvent& event : step.events) {
      if (IsComputation(event.kind)) durations_ns.push_back(static_cast<double>(event.duration));
    }
  }
  const double median_ns = Median(std::move(durations_ns));
  // If most durations are 0, they say nothing about the unit.
  if (median_ns == 0 || (median_ns >= kShortest && median_ns <= kLongest)) return {};
  const std::string_view unit = median_ns > kLongest                  ? "nanoseconds"
                                : median_ns < kShortestInMilliseconds ? "seconds"
                                                                      : "milliseconds";
  return Fail(
      InFile(trace.name),
      "half of the computations take {} than {:g} us, which is implausible (is the unit of ts "
      "and dur {}? Write them in microseconds)",
      median_ns < kShortest ? "no more" : "more", median_ns / kMicrosecond, unit);
}

}  // namespace

std::span<const EventName> KnownEvents() { return kKnownEvents; }

std::string Describe(const JobEvent& event, std::int64_t step) {
  return fmt::format("event {} ({}, dp_rank {}, pp_rank {}, step {})", event.index,
                     kKnownEvents[static_cast<std::size_t>(event.name)].name, event.dp_rank,
                     event.pp_rank, step);
}

Result<JobTrace> ParseJobTrace(std::string_view bytes, std::string_view name,
                               const TraceReadOptions& options) {
  TextStream text(bytes, options.most_bytes);
  Reader reader(name, options);
  const Result<void> read =
      ReadTraceEvents(text, [&](const TraceEvent& event) { return reader.Take(event); });
  if (!read) return Fail(read, InFile(name));
  Result<JobTrace> trace = reader.Finish();
  if (!trace) return Fail(trace, InFile(name));
  PERSEUS_RETURN_IF_ERROR(CheckUnitOfTime(*trace));
  return trace;
}

}  // namespace perseus::replay
