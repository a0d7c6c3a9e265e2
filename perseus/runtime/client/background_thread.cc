#include "perseus/runtime/client/background_thread.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "perseus/base/host.h"
#include "perseus/base/wording.h"
#include "perseus/runtime/protocol/messages/unix_socket.h"

namespace perseus::client {
namespace {

constexpr std::chrono::milliseconds kAgentLinkTimeout{1000};

struct Answered {
  protocol::Reply reply;
  std::vector<FileDescriptor> descriptors;
};
Result<Answered> SendAndReceive(int socket, const protocol::Request& request,
                                std::chrono::milliseconds timeout) {
  PERSEUS_ASSIGN_OR_RETURN(auto answer,
                           protocol::SendRequest(socket, protocol::Format(request), timeout));
  auto reply = protocol::ParseReply(answer.text);
  if (!reply) return FailAs(ErrorKind::kSystem, "the agent's answer: {}", reply.error().Message());
  return Answered{*std::move(reply), std::move(answer.descriptors)};
}

// The time between two turns while no steps are recorded.
constexpr Nanoseconds kQuietTurn = 50 * kMillisecond;
// The longest time between two turns while steps are recorded.
constexpr Nanoseconds kRecordingTurn = 10 * kMillisecond;
constexpr Nanoseconds kBeatEvery = kSecond;
constexpr Nanoseconds kQuietLookEvery = kSecond;
constexpr Nanoseconds kCheckLogEvery = kSecond;
constexpr Nanoseconds kFirstRetry = kSecond;
constexpr Nanoseconds kLastRetry = 60 * kSecond;
// A GPU gets its default clock if the next step is this much later than usual: an evaluation, a
// checkpoint, or a test of the GPU's health runs at the default clocks. A rank that waits in every
// step until the others have ended theirs keeps its clock. Otherwise, it would wait at a higher
// power, and change the clock twice in every step.
constexpr Nanoseconds kRestAfter = 100 * kMillisecond;
constexpr std::chrono::milliseconds kOpenTimeout{5000};
constexpr std::chrono::milliseconds kRetryTimeout{1000};

// An agent that ends in order restores its GPUs. An agent that is killed or hangs cannot.
constexpr const char* kLost =
    "the connection to the agent is lost; if the agent was killed, the GPU keeps the last clock "
    "until "
    "an agent runs again; the connection is tried again from time to time (start the agent; "
    "perseus "
    "doctor)";
constexpr const char* kSilent =
    "the agent does not answer; the GPU keeps the last clock until an agent runs again; the "
    "connection is tried again from time to time (restart the agent; perseus doctor)";

std::uint64_t PipelineOf(const Settings& settings, const std::string& gpu) {
  return std::hash<std::string>()(
      fmt::format("{} {} {}", gpu, settings.pp_ranks, fmt::join(settings.stages, ",")));
}

std::uint64_t SeedOf(const protocol::RankId& name) {
  constexpr int kBits = 20;
  return ((static_cast<std::uint64_t>(name.dp_rank) << kBits |
           static_cast<std::uint64_t>(name.pp_rank))
          << kBits) |
         static_cast<std::uint64_t>(name.tp_rank);
}

}  // namespace

Result<AgentLink::Leased> AgentLink::Acquire(const std::filesystem::path& path,
                                             const std::string& gpu, const std::string& job,
                                             std::chrono::milliseconds timeout, LiveSession& live) {
  PERSEUS_ASSIGN_OR_RETURN(auto connection, protocol::Connect(path));
  // The socket is listed before the request. Otherwise, a forked child would keep a copy of it, and
  // with it the lease.
  ListedDescriptor socket(std::move(connection), live.socket);
  auto answered =
      SendAndReceive(socket.get(), protocol::Acquire{{gpu}, job, kHeartbeatSeconds}, timeout);
  if (!answered) return Fail(answered);
  std::vector<FileDescriptor>& descriptors = answered->descriptors;
  if (const auto* refused = std::get_if<protocol::Refused>(&answered->reply)) {
    return Fail("the agent refuses: {}", refused->message);
  }
  const auto* granted = std::get_if<protocol::Lease>(&answered->reply);
  if (granted == nullptr || granted->sm_clocks_mhz.size() != 1 || descriptors.size() != 2) {
    return Fail(
        "the agent at {} does not reply with a lease (install the same version of agent and "
        "client)",
        path.string());
  }
  const int wakeup = descriptors[1].get();
  PERSEUS_ASSIGN_OR_RETURN(auto publisher,
                           protocol::ClockPublisher::Attach(std::move(descriptors)));
  auto lease = std::make_unique<Lease>(
      Lease{granted->id, granted->sm_clocks_mhz.front(), std::move(publisher)});
  return Leased{AgentLink(std::move(socket), granted->id, wakeup), std::move(lease)};
}

bool AgentLink::IsLost() const {
  pollfd wanted{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&wanted, 1, 0) != 0;
}

Result<void> AgentLink::RequestDone(const protocol::Request& request) {
  const auto answered = SendAndReceive(socket_.get(), request, kAgentLinkTimeout);
  if (!answered) return FailAs(ErrorKind::kSystem, "{}", answered.error().Message());
  if (const auto* refused = std::get_if<protocol::Refused>(&answered->reply)) {
    return Fail("{}", refused->message);
  }
  return {};
}

Result<void> AgentLink::Renew() { return RequestDone(protocol::Renew{lease_}); }
Result<void> AgentLink::DeclareSlowdown(double slowdown) {
  return RequestDone(protocol::DeclareSlowdown{lease_, slowdown});
}

BackgroundThread::BackgroundThread(BackgroundThreadSetup setup)
    : core_(*setup.core),
      core_owner_(std::move(setup.core)),
      clock_(std::move(setup.clock)),
      gpu_(std::move(setup.gpu)),
      find_agent_(std::move(setup.find_agent)),
      retry_after_(kFirstRetry),
      assignment_(core_.settings.job_directory, core_.settings.name, core_.settings.pp_ranks),
      meter_(std::move(setup.device), *clock_, SeedOf(core_.settings.name)),
      epoch_(clock_->SinceEpoch() - clock_->Now()) {}

void BackgroundThread::Begin() {
  if (find_agent_ && !gpu_.empty()) TryLease(kOpenTimeout);
  if (core_.settings.job_directory.empty()) return;
  BeginLog();
  if (!log_) return;
  LookForAssignment(clock_->Now());
  OfferTables();
}

void BackgroundThread::BeginLog() {
  auto log = RankLogWriter::Create(
      protocol::RankLogPath(core_.settings.job_directory, core_.settings.name), core_.live(),
      PipelineOf(core_.settings, gpu_));
  if (!log) {
    core_.warnings.Once("log", log.error().Message());
    return;
  }
  log_ = *std::move(log);
  if (const auto& earlier = log_->continued()) {
    core_.first_step = earlier->next_step;
    epoch_ = earlier->epoch;
  }
  has_logged_lease_ = false;
  WriteHeader();
}

// Begins the log again if it was deleted. Otherwise, further steps would go to a file that nobody
// can read.
void BackgroundThread::CheckLog(Nanoseconds now) {
  if (!log_ || now < next_log_check_) return;
  next_log_check_ = now + kCheckLogEvery;
  if (!log_->IsDeleted()) return;
  core_.warnings.Once(
      "log-deleted",
      fmt::format(
          "{} was deleted during training; the steps in it are lost, and the record begins "
          "again (keep the job directory until training ends)",
          protocol::RankLogPath(core_.settings.job_directory, core_.settings.name).string()));
  log_.reset();
  BeginLog();
}

void BackgroundThread::WriteHeader() {
  protocol::RankHeader header;
  header.name = core_.settings.name;
  header.gpu = gpu_;
  if (meter_.info() != nullptr) header.gpu_name = meter_.info()->name;
  header.host = HostName();
  header.pid = ::getpid();
  if (const Lease* lease = core_.clock_requester.lease(); lease != nullptr) {
    header.sm_clocks_mhz = lease->sm_clocks_mhz;
    header.may_set_clocks = has_logged_lease_ = true;
  }
  header.epoch = epoch_;
  header.stages = core_.settings.stages;
  header.pp_ranks = core_.settings.pp_ranks;
  log_header_ = protocol::FormatRecord(header);
  Write(header);
}

Nanoseconds BackgroundThread::Turn() {
  const Nanoseconds now = clock_->Now();
  CheckLog(now);
  CheckLease(now);
  LookForAssignment(now);
  OfferTables();
  MeasureEnergy(now);
  WriteSteps(now);
  core_.ReportTroubles();
  core_.tables.FreeRetired();
  const Nanoseconds next =
      IsRecording() ? std::min(meter_.due(), now + kRecordingTurn) : now + kQuietTurn;
  return std::clamp(ReturnClock(now), now, std::max(now, next));
}

// Requests the clock for the next step when it is time. Returns when it will be.
Nanoseconds BackgroundThread::ReturnClock(Nanoseconds now) {
  constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();
  Nanoseconds at = core_.return_at.load(std::memory_order_acquire);
  if (at == 0) return kNever;
  if (at > now) return at;
  const int wanted_mhz = core_.return_mhz.load(std::memory_order_relaxed);
  // The training thread may end the instruction meanwhile.
  if (!core_.return_at.compare_exchange_strong(at, 0)) return now;
  static_cast<void>(core_.clock_requester.TryRequest(wanted_mhz, now));
  return kNever;
}

void BackgroundThread::End() {
  // The last steps need the last base time.
  static_cast<void>(core_.streams.HasStoppedWatching());
  const Nanoseconds now = clock_->Now();
  MeasureEnergy(now);
  // No further answers come.
  WriteSteps(now + kSecond);
  if (const std::int64_t steps = recorder_.UnknownSteps(); steps > 0 && log_) {
    core_.warnings.Once(
        "unfinished",
        fmt::format("the record lacks {}: the GPU had not finished when the session ended, or the "
                    "driver failed (close the session after the GPU has finished)",
                    Counted(steps, "step")));
  }
  core_.ReportTroubles();
  if (core_.live().is_over.load() != LiveSession::kProcessEnds) core_.streams.DestroyEvents();
  // The process may be ending because of an error, unless training closed the session.
  const bool is_end = core_.live().is_over.load() == LiveSession::kClosed &&
                      !core_.counters.is_last_abandoned.load();
  if (is_end) Write(protocol::Remark{std::string(protocol::Remark::kEnd)});
  if (log_) log_->Remember(NextStep(), epoch_);
  GiveUp();
}

BackgroundThread::~BackgroundThread() { GiveUp(); }

// Every step that began has ended, or was abandoned.
std::int64_t BackgroundThread::NextStep() const {
  const HotCounters& counters = core_.counters;
  return core_.first_step +
         static_cast<std::int64_t>(counters.steps.load() + counters.steps_abandoned.load());
}

void BackgroundThread::GiveUp() {
  EndLease();
  log_.reset();
}

// ---- The lease ----

Result<AgentLink::Leased> BackgroundThread::Acquire(std::chrono::milliseconds timeout) {
  PERSEUS_ASSIGN_OR_RETURN(const auto socket, find_agent_());
  return AgentLink::Acquire(socket, gpu_, core_.settings.job, timeout, core_.live());
}

void BackgroundThread::TryLease(std::chrono::milliseconds timeout) {
  auto leased = Acquire(timeout);
  // The time after the attempt, which may have taken seconds.
  const Nanoseconds now = clock_->Now();
  if (!leased) {
    core_.warnings.Once("agent",
                        leased.error().Message() + "; clocks are not set, and steps only measured");
    next_try_ = now + retry_after_;
    retry_after_ = std::min(2 * retry_after_, kLastRetry);
    return;
  }
  retry_after_ = kFirstRetry;
  link_ = std::move(leased->link);
  core_.live().wakeup.store(link_->wakeup());
  declared_slowdown_ = 1;
  answered_ = postponed_ = 0;
  next_beat_ = last_beat_ = now;
  static_cast<void>(core_.clock_requester.UseLease(std::move(leased->lease)));
  // Readers of the log wait until its header says that the rank may set clocks.
  if (!has_logged_lease_) WriteHeader();
}

void BackgroundThread::EndLease() {
  // Otherwise, a forked child would close another descriptor with this number.
  core_.live().wakeup.store(-1);
  static_cast<void>(core_.clock_requester.UseLease(nullptr));
  // The agent restores the GPU when the connection ends.
  link_.reset();
}

void BackgroundThread::LoseLease(const std::string& cause, const std::string& message) {
  // The warning comes first, so a reader that sees the lost lease also finds the warning.
  core_.warnings.Once(cause, message);
  core_.agent_losses.fetch_add(1, std::memory_order_relaxed);
  EndLease();
  next_try_ = clock_->Now() + retry_after_;
}

void BackgroundThread::CheckLease(Nanoseconds now) {
  if (!find_agent_ || gpu_.empty() || is_released_by_hand_) return;
  if (!link_) {
    if (now >= next_try_) TryLease(kRetryTimeout);
    return;
  }
  if (link_->IsLost()) return LoseLease("agent-lost", kLost);
  CollectAnswer();
  RestIfIdle(now);
  if (now < next_beat_) return;
  core_.clock_requester.Beat();
  const bool was_silent = now - last_beat_ > static_cast<Nanoseconds>(kHeartbeatSeconds) * kSecond;
  next_beat_ = now + kBeatEvery;
  last_beat_ = now;
  if (const auto renewed = link_->Renew(); !renewed) {
    if (renewed.error().kind != ErrorKind::kInput) {
      return LoseLease("agent-lost", link_->IsLost() ? kLost : kSilent);
    }
    // A lease that was ended by hand is not requested again. But a process that was stopped, by a
    // debugger for example, lost the lease because it was silent.
    is_released_by_hand_ = !was_silent;
    return LoseLease("released", "the lease of the GPU was ended (" + renewed.error().Message() +
                                     "); training continues at the default clocks");
  }
  const double slowdown = core_.counters.slowdown.load(std::memory_order_relaxed);
  if (slowdown == declared_slowdown_) return;
  if (link_->DeclareSlowdown(slowdown)) declared_slowdown_ = slowdown;
}

void BackgroundThread::RestIfIdle(Nanoseconds now) {
  // The training thread may be far ahead of the stream. The last step lasts until the stream is
  // done.
  if (core_.counters.is_in_step.load() || recorder_.IsWaiting()) return;
  const Nanoseconds ended =
      std::max(core_.counters.last_step_end.load(std::memory_order_relaxed), recorder_.last_end());
  const Nanoseconds usual = core_.counters.usual_gap.load(std::memory_order_relaxed);
  if (now > ended + usual + kRestAfter) core_.clock_requester.Rest(core_.counters.is_in_step, now);
}

void BackgroundThread::CollectAnswer() {
  if (const Lease* const lease = core_.clock_requester.lease()) CountSkipped(*lease);
  const protocol::ClockAnswer answer = core_.clock_requester.Answer();
  if (answer.sequence == 0) return;
  recorder_.Add(answer);
  core_.answered.store(answer.sequence, std::memory_order_release);
  if (answer.sequence == answered_ && answer.outcome == answered_outcome_) return;
  answered_ = answer.sequence;
  answered_outcome_ = answer.outcome;
  if (answer.outcome == protocol::ClockOutcome::kLimited ||
      answer.outcome == protocol::ClockOutcome::kAtPowerLimit) {
    core_.clocks_limited.fetch_add(1, std::memory_order_relaxed);
  }
  if (answer.outcome == protocol::ClockOutcome::kRefused ||
      answer.outcome == protocol::ClockOutcome::kFailed) {
    core_.clocks_refused.fetch_add(1, std::memory_order_relaxed);
    core_.warnings.Once("refused", "the agent could not set a clock (perseus doctor says why)");
  }
}

void BackgroundThread::CountSkipped(const Lease& lease) {
  const std::uint32_t postponed = lease.publisher.postponed(0);
  const std::uint64_t skipped =
      core_.changes_skipped.load() + (postponed - std::exchange(postponed_, postponed));
  // The warning comes first, so a reader that sees the count also finds the warning.
  if (10 * skipped > core_.clock_requester.requests()) {
    core_.warnings.Once("changes",
                        "the plan changes the clock more often than the agent allows; changes to "
                        "lower clocks wait, so no step takes longer, but the job saves less energy "
                        "(plan with perseus plan --facts or --max-switches, or raise perseus agent "
                        "--max-changes)");
  }
  core_.changes_skipped.store(skipped);
}

// ---- Assignment ----

void BackgroundThread::LookForAssignment(Nanoseconds now) {
  if (core_.settings.job_directory.empty()) return;
  auto news = assignment_.LookForNew(now);
  if (!news.problem.empty()) {
    core_.warnings.Once("assignment: " + news.problem, news.problem);
    if (news.problem != reported_problem_) Write(protocol::Remark{news.problem});
  }
  if (!news.problem.empty() || news.table != nullptr) reported_problem_ = news.problem;
  if (news.table != nullptr) tables_.push_back(std::move(news.table));
}

void BackgroundThread::OfferTables() {
  while (!tables_.empty() && !core_.tables.IsWaiting()) {
    core_.tables.Offer(std::move(tables_.front()));
    tables_.pop_front();
  }
}

// ---- The record ----

void BackgroundThread::MeasureEnergy(Nanoseconds now) {
  if (IsRecording()) {
    next_look_ = 0;
    if (now >= meter_.due()) {
      if (const auto reading = meter_.Look()) {
        recorder_.Add(*reading);
        core_.recent_steps.Add(*reading);
      }
    }
  } else {
    if (now < next_look_) return;
    meter_.ReadState();
    const bool is_on_trial = meter_.telemetry().counter == device::CounterState::kOnTrial;
    next_look_ = now + (is_on_trial ? kQuietTurn : kQuietLookEvery);
    if (const auto energy_j = meter_.telemetry().energy_j) {
      core_.recent_steps.Add(EnergyReading{now, now, *energy_j});
    }
  }
  if (const auto reached = meter_.ReachedClock()) recorder_.Add(*reached);
  if (meter_.info() == nullptr) return;
  if (meter_.trouble().empty()) {
    recorder_.SetState(meter_.telemetry());
    WarnOfCounter();
  } else {
    core_.warnings.Once("energy", meter_.trouble() + "; energy is not measured meanwhile");
  }
}

void BackgroundThread::WarnOfCounter() {
  const device::Telemetry& telemetry = meter_.telemetry();
  if (telemetry.counter_falls > 0) {
    core_.warnings.Once(
        "energy-counter-fell",
        gpu_ + ": its energy counter fell; the energy of this window is not counted");
  }
  // A GPU without a counter is no fault.
  if (telemetry.counter == device::CounterState::kNone && telemetry.power_w) return;
  const std::string why = device::DescribeEnergy(telemetry);
  if (!why.empty()) core_.warnings.Once("energy-counter", fmt::format("{}: {}", gpu_, why));
}

void BackgroundThread::WriteSteps(Nanoseconds now) {
  while (const auto event = core_.events.Pop()) recorder_.Add(*event);
  while (const auto clock = core_.clock_requester.published().Pop()) recorder_.Add(*clock);
  CollectAnswer();
  // Once the process ends, the driver may not be called any more.
  const bool may_ask = core_.live().is_over.load() != LiveSession::kProcessEnds;
  const auto steps = recorder_.TakeFinished(now, [this, may_ask](int timing) {
    return may_ask ? core_.streams.Times(timing) : StreamTiming{StreamTiming::State::kLost, 0, 0};
  });
  for (const protocol::RanStep& step : steps) {
    core_.recent_steps.Add(step);
    Write(step);
  }
}

void BackgroundThread::Write(const protocol::RankRecord& record) {
  if (!log_) return;
  if (const auto written = WriteText(protocol::FormatRecord(record)); !written) {
    core_.warnings.Once("log", written.error().Message());
  }
}

Result<void> BackgroundThread::WriteText(const std::string& text) {
  // The log has two parts. When the newer one is full, the older one is deleted.
  const std::uint64_t most = core_.settings.most_log_bytes / 2;
  if (log_->size() == 0 || log_->size() + text.size() <= most) return log_->Append(text);
  return log_->BeginAnew(log_header_ + text);
}

}  // namespace perseus::client
