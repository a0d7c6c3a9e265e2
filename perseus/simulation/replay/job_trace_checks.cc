// Checks that a recorded timeline is complete and that its clocks do not jump.
#include "perseus/simulation/replay/job_trace_checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/limits.h"
#include "perseus/base/statistics.h"

namespace perseus::replay {
namespace {

class Checks {
 public:
  Checks(const JobTrace& trace, Nanoseconds clock_tolerance)
      : trace_(trace), clock_tolerance_(clock_tolerance) {}

  Result<void> Run() const {
    for (const RecordedStep& step : trace_.steps) {
      PERSEUS_RETURN_IF_ERROR(CheckStep(step));
    }
    return CheckOrderOfSteps();
  }

 private:
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
      if (early <= clock_tolerance_) continue;
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
        if (overlap > clock_tolerance_) {
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
        if (i > 0 && start < ends[gpu] - clock_tolerance_) {
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

  const JobTrace& trace_;
  const Nanoseconds clock_tolerance_;
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
      "half of the computations take {} than {:g} us, which is implausible (is the unit of ts "
      "and dur {}? Write them in microseconds)",
      median_ns < kShortest ? "no more" : "more", median_ns / kMicrosecond, unit);
}

}  // namespace

Result<void> CheckJobTrace(const JobTrace& trace, Nanoseconds clock_tolerance) {
  PERSEUS_RETURN_IF_ERROR(Checks(trace, clock_tolerance).Run());
  return CheckUnitOfTime(trace);
}

}  // namespace perseus::replay
