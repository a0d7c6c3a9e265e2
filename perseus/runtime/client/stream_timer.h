// Times instructions on CUDA streams, and requests clocks in stream order. It never waits for the
// GPU, and enqueues nothing but events.
//
//   begin   record(event 1)   the driver records when the GPU reaches the event
//   end     record(event 2), and a mark if the next instruction wants another clock
//   later   the watching thread queries event 2; once the GPU has passed it, the thread requests
//           the clock
//   later   the background thread reads elapsed(base, 1) and elapsed(base, 2)
//
// How a request follows the stream. Three ways were considered:
//   - A host function on the stream (cuLaunchHostFunc). It stops the stream for 0.11 ms in the
//     median (measured on an H100), and delays the send of the result behind it.
//   - A host function on a stream of its own, which waits for event 2. With
//     CUDA_DEVICE_MAX_CONNECTIONS=1, all streams share one queue of the GPU, so the waiting stream
//     holds up the others.
//   - A thread that queries event 2. The event is recorded in any case, so the GPU does no
//     additional work. This one is used. PollTimes says when the thread looks.
//
// The driver reports only the time between two events. A base is an event at a known time: the
// watching thread saw that the GPU had not passed the base, and some microseconds later that it
// had. A new base is taken every second. Its time is the time of the base before it, plus the time
// between the two events, but never outside of what the thread saw. So a base that the thread saw
// late, because it followed another event meanwhile, is as exact as the others, and the clocks of
// the GPU and of the host do not drift apart. Elapsed times are floats in milliseconds. In seconds,
// a float still resolves a microsecond.
//
// The first use creates all events. All calls are made in the context of the first stream
// (stream_context.h).
//
// After a failed call of the driver, the session no longer times instructions on streams or sets
// clocks for them. The training thread may be steps ahead of the GPU, so its own times and clocks
// would be wrong.
//
// Nothing is enqueued on a stream that is being captured: the work would run again with each launch
// of the graph, long after its session. By default, a capture also forbids every thread of the
// process to make the driver calls that the other two threads need, and such a call breaks the
// capture. So all calls that enqueue nothing are made in the relaxed mode, which is a setting of
// the thread.
//
// Thread safety: each part of the class says which thread may call it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/units.h"
#include "perseus/runtime/client/clock_requester.h"
#include "perseus/runtime/client/clock_table.h"
#include "perseus/runtime/client/ring.h"
#include "perseus/runtime/client/step_recorder.h"
#include "perseus/runtime/client/stream_context.h"
#include "perseus/runtime/client/warnings.h"
#include "perseus/runtime/cuda/driver.h"

namespace perseus::client {

class StreamTimer {
 public:
  // Pairs of events: the most instructions that may be enqueued at a time.
  static constexpr int kPairs = 4096;
  static constexpr int kNone = -1;

  StreamTimer(ClockRequester& requester, Warnings& warnings)
      : requester_(requester), warnings_(warnings), marks_(kPairs) {}
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  // ---- The training thread ----

  // Creates the events, for streams of this stream's context. Takes milliseconds. `gpu` is the UUID
  // of the session's GPU; empty: unknown. Returns whether streams are timed. If not, warns.
  bool Prepare(cuda::Stream stream, const std::string& gpu);
  bool IsNew() const { return state_.load(std::memory_order_acquire) == State::kNew; }
  // Whether streams are timed.
  bool IsReady() const { return state_.load(std::memory_order_acquire) == State::kReady; }
  // While the result lives, the thread may call the functions below.
  InContext Enter() const { return {driver_, context_}; }
  // Returns false if the stream is being captured, or after a failure.
  bool MayEnqueueOn(cuda::Stream stream);
  // Returns the pair that gets the instruction's times. kNone: no pair is free, or the call failed.
  int Begin(cuda::Stream stream, InstructionKind kind, int chunk, Nanoseconds now);
  // Returns the pair, which then has two users: the training thread and the record. If the call
  // fails, releases the pair and returns kNone.
  int End(int pair, cuda::Stream stream);
  // Call it once for each user of a pair, except for the record if Times() will be called.
  void Release(int pair) { Release(PairAt(pair)); }
  // Requests the clock when the GPU passes the begin or the end of the pair, unless that clock was
  // already requested. With a `lead`, so long before the usual time of the end. Without a pair
  // (kNone), the plan cannot be followed: requests the default clock at once.
  enum class Moment { kBegin, kEnd };
  void RequestClock(int pair, Moment moment, int wanted_mhz, Nanoseconds now, Nanoseconds lead = 0);
  // Requests the default clock at once, and drops all requests on the way.
  void RequestDefaultClock(Nanoseconds now);
  // Call it after a request that did not go through this class.
  void ForgetRequest() { enqueued_ = kUnknown; }
  // The clock that the last instruction gets.
  int enqueued_mhz() const { return enqueued_clock_; }

  // ---- The watching thread ----

  // Follows the GPU, and requests the clocks, until `is_over` (of the LiveSession) is not 0.
  void Watch(const std::atomic<std::uint32_t>& is_over);

