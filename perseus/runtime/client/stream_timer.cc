#include "perseus/runtime/client/stream_timer.h"

#include <fmt/core.h>
#include "perseus/base/clock.h"

#include <thread>

namespace perseus::client {
namespace {

constexpr Nanoseconds kNewBaseAfter = 10'000'000'000;
}  // namespace

// ---- The first use ----

bool StreamTimer::Prepare() {
  if (state_.load(std::memory_order_relaxed) == State::kFailed) return false;
  const auto driver = cuda::LoadForStreams();
  if (!driver) {
    failures_.fetch_add(1, std::memory_order_relaxed);
    state_.store(State::kFailed, std::memory_order_release);
    warnings_.Once("stream", driver.error().Message() +
                                 "; instructions on streams are not timed, and the default "
                                 "clocks are used for them");
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
  requests_ = std::make_unique<PendingRequest[]>(kMostRequests);
  int mode = cuda::kCaptureRelaxed;
  if (!Check(driver_.ExchangeCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode")) {
    return false;
  }
  const bool are_made = MakeEventsRelaxed();
  static_cast<void>(driver_.ExchangeCaptureMode(&mode));
  return are_made;
}

bool StreamTimer::MakeEventsRelaxed() {
  if (!Check(driver_.GetCurrent(&context_), "cuCtxGetCurrent")) return false;
  for (int i = 0; i < kBases; ++i) {
    BaseAt(i).timer = this;
    if (!Check(driver_.EventCreate(&BaseAt(i).event, cuda::kEventWithTiming), "cuEventCreate"))
      return false;
  }
  for (int i = 0; i < kPairs; ++i) {
    if (!Check(driver_.EventCreate(&PairAt(i).begin, cuda::kEventWithTiming), "cuEventCreate") ||
        !Check(driver_.EventCreate(&PairAt(i).end, cuda::kEventWithTiming), "cuEventCreate")) {
      return false;
    }
  }
  for (int i = 0; i < kMostRequests; ++i) RequestAt(i).timer = this;
  return true;
}

bool StreamTimer::Check(cuda::Code result, const char* call) {
  if (result == cuda::kSuccess) return true;
  failures_.fetch_add(1, std::memory_order_relaxed);
  failed_result_.store(result, std::memory_order_relaxed);
  failed_call_.store(call, std::memory_order_release);
  state_.store(State::kFailed, std::memory_order_release);
  return false;
}

void StreamTimer::ReportTroubles() {
  if (const char* call = failed_call_.load(std::memory_order_acquire); call != nullptr) {
    warnings_.Once("stream",
                   fmt::format("the CUDA driver's {} failed with {}; instructions on streams are "
                               "no longer timed, and the default clocks are used for them",
                               call, failed_result_.load(std::memory_order_relaxed)));
  }
  if (has_met_capture_.load(std::memory_order_relaxed)) {
    warnings_.Once("capture",
                   "instructions were begun on a stream that is being captured into a graph, and "
                   "are ignored (put the calls around the launch of the graph)");
  }
  if (has_run_out_.load(std::memory_order_relaxed)) {
    warnings_.Once("pairs", fmt::format("more than {} instructions were launched ahead of the GPU; "
                                        "the record does not contain the affected steps",
                                        kPairs));
  }
}

// ---- The training thread ----

bool StreamTimer::MayEnqueueOn(cuda::Stream stream) {
  int status = cuda::kNotCapturing;
  const cuda::Code looked = driver_.StreamIsCapturing(stream, &status);
  if (looked != cuda::kCaptureImplicit) {
    if (!Check(looked, "cuStreamIsCapturing")) return false;
    if (status == cuda::kNotCapturing) return true;
  }
  has_met_capture_.store(true, std::memory_order_relaxed);
  return false;
}

void StreamTimer::TakeNewBase(cuda::Stream stream, Nanoseconds now) {
  const int next = (base_ + 1) % kBases;
  Base& base = BaseAt(next);
  // Pairs still need this base. The base in use stays a little longer, and is a little less exact.
  if (base.users.load(std::memory_order_acquire) != 0) return;
  base.moment.store(0, std::memory_order_relaxed);
  outstanding_.fetch_add(1, std::memory_order_relaxed);
  if (!Check(driver_.LaunchHostFunction(stream, RunBase, &base), "cuLaunchHostFunc")) {
    outstanding_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  if (!Check(driver_.EventRecord(base.event, stream), "cuEventRecord")) return;
  base_ = next;
  base_taken_ = now;
}

void StreamTimer::RunBase(void* argument) {
  Base& base = *static_cast<Base*>(argument);
  base.moment.store(MonotonicNow(), std::memory_order_release);
  base.timer->outstanding_.fetch_sub(1, std::memory_order_release);
}

int StreamTimer::Begin(cuda::Stream stream, Nanoseconds now) {
  if (base_ == kNone || now > base_taken_ + kNewBaseAfter) TakeNewBase(stream, now);
  if (base_ == kNone || state_.load(std::memory_order_relaxed) == State::kFailed) return kNone;
  Pair& pair = PairAt(next_pair_);
  if (pair.is_used.load(std::memory_order_acquire)) {
    has_run_out_.store(true, std::memory_order_relaxed);
    return kNone;
  }
  if (!Check(driver_.EventRecord(pair.begin, stream), "cuEventRecord")) return kNone;
  pair.base = base_;
  BaseAt(base_).users.fetch_add(1, std::memory_order_relaxed);
  pair.is_used.store(true, std::memory_order_relaxed);
  const int taken = next_pair_;
  next_pair_ = (next_pair_ + 1) % kPairs;
  return taken;
}

int StreamTimer::End(int pair, cuda::Stream stream) {
  if (pair == kNone) return kNone;
  if (Check(driver_.EventRecord(PairAt(pair).end, stream), "cuEventRecord")) return pair;
  Release(PairAt(pair));
  return kNone;
}

int StreamTimer::RequestClock(cuda::Stream stream, int wanted_mhz) {
  // After a reset, the enqueued requests have no effect, or are for another lease. So the wanted
  // clock is requested again, behind them.
  if (const std::uint32_t resets = requester_.resets(); resets != seen_resets_) {
    seen_resets_ = resets;
    enqueued_ = -1;
    enqueued_clock_ = 0;
  }
  if (!requester_.may_set_clocks() || wanted_mhz == enqueued_) return enqueued_clock_;
  PendingRequest& request = RequestAt(next_request_);
  // If all requests are enqueued, the next instruction tries again.
  if (request.is_used.load(std::memory_order_acquire)) return enqueued_clock_;
  request.frequency_mhz = wanted_mhz;
  request.is_used.store(true, std::memory_order_relaxed);
  outstanding_.fetch_add(1, std::memory_order_relaxed);
  if (!Check(driver_.LaunchHostFunction(stream, RunRequest, &request), "cuLaunchHostFunc")) {
    outstanding_.fetch_sub(1, std::memory_order_relaxed);
    request.is_used.store(false, std::memory_order_relaxed);
    return enqueued_clock_;
  }
  next_request_ = (next_request_ + 1) % kMostRequests;
  enqueued_ = wanted_mhz;
  enqueued_clock_ = requester_.ClockFor(wanted_mhz);
  return enqueued_clock_;
}

void StreamTimer::RunRequest(void* argument) {
  PendingRequest& request = *static_cast<PendingRequest*>(argument);
  // After a failure, no later request would replace this clock, so it is the default clock.
  const bool has_failed = request.timer->state_.load(std::memory_order_acquire) == State::kFailed;
  const int wanted = has_failed ? 0 : request.frequency_mhz;
  // Another thread is in a request for at most a microsecond, unless it is preempted.
  constexpr int kMostTries = 1000;
  for (int i = 0; i < kMostTries && !request.timer->requester_.TryRequest(wanted, MonotonicNow());
       ++i) {
    std::this_thread::yield();
  }
  StreamTimer& timer = *request.timer;
  request.is_used.store(false, std::memory_order_release);
  timer.outstanding_.fetch_sub(1, std::memory_order_release);
}

// ---- The background thread ----

void StreamTimer::Release(Pair& pair) {
  BaseAt(pair.base).users.fetch_sub(1, std::memory_order_release);
  pair.is_used.store(false, std::memory_order_release);
}

bool StreamTimer::EnterDriver() {
  if (has_entered_) return true;
  int mode = cuda::kCaptureRelaxed;
  has_entered_ = Check(driver_.SetCurrent(context_), "cuCtxSetCurrent") &&
                 Check(driver_.ExchangeCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
  return has_entered_;
}

StreamTiming StreamTimer::Times(int index) {
  Pair& pair = PairAt(index);
  const Base& base = BaseAt(pair.base);
  const auto lost = [&] {
    Release(pair);
    return StreamTiming{StreamTiming::State::kLost, 0, 0};
  };
  if (state_.load(std::memory_order_acquire) == State::kFailed) return lost();
  if (!EnterDriver()) return lost();
  const cuda::Code done = driver_.EventQuery(pair.end);
  const Nanoseconds moment = base.moment.load(std::memory_order_acquire);
  if (done == cuda::kNotReady || (done == cuda::kSuccess && moment == 0))
    return {StreamTiming::State::kPending, 0, 0};
  if (done == cuda::kDeinitialized) return lost();
  float begin = 0;
  float end = 0;
  if (!Check(done, "cuEventQuery")) return lost();
  // With several streams, the stream of the base may be behind.
  const cuda::Code has_begun = driver_.EventElapsedTime(&begin, base.event, pair.begin);
  if (has_begun == cuda::kNotReady) return {StreamTiming::State::kPending, 0, 0};
  if (!Check(has_begun, "cuEventElapsedTime") ||
      !Check(driver_.EventElapsedTime(&end, base.event, pair.end), "cuEventElapsedTime")) {
    return lost();
  }
  Release(pair);
  return {StreamTiming::State::kKnown, moment + FromMilliseconds(begin),
          moment + FromMilliseconds(end)};
}

void StreamTimer::DestroyEvents() {
  if (pairs_ == nullptr || state_.load(std::memory_order_acquire) == State::kNew) return;
  if (!EnterDriver()) return;
  // The driver destroys each event once the GPU has passed it. If a call fails, the driver cleans
  // up.
  const auto destroy = [this](cuda::Event event) {
    if (event != nullptr) static_cast<void>(driver_.EventDestroy(event));
  };
  for (int i = 0; i < kPairs; ++i) {
    destroy(PairAt(i).begin);
    destroy(PairAt(i).end);
  }
  for (int i = 0; i < kBases; ++i) destroy(BaseAt(i).event);
}

}  // namespace perseus::client
