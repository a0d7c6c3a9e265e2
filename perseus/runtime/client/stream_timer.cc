#include "perseus/runtime/client/stream_timer.h"

#include <fmt/core.h>
#include <sys/prctl.h>

#include <algorithm>
#include <ctime>
#include <thread>

#include "perseus/base/clock.h"
#include "perseus/runtime/client/driver_gate.h"
#include "perseus/runtime/client/live_sessions.h"
#include "perseus/runtime/client/own_core.h"
#include "perseus/runtime/client/poll_times.h"

namespace perseus::client {
namespace {

constexpr Nanoseconds kNewBaseAfter = kSecond;
// The longest sleep without a mark, so that the end of the session is noticed.
constexpr Nanoseconds kLongestSleep = 20 * kMillisecond;
constexpr const char* kWithoutStreams =
    "; instructions on streams are not timed, and the default clocks are used for them";

void SleepUntil(Nanoseconds until) {
  const timespec at{until / kSecond, until % kSecond};
  ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
}

}  // namespace

// ---- The first use ----

bool StreamTimer::Prepare(cuda::Stream stream, const std::string& gpu) {
  const auto fail = [this](const std::string& why) {
    failures_.fetch_add(1, std::memory_order_relaxed);
    state_.store(State::kFailed, std::memory_order_release);
    warnings_.Once("stream", why + kWithoutStreams);
    return false;
  };
  auto driver = cuda::LoadForStreams();
  if (!driver) return fail(driver.error().Message());
  driver_ = *std::move(driver);
  cuda::Context before = nullptr;
  if (!Check(driver_.GetCurrent(&before), "cuCtxGetCurrent")) return false;
  const auto context = ContextOf(driver_, stream, gpu);
  static_cast<void>(driver_.SetCurrent(before));
  if (!context) return fail(context.error().Message());
  context_ = *context;
  const std::string unchecked = WhyUnchecked(driver_, stream, gpu);
  if (!unchecked.empty()) warnings_.Once("stream's GPU", unchecked);
  if (!MakeEvents()) return false;
  watchers_.store(1);
  state_.store(State::kReady, std::memory_order_release);
  return true;
}

bool StreamTimer::MakeEvents() {
  pairs_ = std::make_unique<Pair[]>(kPairs);
  bases_ = std::make_unique<Base[]>(kBases);
  const InContext in_context = Enter();
  int mode = cuda::kCaptureRelaxed;
  if (!Check(in_context.result(), "cuCtxSetCurrent") ||
      !Check(driver_.ExchangeCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode")) {
    return false;
  }
  const auto make = [this](cuda::Event& event) {
    return Check(driver_.EventCreate(&event, cuda::kEventWithTiming), "cuEventCreate");
  };
  bool are_made = true;
  for (int i = 0; i < kBases && are_made; ++i) are_made = make(BaseAt(i).event);
  for (int i = 0; i < kPairs && are_made; ++i) {
    are_made = make(PairAt(i).begin) && make(PairAt(i).end);
  }
  static_cast<void>(driver_.ExchangeCaptureMode(&mode));
  return are_made;
}

bool StreamTimer::Check(cuda::Code result, const char* call) {
  if (result == cuda::kSuccess) return true;
  // Two threads may meet the same failure.
  if (state_.exchange(State::kFailed) == State::kFailed) return false;
  failures_.fetch_add(1, std::memory_order_relaxed);
  failed_result_.store(result, std::memory_order_relaxed);
  failed_call_.store(call, std::memory_order_release);
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
                                        "the plan is not followed meanwhile, and the record does "
                                        "not contain the affected steps",
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

bool StreamTimer::PushMark(const Mark& mark) {
  if (!marks_.Push(mark)) return false;
  pushes_.fetch_add(1);
  // The watching thread first sets is_asleep_, and then looks for a mark.
  if (is_asleep_.load()) WakeAll(pushes_);
  return true;
}

void StreamTimer::TakeNewBase(cuda::Stream stream, Nanoseconds now) {
  const int next = (base_ + 1) % kBases;
  Base& base = BaseAt(next);
  // Pairs still need this base. The base in use stays a little longer, and is a little less exact.
  if (base.users.load(std::memory_order_acquire) != 0 || !marks_.HasRoomFor(1)) return;
  base.moment.store(0, std::memory_order_relaxed);
  if (!Check(driver_.EventRecord(base.event, stream), "cuEventRecord")) return;
  base.users.store(1, std::memory_order_relaxed);
  static_cast<void>(PushMark({Mark::Kind::kBase, next, 0, now, stream, 0, 0}));
  base_ = next;
  base_taken_ = now;
}

int StreamTimer::Begin(cuda::Stream stream, InstructionKind kind, int chunk, Nanoseconds now) {
  if (base_ == kNone || now > base_taken_ + kNewBaseAfter) TakeNewBase(stream, now);
  if (base_ == kNone || state_.load(std::memory_order_relaxed) == State::kFailed) return kNone;
  Pair& pair = PairAt(next_pair_);
  if (pair.users.load(std::memory_order_acquire) != 0) {
    has_run_out_.store(true, std::memory_order_relaxed);
    return kNone;
  }
  if (!Check(driver_.EventRecord(pair.begin, stream), "cuEventRecord")) return kNone;
  pair.base = base_;
  pair.stream = stream;
  pair.usual = static_cast<std::size_t>(kind) +
               std::size_t{ClockTable::kKinds} * static_cast<std::size_t>(chunk % kChunks);
  BaseAt(base_).users.fetch_add(1, std::memory_order_relaxed);
  pair.users.store(1, std::memory_order_relaxed);
  const int taken = next_pair_;
  next_pair_ = (next_pair_ + 1) % kPairs;
  return taken;
}

int StreamTimer::End(int pair, cuda::Stream stream) {
  if (pair == kNone) return kNone;
  if (!Check(driver_.EventRecord(PairAt(pair).end, stream), "cuEventRecord")) {
    Release(PairAt(pair));
    return kNone;
  }
  PairAt(pair).users.fetch_add(1, std::memory_order_relaxed);
  PairAt(pair).stream = stream;
  return pair;
}

void StreamTimer::RequestClock(int index, Moment moment, int wanted_mhz, Nanoseconds now,
                               Nanoseconds lead) {
  // After a reset, the requests on the way have no effect, or are for another lease. So the wanted
  // clock is requested again, behind them.
  if (const std::uint32_t resets = requester_.resets(); resets != seen_resets_) {
    seen_resets_ = resets;
    enqueued_ = kUnknown;
    enqueued_clock_ = 0;
  }
  if (has_lost_request_.exchange(false)) enqueued_ = kUnknown;
  if (!requester_.may_set_clocks() || wanted_mhz == enqueued_) return;
  if (index == kNone) return RequestDefaultClock(now);
  // If there is no room, the next instruction tries again.
  if (!marks_.HasRoomFor(1)) return;
  Pair& pair = PairAt(index);
  pair.users.fetch_add(1, std::memory_order_relaxed);
  const Mark::Kind kind = moment == Moment::kBegin ? Mark::Kind::kBegin : Mark::Kind::kEnd;
  static_cast<void>(PushMark({kind, index, wanted_mhz, now, pair.stream, round_.load(), lead}));
  enqueued_ = wanted_mhz;
  enqueued_clock_ = requester_.ClockFor(wanted_mhz);
}

void StreamTimer::RequestDefaultClock(Nanoseconds now) {
  round_.fetch_add(1);
  enqueued_ = kUnknown;
  enqueued_clock_ = 0;
  // If the watching thread is in a request, the next step tries again.
  static_cast<void>(requester_.TryRequest(0, now));
}

// ---- The watching thread ----

void StreamTimer::Watch(const std::atomic<std::uint32_t>& is_over) {
  LeaveSingleCore();
  // Otherwise, each sleep takes up to 50 us longer.
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  RealClock clock;
  bool has_entered = false;
  while (is_over.load() != LiveSession::kProcessEnds && EnterDriver(has_entered)) {
    const std::uint32_t pushes = pushes_.load();
    is_asleep_.store(true);
    const auto mark = marks_.Pop();
    if (!mark) {
      if (is_over.load() != 0) break;
      clock.WaitWhile(pushes_, pushes, clock.Now() + kLongestSleep);
      continue;
    }
    is_asleep_.store(false);
    if (const auto passed = WaitFor(*mark, is_over)) Act(*mark, *passed);
    if (mark->kind == Mark::Kind::kBase) {
      if (mark->index != known_base_) BaseAt(mark->index).users.fetch_sub(1);
    } else {
      Release(PairAt(mark->index));
    }
  }
  // Without the GPU's progress, only the default clock is right.
  if (state_.load(std::memory_order_acquire) == State::kFailed) Request(0);
  watchers_.store(0);
  WakeAll(watchers_);
}

// Whether the GPU has passed the event. Nullopt: this will never be known.
std::optional<bool> StreamTimer::HasPassed(cuda::Event event) {
  const InDriver in_driver;
  const cuda::Code done = driver_.EventQuery(event);
  if (done == cuda::kNotReady) return false;
  if (done == cuda::kDeinitialized || !Check(done, "cuEventQuery")) return std::nullopt;
  return true;
}

std::optional<StreamTimer::Passed> StreamTimer::WaitFor(const Mark& mark,
                                                        const std::atomic<std::uint32_t>& is_over) {
  const bool is_base = mark.kind == Mark::Kind::kBase;
  Pair* const pair = is_base ? nullptr : &PairAt(mark.index);
  const bool is_end = mark.kind == Mark::Kind::kEnd;
  const cuda::Event event = is_base ? BaseAt(mark.index).event : is_end ? pair->end : pair->begin;
  PollTimes times(mark.since, is_end ? usual_[pair->usual] : 0);
  // The GPU had not passed the event. It passes the events of one stream in their order.
  Nanoseconds before =
      mark.stream == last_stream_ ? std::max(mark.since, last_passed_) : mark.since;
  Nanoseconds not_begun = before;
  Nanoseconds lead = mark.lead;
  while (is_over.load() != LiveSession::kProcessEnds && IsReady()) {
    const Nanoseconds now = MonotonicNow();
    const auto has_passed = HasPassed(event);
    if (!has_passed) return std::nullopt;
    if (*has_passed) {
      last_passed_ = before;
      last_stream_ = mark.stream;
      return Passed{before, MonotonicNow()};
    }
    if (times.NeedsBegin()) {
      const auto has_begun = HasPassed(pair->begin);
      if (!has_begun) return std::nullopt;
      if (*has_begun) times.Begin(not_begun);
      not_begun = now;
    }
    if (lead > 0 && times.EndsWithin(lead, now)) {
      lead = 0;
      if (mark.round == round_.load()) Request(mark.wanted_mhz);
    }
    // A closed session only takes what the GPU has passed already.
    if (is_over.load() != 0) return std::nullopt;
    before = now;
    SleepUntil(times.After(now));
  }
  return std::nullopt;
}

void StreamTimer::Act(const Mark& mark, const Passed& passed) {
  if (mark.kind == Mark::Kind::kBase) return KnowBase(mark.index, passed);
  if (mark.round == round_.load()) Request(mark.wanted_mhz);
  if (mark.kind != Mark::Kind::kEnd) return;
  const Pair& pair = PairAt(mark.index);
  if (const auto elapsed = Elapsed(pair.begin, pair.end)) usual_[pair.usual] = *elapsed;
}

void StreamTimer::KnowBase(int index, const Passed& passed) {
  Base& base = BaseAt(index);
  Nanoseconds moment = passed.after + (passed.until - passed.after) / 2;
  if (known_base_ != kNone) {
    Base& known = BaseAt(known_base_);
    if (const auto elapsed = Elapsed(known.event, base.event)) {
      moment = std::clamp(known.moment.load() + *elapsed, passed.after, passed.until);
    }
    known.users.fetch_sub(1);
  }
  known_base_ = index;
  base.moment.store(moment, std::memory_order_release);
}

// Nullopt if the GPU has not passed both events, or if this will never be known.
std::optional<Nanoseconds> StreamTimer::Elapsed(cuda::Event from, cuda::Event to) {
  const InDriver in_driver;
  float milliseconds = 0;
  const cuda::Code code = driver_.EventElapsedTime(&milliseconds, from, to);
  if (code == cuda::kNotReady || code == cuda::kDeinitialized) return std::nullopt;
  if (!Check(code, "cuEventElapsedTime")) return std::nullopt;
  return FromMilliseconds(milliseconds);
}

void StreamTimer::Request(int wanted_mhz) {
  // Another thread is in a request for at most a microsecond, unless it is preempted.
  constexpr int kMostTries = 1000;
  for (int i = 0; i < kMostTries; ++i) {
    if (requester_.TryRequest(wanted_mhz, MonotonicNow())) return;
    std::this_thread::yield();
  }
  has_lost_request_.store(true);
}

// ---- The background thread ----

void StreamTimer::Release(Pair& pair) {
  // The last user also releases the base.
  const int base = pair.base;
  if (pair.users.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    BaseAt(base).users.fetch_sub(1, std::memory_order_release);
  }
}

bool StreamTimer::EnterDriver(bool& has_entered) {
  if (state_.load(std::memory_order_acquire) == State::kFailed) return false;
  if (has_entered) return true;
  int mode = cuda::kCaptureRelaxed;
  has_entered = Check(driver_.SetCurrent(context_), "cuCtxSetCurrent") &&
                Check(driver_.ExchangeCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
  return has_entered;
}

StreamTiming StreamTimer::Times(int index) {
  Pair& pair = PairAt(index);
  const Base& base = BaseAt(pair.base);
  const auto lost = [&] {
    Release(pair);
    return StreamTiming{StreamTiming::State::kLost, 0, 0};
  };
  constexpr StreamTiming kPending{StreamTiming::State::kPending, 0, 0};
  if (!EnterDriver(background_has_entered_)) return lost();
  const auto has_passed = HasPassed(pair.end);
  if (!has_passed) return lost();
  const Nanoseconds moment = base.moment.load(std::memory_order_acquire);
  if (!*has_passed || moment == 0) return kPending;
  // An instruction may end on another stream than it began on, and that stream may be behind.
  const auto begin = Elapsed(base.event, pair.begin);
  const auto end = Elapsed(base.event, pair.end);
  if (!IsReady()) return lost();
  if (!begin || !end) return kPending;
  Release(pair);
  return {StreamTiming::State::kKnown, moment + *begin, moment + *end};
}

bool StreamTimer::HasStoppedWatching() {
  RealClock clock;
  const Nanoseconds until = clock.Now() + 5 * kLongestSleep;
  while (watchers_.load() != 0 && clock.Now() < until) clock.WaitWhile(watchers_, 1, until);
  return watchers_.load() == 0;
}

void StreamTimer::DestroyEvents() {
  if (pairs_ == nullptr || IsNew() || !HasStoppedWatching()) return;
  int mode = cuda::kCaptureRelaxed;
  if (!background_has_entered_ && (driver_.SetCurrent(context_) != cuda::kSuccess ||
                                   driver_.ExchangeCaptureMode(&mode) != cuda::kSuccess)) {
    return;
  }
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
