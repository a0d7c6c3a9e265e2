// Times instructions on CUDA streams, and requests clocks in the order of their work, without ever
// waiting for the GPU.
//
//   begin   record(event 1)                       the driver notes when the GPU gets there
//   end     record(event 2), host function(asks for the next clock)
//   later   the background thread queries event 2; once it is done, elapsed(base, 1) and
//   elapsed(base, 2)
//
// Events know only the time between each other. A base is an event whose moment is known: a host
// function in front of it notes the time, so all times are late by what the driver takes to go on
// from there (tens of microseconds), and durations are not. Since elapsed times are floats in
// milliseconds, a new base is taken every few seconds: at 10 s a float still tells microseconds.
//
// All events are made at the first use. Host functions run one after the other in a thread of the
// driver's, hold the stream up while they do, and must not call the driver; so they are launched
// only where the clock changes, and for bases.
//
// A call of the driver that fails ends all this for the session: the training thread may be steps
// ahead of the GPU, so its own times and clocks would be wrong ones.
//
// A stream that is being captured gets nothing enqueued: what would be captured would run again
// with each launch of the graph, long after its session. And by default a capture forbids every
// thread of the process what the background thread asks the driver, and breaks if it is asked all
// the same; so whatever is not enqueued is asked in the relaxed mode, which is a thread's own.
//
// Thread safety: Times() and DestroyEvents() are the background thread's, all else the training
// thread's.
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
  // Pairs of events: instructions that may be on their way at a time.
  static constexpr int kPairs = 4096;
  static constexpr int kNone = -1;

  StreamTimer(ClockRequester& requester, Warnings& warnings)
      : requester_(requester), warnings_(warnings) {}
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  // ---- The training thread ----

  // True if streams are timed. The first call takes milliseconds: it makes the events.
  bool IsReady() { return state_.load(std::memory_order_acquire) == State::kReady || Prepare(); }
  // False if the stream is being captured, and after a failure.
  bool MayEnqueueOn(cuda::Stream stream);
  // The pair that has the instruction's times; kNone if there is none left.
  int Begin(cuda::Stream stream, Nanoseconds now);
  // kNone if it failed; the pair is then released.
  int End(int pair, cuda::Stream stream);
  // For a pair that the background thread will not be asked for.
  void Release(int pair) { Release(PairAt(pair)); }
  // Asks for the clock when the stream gets there, if the last one on its way is another. The clock
  // that will be asked for.
  int RequestClock(cuda::Stream stream, int wanted_mhz);
  int enqueued_mhz() const { return enqueued_clock_; }

  // ---- The background thread ----

  StreamTiming Times(int pair);
  void DestroyEvents();

  // ---- Any thread ----

  std::uint64_t failures() const { return failures_.load(std::memory_order_relaxed); }
  // Host functions that the driver has not run yet; they use this object.
  int outstanding() const { return outstanding_.load(std::memory_order_acquire); }
  // Warns of what the training thread met.
  void ReportTroubles();

 private:
  enum class State { kNew, kReady, kFailed };
  static constexpr int kBases = 8;
  static constexpr int kMostRequests = 1024;

  struct Base {
    StreamTimer* timer = nullptr;
    cuda::Event event = nullptr;
    std::atomic<Nanoseconds> moment = 0;  // 0: not there yet.
    std::atomic<int> users = 0;           // Pairs that are measured from it.
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
  // The background thread may request the driver from here on.
  bool EnterDriver();
  void TakeNewBase(cuda::Stream stream, Nanoseconds now);
  void Release(Pair& pair);
  // Whether the call went well; if not, streams are timed no more.
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
  int base_ = kNone;  // The one in use.
  Nanoseconds base_taken_ = 0;

  int enqueued_ = 0;        // As wanted, on its way; -1: not known.
  int enqueued_clock_ = 0;  // What will be published for it.
  std::uint32_t seen_resets_ = 0;
  bool has_entered_ = false;  // The background thread.

  std::atomic<int> outstanding_ = 0;
  std::atomic<std::uint64_t> failures_ = 0;
  std::atomic<const char*> failed_call_ = nullptr;
  std::atomic<cuda::Code> failed_result_ = cuda::kSuccess;
  std::atomic<bool> has_met_capture_ = false;
  std::atomic<bool> has_run_out_ = false;  // Whether all pairs are in use.
};

}  // namespace perseus::client
