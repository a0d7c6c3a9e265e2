// Times instructions on CUDA streams, and requests clocks in stream order. It never waits for the
// GPU.
//
//   begin   record(event 1)                  the driver records when the GPU reaches the event
//   end     record(event 2), host function   the function requests the next clock
//   later   the background thread queries event 2; once it is done, the thread reads
//           elapsed(base, 1) and elapsed(base, 2)
//
// The driver reports only the time between two events. A base is an event at a known time: a host
// function before it reads the clock. So all times are late by the time that the driver takes from
// the host function to the event (tens of microseconds). Durations are not affected. Elapsed times
// are floats in milliseconds. Up to 10 s, a float still resolves microseconds, so a new base is
// taken every 10 s.
//
// The first use creates all events. Host functions run one after the other in a thread of the
// driver. They block their stream meanwhile, and must not call the driver. So they are launched
// only for clock changes and for bases.
//
// After a failed call of the driver, the session no longer times instructions on streams or sets
// clocks for them. The training thread may be steps ahead of the GPU, so its own times and clocks
// would be wrong.
//
// Nothing is enqueued on a stream that is being captured: the work would run again with each launch
// of the graph, long after its session. By default, a capture also forbids every thread of the
// process to make the driver calls that the background thread needs, and such a call breaks the
// capture. So all calls that enqueue nothing are made in the relaxed mode, which is a setting of
// the thread.
//
// Thread safety: each part of the class says which thread may call it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "perseus/base/units.h"
#include "perseus/runtime/client/clock_requester.h"
#include "perseus/runtime/client/step_recorder.h"
#include "perseus/runtime/client/warnings.h"
#include "perseus/runtime/cuda/driver.h"

namespace perseus::client {

class StreamTimer {
 public:
  // Pairs of events: the most instructions that may be enqueued at a time.
  static constexpr int kPairs = 4096;
  static constexpr int kNone = -1;

  StreamTimer(ClockRequester& requester, Warnings& warnings)
      : requester_(requester), warnings_(warnings) {}
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  // ---- The training thread ----

  // Whether streams are timed. The first call takes milliseconds, because it creates the events.
  bool IsReady() { return state_.load(std::memory_order_acquire) == State::kReady || Prepare(); }
  // Returns false if the stream is being captured, or after a failure.
  bool MayEnqueueOn(cuda::Stream stream);
  // Returns the pair that gets the instruction's times. kNone: no pair is free, or the call failed.
  int Begin(cuda::Stream stream, Nanoseconds now);
  // Returns the pair. If the call fails, releases the pair and returns kNone.
  int End(int pair, cuda::Stream stream);
  // Releases a pair for which Times() will not be called.
  void Release(int pair) { Release(PairAt(pair)); }
  // Requests the clock when the stream reaches this point, unless that clock was already requested.
  // Returns the clock that will be published.
  int RequestClock(cuda::Stream stream, int wanted_mhz);
  int enqueued_mhz() const { return enqueued_clock_; }

  // ---- The background thread ----

  StreamTiming Times(int pair);
  void DestroyEvents();

  // ---- Any thread ----

  std::uint64_t failures() const { return failures_.load(std::memory_order_relaxed); }
  // How many host functions the driver has not run yet. They use this object.
  int outstanding() const { return outstanding_.load(std::memory_order_acquire); }
  // Warns about the problems that the training thread met.
  void ReportTroubles();

 private:
  enum class State { kNew, kReady, kFailed };
  static constexpr int kBases = 8;
  static constexpr int kMostRequests = 1024;

  struct Base {
    StreamTimer* timer = nullptr;
    cuda::Event event = nullptr;
    std::atomic<Nanoseconds> moment = 0;  // 0: the stream has not reached it.
    std::atomic<int> users = 0;           // Pairs that are measured from this base.
  };
  struct Pair {
    cuda::Event begin = nullptr;
    cuda::Event end = nullptr;
    int base = 0;
    std::atomic<bool> is_used = false;
  };
  struct PendingRequest {
    StreamTimer* timer = nullptr;
    int frequency_mhz = 0;
    std::atomic<bool> is_used = false;
  };

  Pair& PairAt(int i) { return pairs_[static_cast<std::size_t>(i)]; }
  Base& BaseAt(int i) { return bases_[static_cast<std::size_t>(i)]; }
  PendingRequest& RequestAt(int i) { return requests_[static_cast<std::size_t>(i)]; }
  bool Prepare();
  bool MakeEvents();
  bool MakeEventsRelaxed();
  // Prepares the background thread for calls of the driver. Returns whether this succeeded.
  bool EnterDriver();
  void TakeNewBase(cuda::Stream stream, Nanoseconds now);
  void Release(Pair& pair);
  // Returns whether the call succeeded. If not, streams are no longer timed.
  bool Check(cuda::Code result, const char* call);
  static void RunBase(void* base);
  static void RunRequest(void* request);

  ClockRequester& requester_;
  Warnings& warnings_;
  cuda::StreamDriver driver_;
  cuda::Context context_ = nullptr;
  std::atomic<State> state_ = State::kNew;

  std::unique_ptr<Pair[]> pairs_;
  std::unique_ptr<Base[]> bases_;
  std::unique_ptr<PendingRequest[]> requests_;
  int next_pair_ = 0;
  int next_request_ = 0;
  int base_ = kNone;  // The base in use.
  Nanoseconds base_taken_ = 0;

  int enqueued_ = 0;        // The last wanted clock that was enqueued. -1: unknown.
  int enqueued_clock_ = 0;  // The clock that will be published for it.
  std::uint32_t seen_resets_ = 0;
  bool has_entered_ = false;  // Whether EnterDriver() has succeeded.

  std::atomic<int> outstanding_ = 0;
  std::atomic<std::uint64_t> failures_ = 0;
  std::atomic<const char*> failed_call_ = nullptr;
  std::atomic<cuda::Code> failed_result_ = cuda::kSuccess;
  std::atomic<bool> has_met_capture_ = false;
  std::atomic<bool> has_run_out_ = false;  // Whether all pairs are in use.
};

}  // namespace perseus::client