  // ---- The background thread ----

  StreamTiming Times(int pair);
  // Call these when `is_over` is not 0. The first waits up to 0.1 s for the watching thread, which
  // may hang in the driver. In that case, the second does nothing.
  bool HasStoppedWatching();
  void DestroyEvents();

  // ---- Any thread ----

  std::uint64_t failures() const { return failures_.load(std::memory_order_relaxed); }
  // Warns about the problems that the training thread met.
  void ReportTroubles();
  // No thread can watch, so streams are not timed.
  void Fail() {
    state_.store(State::kFailed, std::memory_order_release);
    watchers_.store(0);
  }

 private:
  enum class State { kNew, kReady, kFailed };
  static constexpr int kUnknown = -1;
  static constexpr int kBases = 8;
  static constexpr int kChunks = 16;  // Chunks with a usual duration of their own.

  struct Base {
    cuda::Event event = nullptr;
    std::atomic<Nanoseconds> moment = 0;  // 0: the GPU has not passed it.
    // The watching thread, and pairs that are measured from this base.
    std::atomic<int> users = 0;
  };
  struct Pair {
    cuda::Event begin = nullptr;
    cuda::Event end = nullptr;
    int base = 0;
    std::size_t usual = 0;          // The index of its usual duration.
    cuda::Stream stream = nullptr;  // The stream of the event that was recorded last.
    std::atomic<int> users = 0;     // The training thread, the record, and marks.
  };
  // What the watching thread does when the GPU passes an event.
  struct Mark {
    enum class Kind { kBase, kBegin, kEnd } kind = Kind::kBase;
    int index = 0;       // The number of the base or the pair.
    int wanted_mhz = 0;  // Only for kBegin and kEnd.
    Nanoseconds since = 0;
    cuda::Stream stream = nullptr;
    std::uint32_t round = 0;  // A request of an earlier round is dropped.
    Nanoseconds lead = 0;     // Only for kEnd.
  };
  // The GPU passed an event in (after, until].
  struct Passed {
    Nanoseconds after = 0;
    Nanoseconds until = 0;
  };

  Pair& PairAt(int i) { return pairs_[static_cast<std::size_t>(i)]; }
  Base& BaseAt(int i) { return bases_[static_cast<std::size_t>(i)]; }
  bool MakeEvents();
  // Prepares the calling thread for calls of the driver that enqueue nothing. Returns whether this
  // succeeded.
  bool EnterDriver(bool& has_entered);
  void TakeNewBase(cuda::Stream stream, Nanoseconds now);
  bool PushMark(const Mark& mark);
  void Release(Pair& pair);
  // Returns whether the call succeeded. If not, streams are no longer timed.
  bool Check(cuda::Code result, const char* call);

  std::optional<Passed> WaitFor(const Mark& mark, const std::atomic<std::uint32_t>& is_over);
  std::optional<bool> HasPassed(cuda::Event event);
  std::optional<Nanoseconds> Elapsed(cuda::Event from, cuda::Event to);
  void Act(const Mark& mark, const Passed& passed);
  void KnowBase(int index, const Passed& passed);
  void Request(int wanted_mhz);

  ClockRequester& requester_;
  Warnings& warnings_;
  cuda::StreamDriver driver_;
  cuda::Context context_ = nullptr;
  std::atomic<State> state_ = State::kNew;

  std::unique_ptr<Pair[]> pairs_;
  std::unique_ptr<Base[]> bases_;
  int next_pair_ = 0;
  int base_ = kNone;  // The base in use.
  Nanoseconds base_taken_ = 0;

  int enqueued_ = 0;        // The last wanted clock that was enqueued, or kUnknown.
  int enqueued_clock_ = 0;  // The clock that will be published for it.
  std::uint32_t seen_resets_ = 0;

  Ring<Mark> marks_;
  std::atomic<std::uint32_t> pushes_ = 0;    // Changes with each mark.
  std::atomic<bool> is_asleep_ = false;      // Whether the watching thread waits for a mark.
  std::atomic<std::uint32_t> watchers_ = 0;  // Threads that are, or will be, in Watch().
  std::atomic<std::uint32_t> round_ = 0;     // Increases with each RequestDefaultClock().
  std::atomic<bool> has_lost_request_ = false;
  // The durations of the last instructions that were watched.
  std::array<Nanoseconds, std::size_t{ClockTable::kKinds} * kChunks> usual_{};
  // The watching thread's:
  Nanoseconds last_passed_ = 0;         // When the event of the last mark had not been passed yet.
  cuda::Stream last_stream_ = nullptr;  // Its stream.
  int known_base_ = kNone;              // The last base with a known time. It has a user for this.
  bool background_has_entered_ = false;

  std::atomic<std::uint64_t> failures_ = 0;
  std::atomic<const char*> failed_call_ = nullptr;
  std::atomic<cuda::Code> failed_result_ = cuda::kSuccess;
  std::atomic<bool> has_met_capture_ = false;
  std::atomic<bool> has_run_out_ = false;  // Whether all pairs are in use.
};

}  // namespace perseus::client
