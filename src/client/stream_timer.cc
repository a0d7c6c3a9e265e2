#include "perseus/client/stream_timer.h"

#include <fmt/format.h>

#include <ctime>
#include <thread>
#include <utility>

namespace perseus {
namespace {

constexpr Nanoseconds kNewBaseAfter = 10'000'000'000;
constexpr double kNanosecondsPerMillisecond = 1e6;
constexpr unsigned kWithTiming = 0;  // CU_EVENT_DEFAULT

Nanoseconds Now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return Nanoseconds{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Nanoseconds FromMilliseconds(float milliseconds) {
  return static_cast<Nanoseconds>(static_cast<double>(milliseconds) * kNanosecondsPerMillisecond);
}

}  // namespace

// ---- The first use ----

bool StreamTimer::Prepare() {
  if (state_.load(std::memory_order_relaxed) == State::kFailed) return false;
  const auto driver = LoadCudaDriver();
  if (!driver) {
    failures_.fetch_add(1, std::memory_order_relaxed);
    state_.store(State::kFailed, std::memory_order_release);
    warnings_.Once("stream", driver.error().message +
                                 "; instructions on streams are timed by the "
                                 "thread that launches them");
    return false;
  }
  driver_ = *driver;
  if (!MakeEvents()) return false;
  state_.store(State::kReady, std::memory_order_release);
  return true;
}

bool StreamTimer::MakeEvents() {
  pairs_ = std::make_unique<Pair[]>(kPairs);
  bases_ = std::make_unique<Base[]>(kBases);
  asks_ = std::make_unique<PendingAsk[]>(kAsks);
  if (!Check(driver_.context_get_current(&context_), "cuCtxGetCurrent")) return false;
  for (int i = 0; i < kBases; ++i) {
    bases_[i].timer = this;
    if (!Check(driver_.event_create(&bases_[i].event, kWithTiming), "cuEventCreate")) return false;
  }
  for (int i = 0; i < kPairs; ++i) {
    if (!Check(driver_.event_create(&pairs_[i].begin, kWithTiming), "cuEventCreate") ||
        !Check(driver_.event_create(&pairs_[i].end, kWithTiming), "cuEventCreate")) {
      return false;
    }
  }
  for (int i = 0; i < kAsks; ++i) asks_[i].timer = this;
  return true;
}

bool StreamTimer::Check(CudaResult result, const char* call) {
  if (result == kCudaSuccess) return true;
  failures_.fetch_add(1, std::memory_order_relaxed);
  failed_result_.store(result, std::memory_order_relaxed);
  failed_call_.store(call, std::memory_order_release);
  state_.store(State::kFailed, std::memory_order_release);
  return false;
}

void StreamTimer::TellTroubles() {
  if (const char* call = failed_call_.load(std::memory_order_acquire); call != nullptr) {
    warnings_.Once("stream",
                   fmt::format("the CUDA driver's {} failed with {}; instructions on streams are "
                               "timed by the thread that launches them from now on",
                               call, failed_result_.load(std::memory_order_relaxed)));
  }
  if (has_met_capture_.load(std::memory_order_relaxed)) {
    warnings_.Once("capture",
                   "instructions were begun on a stream that is being captured into a graph, and "
                   "are passed over (put the calls around the launch of the graph)");
  }
}

// ---- The training thread ----

bool StreamTimer::IsCapturing(CudaStream stream) {
  int status = kCudaNotCapturing;
  if (!Check(driver_.stream_is_capturing(stream, &status), "cuStreamIsCapturing")) return false;
  if (status == kCudaNotCapturing) return false;
  has_met_capture_.store(true, std::memory_order_relaxed);
  return true;
}

void StreamTimer::TakeNewBase(CudaStream stream, Nanoseconds now) {
  const int next = (base_ + 1) % kBases;
  Base& base = bases_[next];
  // Still needed: the one in use serves a little longer, a little less exactly.
  if (base.users.load(std::memory_order_acquire) != 0) return;
  base.moment.store(0, std::memory_order_relaxed);
  outstanding_.fetch_add(1, std::memory_order_relaxed);
  if (!Check(driver_.launch_host_function(stream, RunBase, &base), "cuLaunchHostFunc")) {
    outstanding_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  if (!Check(driver_.event_record(base.event, stream), "cuEventRecord")) return;
  base_ = next;
  base_taken_ = now;
}

void StreamTimer::RunBase(void* argument) {
  Base& base = *static_cast<Base*>(argument);
  base.moment.store(Now(), std::memory_order_release);
  base.timer->outstanding_.fetch_sub(1, std::memory_order_release);
}

int StreamTimer::Begin(CudaStream stream, Nanoseconds now) {
  if (base_ == kNone || now > base_taken_ + kNewBaseAfter) TakeNewBase(stream, now);
  if (base_ == kNone || state_.load(std::memory_order_relaxed) == State::kFailed) return kNone;
  Pair& pair = pairs_[next_pair_];
  if (pair.is_used.load(std::memory_order_acquire)) return kNone;
  if (!Check(driver_.event_record(pair.begin, stream), "cuEventRecord")) return kNone;
  pair.base = base_;
  bases_[base_].users.fetch_add(1, std::memory_order_relaxed);
  pair.is_used.store(true, std::memory_order_relaxed);
  const int taken = next_pair_;
  next_pair_ = (next_pair_ + 1) % kPairs;
  return taken;
}

int StreamTimer::End(int pair, CudaStream stream) {
  if (pair == kNone) return kNone;
  if (Check(driver_.event_record(pairs_[pair].end, stream), "cuEventRecord")) return pair;
  Release(pairs_[pair]);
  return kNone;
}

int StreamTimer::Ask(CudaStream stream, int wanted_mhz) {
  // What was on its way has been forgotten by now, or will be asked for in vain.
  if (const std::uint32_t resets = asker_.resets(); resets != seen_resets_) {
    seen_resets_ = resets;
    enqueued_ = enqueued_clock_ = 0;
  }
  if (!asker_.may_set_clocks() || wanted_mhz == enqueued_) return enqueued_clock_;
  PendingAsk& ask = asks_[next_ask_];
  // Where a thousand are on their way, the next instruction asks again.
  if (ask.is_used.load(std::memory_order_acquire)) return enqueued_clock_;
  ask.frequency_mhz = wanted_mhz;
  ask.is_used.store(true, std::memory_order_relaxed);
  outstanding_.fetch_add(1, std::memory_order_relaxed);
  if (!Check(driver_.launch_host_function(stream, RunAsk, &ask), "cuLaunchHostFunc")) {
    outstanding_.fetch_sub(1, std::memory_order_relaxed);
    ask.is_used.store(false, std::memory_order_relaxed);
    return enqueued_clock_;
  }
  next_ask_ = (next_ask_ + 1) % kAsks;
  enqueued_ = wanted_mhz;
  enqueued_clock_ = asker_.ClockFor(wanted_mhz);
  return enqueued_clock_;
}

void StreamTimer::RunAsk(void* argument) {
  PendingAsk& ask = *static_cast<PendingAsk*>(argument);
  // Nobody holds it for longer than a microsecond, unless preempted.
  constexpr int kMostTries = 1000;
  for (int i = 0; i < kMostTries && !ask.timer->asker_.TryAsk(ask.frequency_mhz); ++i) {
    std::this_thread::yield();
  }
  StreamTimer& timer = *ask.timer;
  ask.is_used.store(false, std::memory_order_release);
  timer.outstanding_.fetch_sub(1, std::memory_order_release);
}

// ---- The keeper ----

void StreamTimer::Release(Pair& pair) {
  bases_[pair.base].users.fetch_sub(1, std::memory_order_release);
  pair.is_used.store(false, std::memory_order_release);
}

StreamTiming StreamTimer::Times(int index) {
  Pair& pair = pairs_[index];
  const Base& base = bases_[pair.base];
  const auto lost = [&] {
    Release(pair);
    return StreamTiming{StreamTiming::State::kLost, 0, 0};
  };
  if (state_.load(std::memory_order_acquire) == State::kFailed) return lost();
  if (!std::exchange(has_context_, true) &&
      !Check(driver_.context_set_current(context_), "cuCtxSetCurrent")) {
    return lost();
  }
  const CudaResult done = driver_.event_query(pair.end);
  const Nanoseconds moment = base.moment.load(std::memory_order_acquire);
  if (done == kCudaNotReady || (done == kCudaSuccess && moment == 0))
    return {StreamTiming::State::kPending, 0, 0};
  float begin = 0;
  float end = 0;
  if (!Check(done, "cuEventQuery")) return lost();
  // With several streams the base's own may be behind.
  const CudaResult has_begun = driver_.event_elapsed_time(&begin, base.event, pair.begin);
  if (has_begun == kCudaNotReady) return {StreamTiming::State::kPending, 0, 0};
  if (!Check(has_begun, "cuEventElapsedTime") ||
      !Check(driver_.event_elapsed_time(&end, base.event, pair.end), "cuEventElapsedTime")) {
    return lost();
  }
  Release(pair);
  return {StreamTiming::State::kKnown, moment + FromMilliseconds(begin),
          moment + FromMilliseconds(end)};
}

void StreamTimer::DestroyEvents() {
  if (pairs_ == nullptr || state_.load(std::memory_order_acquire) == State::kNew) return;
  if (!has_context_ && driver_.context_set_current(context_) != kCudaSuccess) return;
  // They go when the GPU is past them. What fails is the driver's to clean up.
  const auto destroy = [this](CudaEvent event) {
    if (event != nullptr) static_cast<void>(driver_.event_destroy(event));
  };
  for (int i = 0; i < kPairs; ++i) {
    destroy(pairs_[i].begin);
    destroy(pairs_[i].end);
  }
  for (int i = 0; i < kBases; ++i) destroy(bases_[i].event);
}

}  // namespace perseus
