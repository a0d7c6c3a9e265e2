#include "perseus/runtime/client/session.h"

#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/file.h"
#include "perseus/runtime/client/driver_gate.h"
#include "perseus/runtime/client/gpu_choice.h"
#include "perseus/runtime/client/own_agent.h"
#include "perseus/runtime/client/own_core.h"

namespace perseus::client {
namespace {

// For the background thread, when the session is closed.
constexpr Nanoseconds kSessionTimeout = kSecond;
// For the agent, when training gives the clock back. A change takes milliseconds.
constexpr Nanoseconds kReleaseTimeout = kSecond;

// Converts seconds since 1970 to the clock's time. 0: never. 1: before the machine started.
Nanoseconds ExpiryOf(std::int64_t seconds, Clock& clock) {
  if (seconds == 0) return 0;
  constexpr std::int64_t kLatest = std::numeric_limits<std::int64_t>::max() / kSecond / 2;
  const Nanoseconds at = std::clamp(seconds, -kLatest, kLatest) * kSecond;
  return std::max<Nanoseconds>(at - clock.SinceEpoch() + clock.Now(), 1);
}

// Returns why no job can have a rank with these numbers, or an empty text if a job can.
std::string WhyNoRank(const protocol::RankId& name) {
  const protocol::HighestRanks highest;
  const auto check = [](const char* what, int number, int most) {
    if (number >= 0 && number <= most) return std::string();
    return fmt::format(
        "{} is {}, but it is a number from 0 to {}; no plan is followed, and steps are not "
        "recorded (give each process its own dp_rank, pp_rank and tp_rank)",
        what, number, most);
  };
  std::string why = check("dp_rank", name.dp_rank, highest.dp_rank);
  if (why.empty()) why = check("pp_rank", name.pp_rank, highest.pp_rank);
  return why.empty() ? check("tp_rank", name.tp_rank, highest.tp_rank) : why;
}

// Returns the GPU from the settings. If it cannot be measured, warns and returns at most its UUID.
ChosenGpu FindGpu(SessionCore& core, device::OpenVirtual open_virtual) {
  const Settings& settings = core.settings;
  // A GPU that the agent may know, although this process cannot measure it.
  ChosenGpu unmeasured;
  const bool is_mig = IsMigInstance(settings.gpu);
  if (settings.gpu.find('-') != std::string::npos && !is_mig) unmeasured.uuid = settings.gpu;
  if (settings.devices == "off") {
    if (is_mig) {
      core.warnings.Once("gpu", FailForMigInstance(settings.gpu).value().Message() +
                                    "; no clocks are set: a plan has no effect");
      return unmeasured;
    }
    if (unmeasured.uuid.empty() && settings.agent != "off") {
      core.warnings.Once("gpu",
                         "no GPU is named by its UUID, so no clocks are set: a plan has no effect "
                         "(set PERSEUS_GPU, or let PERSEUS_DEVICES find it)");
    }
    return unmeasured;
  }
  // Without its UUID, the GPU cannot be requested from the agent.
  const char* const what_is_left =
      unmeasured.uuid.empty()
          ? "; energy is not measured, and no clocks are set: a plan has no effect"
          : "; energy is not measured";
  const InDriver in_driver;
  auto chosen =
      OpenGpu(settings.devices, open_virtual, settings.gpu, VisibleGpus::FromEnvironment());
  if (!chosen) {
    core.warnings.Once("gpu", chosen.error().Message() + what_is_left);
    return unmeasured;
  }
  return *std::move(chosen);
}

// Returns the function by which the background thread finds an agent. Empty: it uses no agent.
std::function<Result<std::filesystem::path>()> AgentFor(SessionCore& core,
                                                        const device::Device* device) {
  const Settings& settings = core.settings;
  if (settings.agent.empty() || settings.agent == "off") return {};
  if (settings.agent != "own") {
    return [socket = std::filesystem::path(settings.agent)] {
      return Result<std::filesystem::path>(socket);
    };
  }
  if (device == nullptr) {
    core.warnings.Once("agent",
                       "PERSEUS_AGENT=own found no GPU to set; steps are only measured "
                       "(see PERSEUS_DEVICES and PERSEUS_GPU)");
    return {};
  }
  if (!device->info().measure_only.empty()) {
    core.warnings.Once(
        "agent", device->info().measure_only + "; clocks are not set, and steps only measured");
    return {};
  }
  return [devices = settings.devices] { return FindOrStartOwnAgent(kNodesSocket, devices); };
}

void RunBackgroundThread(BackgroundThread& background_thread, SessionCore& core) {
  LeaveSingleCore();
  Clock& clock = *core.clock;
  const auto part = clock.TakePart(Clock::Part::kPeriodic);
  LiveSession& live = core.live();
  try {
    while (live.is_over.load() == 0) {
      clock.WaitWhile(live.is_over, 0, background_thread.Turn());
    }
    background_thread.End();
  } catch (const std::exception& error) {
    core.warnings.Once("background thread",
                       std::string("Perseus stops working in this process, and training "
                                   "goes on without it: ") +
                           error.what());
  }
}

}  // namespace

Session::Session(std::shared_ptr<SessionCore> core)
    : generation_(ForkGeneration()),
      core_(std::move(core)),
      hot_(core_->events, core_->tables, core_->counters, core_->trouble) {}

std::unique_ptr<Session> Session::Open(Settings settings, device::OpenVirtual open_virtual) {
  const std::string no_rank = WhyNoRank(settings.name);
  if (!no_rank.empty()) {
    settings.job_directory.clear();
    settings.plan.clear();
  }
  auto core = std::make_shared<SessionCore>(std::move(settings));
  if (!no_rank.empty()) core->warnings.Once("rank", no_rank);
  for (const std::string& problem : core->settings.problems) core->warnings.Once(problem, problem);
  std::unique_ptr<Session> session(new Session(core));
  ChosenGpu gpu = FindGpu(*core, open_virtual);
  core->clock = gpu.clock;
  BackgroundThreadSetup setup;
  setup.core = core;
  setup.clock = gpu.clock;
  core->gpu = gpu.uuid;
  setup.gpu = std::move(gpu.uuid);
  setup.find_agent = AgentFor(*core, gpu.device.get());
  setup.device = std::move(gpu.device);
  if (!core->settings.plan.empty()) session->UsePlan(core->settings.plan);
  session->StartBackgroundThread(std::move(setup));
  return session;
}

template <typename Body>
bool Session::StartThread(Body body) {
  // Only the threads of the training program handle signals.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  LiveSession& live = core_->live();
  live.threads.fetch_add(1);
  bool has_started = true;
  try {
    std::thread([body = std::optional(std::move(body)), core = core_]() mutable {
      (*body)();
      body.reset();
      core->live().threads.fetch_sub(1);
      WakeAll(core->live().threads);
    }).detach();
  } catch (const std::exception& error) {
    has_started = false;
    live.threads.fetch_sub(1);
    core_->warnings.Once("thread", std::string("no thread can be started: ") + error.what() +
                                       "; nothing is set or recorded (raise the limit on threads)");
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return has_started;
}

void Session::StartBackgroundThread(BackgroundThreadSetup setup) {
  auto background_thread = std::make_unique<BackgroundThread>(std::move(setup));
  background_thread->Begin();
  hot_.BeginAt(core_->first_step);
  static_cast<void>(StartThread([thread = std::move(background_thread), core = core_.get()] {
    RunBackgroundThread(*thread, *core);
  }));
}

void Session::StartStreams(void* stream) {
  if (!core_->streams.Prepare(stream, core_->gpu)) return;
  if (!StartThread([core = core_.get()] { core->streams.Watch(core->live().is_over); })) {
    core_->streams.Fail();
  }
}

Session::~Session() {
  if (IsDead()) return;
  hot_.StepAbandon(Now());  // Nobody knows when training left an open step.
  EndThreads(core_->live(), LiveSession::kClosed, MonotonicNow() + kSessionTimeout);
}

Nanoseconds Session::Now() const { return core_->clock->Now(); }

bool Session::IsDead() const { return generation_ != ForkGeneration(); }

void Session::RequestClock(int wanted_mhz) {
  if (wanted_mhz == HotPath::kNoChange) return;
  // If another thread is in a request, the next instruction tries again.
  static_cast<void>(core_->clock_requester.TryRequest(wanted_mhz, Now()));
  core_->streams.ForgetRequest();
}

// At the end of a step that left its plan, or was abandoned.
void Session::RequestAfterStep(int wanted_mhz) {
  if (!has_used_streams_) return RequestClock(wanted_mhz);
  if (wanted_mhz == 0) core_->streams.RequestDefaultClock(Now());
}

void Session::StepBegin() {
  if (IsDead()) return;
  const int wanted = hot_.StepBegin(Now());
  // A stream may still run the previous step. The first instruction of this step requests the
  // clock.
  if (!has_used_streams_) RequestClock(wanted);
}

void Session::StepEnd() {
  if (IsDead()) return;
  RequestAfterStep(hot_.StepEnd(Now()));
}

void Session::StepAbandon() {
  if (IsDead()) return;
  DropStreamInstruction();
  timing_ = Timing::kNone;
  core_->return_at.store(0, std::memory_order_release);
  RequestAfterStep(hot_.StepAbandon(Now()));
}

void Session::ReleaseClock() {
  if (IsDead()) return;
  if (has_used_streams_) core_->streams.RequestDefaultClock(Now());
  ClockRequester& requester = core_->clock_requester;
  RealClock clock;
  const Nanoseconds until = clock.Now() + kReleaseTimeout;
  // Another thread may be in a request, and the background thread collects the answer.
  for (;;) {
    static_cast<void>(requester.TryRequest(0, Now()));
    const std::uint32_t sequence = requester.sequence();
    const bool is_answered =
        sequence == 0 || core_->answered.load(std::memory_order_acquire) == sequence;
    const bool is_set = requester.wanted_mhz() == 0 && is_answered;
    if (is_set || !requester.may_set_clocks() || clock.Now() >= until) return;
    clock.WaitUntil(clock.Now() + kMillisecond);
  }
}

bool Session::IsInstruction(int kind, int microbatch, int chunk) {
  if (kind >= 0 && kind < ClockTable::kKinds && microbatch >= 0 && chunk >= 0) return true;
  core_->trouble.is_bad_kind.store(true, std::memory_order_relaxed);
  return false;
}

void Session::DropWait() {
  if (wait_pair_ != StreamTimer::kNone) core_->streams.Release(wait_pair_);
  wait_pair_ = StreamTimer::kNone;
  is_waiting_ = false;
}

// Drops an instruction that began on a stream and does not end there: its time is unknown.
void Session::DropStreamInstruction() {
  DropWait();
  if (timing_ == Timing::kHost) return;
  if (pair_ != StreamTimer::kNone) core_->streams.Release(pair_);
  pair_ = StreamTimer::kNone;
  timing_ = Timing::kNone;
  static_cast<void>(hot_.InstructionEndOn(HotPath::kNoTimes));
}

// The times of a thread that computes on a GPU are those of its launches.
void Session::LookForCuda() {
  --looks_for_cuda_;
  if (!cuda::HasCurrentContext()) return;
  core_->trouble.lacks_stream.store(true, std::memory_order_relaxed);
  looks_for_cuda_ = 0;
}

void Session::InstructionBegin(int kind, int microbatch, int chunk) {
  if (IsDead()) return;
  DropStreamInstruction();
  timing_ = Timing::kNone;
  if (!IsInstruction(kind, microbatch, chunk)) return;
  timing_ = Timing::kHost;
  if (looks_for_cuda_ > 0) LookForCuda();
  RequestClock(
      hot_.InstructionBegin({static_cast<InstructionKind>(kind), microbatch, chunk}, Now()));
  hot_.SetFrequency(core_->clock_requester.published_mhz());
  const HotPath::Return back = hot_.ReturnOfClock();
  core_->return_mhz.store(back.frequency_mhz, std::memory_order_relaxed);
  core_->return_at.store(back.at, std::memory_order_release);
}

void Session::InstructionEnd() {
  if (IsDead()) return;
  if (timing_ != Timing::kHost) return DropStreamInstruction();
  DropWait();
  core_->return_at.store(0, std::memory_order_release);
  RequestClock(hot_.InstructionEnd(Now()));
}

void Session::InstructionBeginOn(int kind, int microbatch, int chunk, void* stream) {
  if (IsDead()) return;
  DropStreamInstruction();
  timing_ = Timing::kNone;
  if (!IsInstruction(kind, microbatch, chunk)) return;
  has_used_streams_ = true;
  StreamTimer& streams = core_->streams;
  if (streams.IsNew()) StartStreams(stream);
  const auto what = static_cast<InstructionKind>(kind);
  const Nanoseconds now = Now();
  const int wanted = hot_.InstructionBegin({what, microbatch, chunk}, now);
  // This thread may be a step ahead of the GPU, so it cannot set clocks for the stream.
  if (!streams.IsReady()) return RequestClock(0);
  const InContext in_context = streams.Enter();
  if (!streams.MayEnqueueOn(stream)) return;
  timing_ = Timing::kStream;
  stream_ = stream;
  pair_ = streams.Begin(stream, what, chunk, now);
  if (wanted != HotPath::kNoChange) {
    streams.RequestClock(pair_, StreamTimer::Moment::kBegin, wanted, now);
  }
  hot_.SetFrequency(streams.enqueued_mhz());
  if (hot_.is_in_instruction() || pair_ == StreamTimer::kNone) return;
  streams.Release(pair_);
  pair_ = StreamTimer::kNone;
}

void Session::InstructionEndOn(void* stream) {
  if (IsDead()) return;
  if (timing_ == Timing::kHost) return InstructionEnd();
  StreamTimer& streams = core_->streams;
  if (timing_ != Timing::kStream || !streams.IsReady()) return DropStreamInstruction();
  const InContext in_context = streams.Enter();
  // A capture may have begun after the instruction began.
  if (!streams.MayEnqueueOn(stream)) return DropStreamInstruction();
  DropWait();
  const int pair = streams.End(pair_, stream);
  pair_ = StreamTimer::kNone;
  timing_ = Timing::kNone;
  const HotPath::Ended ended = hot_.InstructionEndOn(pair);
  if (ended.wanted != HotPath::kNoChange && streams.IsReady()) {
    streams.RequestClock(pair, StreamTimer::Moment::kEnd, ended.wanted, Now(), ended.lead);
  }
  if (pair == StreamTimer::kNone) return;
  if (!ended.is_taken) streams.Release(pair);
  streams.Release(pair);
}

void Session::WaitBegin() {
  if (IsDead() || timing_ == Timing::kNone || is_waiting_ || !hot_.is_in_instruction()) return;
  waits_since_ = Now();
  if (timing_ == Timing::kStream) {
    StreamTimer& streams = core_->streams;
    const InContext in_context = streams.Enter();
    if (!streams.IsReady() || !streams.MayEnqueueOn(stream_)) return;
    wait_pair_ = streams.Begin(stream_, InstructionKind::kForward, 0, waits_since_);
  }
  is_waiting_ = true;
}

void Session::WaitEnd() {
  if (IsDead() || !is_waiting_) return;
  is_waiting_ = false;
  if (timing_ == Timing::kHost) return hot_.AddWait(waits_since_, Now());
  StreamTimer& streams = core_->streams;
  const InContext in_context = streams.Enter();
  if (!streams.IsReady() || !streams.MayEnqueueOn(stream_)) return DropWait();
  const int pair = streams.End(std::exchange(wait_pair_, StreamTimer::kNone), stream_);
  const bool is_taken = hot_.AddWaitOn(pair);
  if (pair == StreamTimer::kNone) return;
  if (!is_taken) streams.Release(pair);
  streams.Release(pair);
}

bool Session::UsePlan(const std::filesystem::path& path) {
  if (IsDead()) return false;
  auto table = std::make_unique<ClockTable>();
  if (!path.empty()) {
    const auto text = ReadRegularFile(path);
    auto plan = text ? CompilePlan(*text, path.string(), core_->settings.name.pp_rank,
                                   core_->settings.pp_ranks)
                     : Result<ClockTable>(Fail(text));
    if (!plan) {
      core_->warnings.Once("plan: " + path.string(),
                           plan.error().Message() + "; the plan is not followed");
      return false;
    }
    if (plan->source == ClockTable::Source::kNone) {
      core_->warnings.Once(
          "plan: " + path.string(),
          fmt::format("{}: it is cut down to other pp_ranks, without pp_rank {} (take the "
                      "whole plan: perseus job plan); the plan is not followed",
                      path.string(), core_->settings.name.pp_rank));
      return false;
    }
    *table = *std::move(plan);
    if (Absolute(path) == core_->settings.plan) {
      table->expires = ExpiryOf(core_->settings.plan_expires_at, *core_->clock);
    }
  }
  hot_.Follow(std::move(table));
  return true;
}

perseus_counters Session::Counters() const {
  const auto read = [](const auto& counter) { return counter.load(std::memory_order_relaxed); };
  const HotCounters& hot = core_->counters;
  perseus_counters counters{};
  counters.size = sizeof counters;
  counters.steps = read(hot.steps);
  counters.steps_off_plan = read(hot.steps_off_plan);
  counters.instructions = read(hot.instructions);
  counters.clock_requests = core_->clock_requester.requests();
  counters.clocks_limited = read(core_->clocks_limited);
  counters.clocks_refused = read(core_->clocks_refused);
  counters.agent_losses = read(core_->agent_losses);
  counters.records_dropped = read(hot.records_dropped);
  counters.stream_failures = core_->streams.failures();
  counters.warnings = core_->warnings.count();
  counters.may_set_clocks = core_->clock_requester.may_set_clocks() ? 1 : 0;
  counters.follows_plan = read(hot.follows_plan) ? 1 : 0;
  counters.plan_version = read(hot.version);
  counters.steps_abandoned = read(hot.steps_abandoned);
  counters.changes_skipped = read(core_->changes_skipped);
  return counters;
}

perseus_costs Session::Costs() const {
  perseus_costs costs{};
  // In a forked child, the lock may stay held.
  if (IsDead()) return costs;
  const RecentSteps::Costs recent = core_->recent_steps.Read();
  costs.steps = static_cast<std::uint64_t>(recent.steps);
  costs.steps_on_plan = static_cast<std::uint64_t>(recent.steps_on_plan);
  costs.step_time_s = recent.step_time_s;
  costs.power_w = recent.power_w;
  costs.energy_j = recent.energy_j;
  return costs;
}

}  // namespace perseus::client
