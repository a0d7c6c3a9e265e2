#include "perseus/runtime/agent/gpu_worker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace perseus::agent {
namespace {

// A clock counts as equal to its setting if it is this close, because drivers round by a step or
// two.
constexpr int kNearMhz = 30;
constexpr int kReadingsToJudge = 3;

Nanoseconds ToNs(std::chrono::nanoseconds time) { return time.count(); }

// Returns how many changes the bucket of the limit holds.
double BucketFor(double most_changes_per_s) { return std::max(1.0, most_changes_per_s); }

// Whether a control has been restored. If the driver reports settings, the reading has to show the
// setting. If it does not report them, only a reason that names a clock setting shows that a lock
// is still in force. A low clock alone proves nothing.
bool HasTaken(const device::SettingReading& reading, const std::optional<device::Setting>& wanted) {
  if (reading.is_known) return reading.setting == wanted;
  return wanted || !reading.is_certain;
}

}  // namespace

void LatencyHistogram::Add(Nanoseconds latency) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), latency);
  ++counts_[static_cast<std::size_t>(bound - kBounds.begin())];
  ++count_;
  sum_ += latency;
}

// ---- Doorbell ----

class GpuWorker::Doorbell {
 public:
  Doorbell() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!event_) throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  int fd() const { return event_.get(); }
  void Ring() const {
    const std::uint64_t one = 1;
    // The write fails only if the counter is full. In this case the thread is being woken anyway.
    [[maybe_unused]] const auto written = write(event_.get(), &one, sizeof one);
  }
  void Silence() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = read(event_.get(), &count, sizeof count);
  }

 private:
  FileDescriptor event_;
};

// ---- Commands ----

GpuWorker::GpuWorker(std::unique_ptr<device::Device> device, Periods periods,
                     std::shared_ptr<Clock> clock, WhenOverridden when_overridden)
    : device_(std::move(device)),
      periods_(periods),
      clock_(std::move(clock)),
      when_overridden_(when_overridden),
      bell_(std::make_unique<Doorbell>()),
      observer_bell_(std::make_unique<Doorbell>()) {
  observer_ = std::jthread([this](const std::stop_token& stop) { Observe(stop); });
  worker_ = std::jthread([this](const std::stop_token& stop) { Work(stop); });
}

GpuWorker::~GpuWorker() {
  worker_.request_stop();
  observer_.request_stop();
  bell_->Ring();
  observer_bell_->Ring();
}

void GpuWorker::Command(std::function<void()> command) {
  {
    const MutexLock lock(mutex_);
    commands_.push_back(std::move(command));
  }
  bell_->Ring();
}

void GpuWorker::Find(std::function<void(device::DeviceResult<Found>)> done) {
  Command([this, done = std::move(done)] {
    Found found;
    for (const device::Control control : device::kAllControls) {
      auto reading = device_->ReadSetting(control);
      if (reading) {
        found[static_cast<std::size_t>(control)] = *std::move(reading);
      } else if (reading.error().kind != device::DeviceErrorKind::kNotSupported) {
        return done(Fail(reading));
      }
    }
    done(found);
  });
}

void GpuWorker::LimitChanges(double most_per_s) {
  Command([this, most_per_s] {
    if (most_per_s == most_changes_per_s_) return;
    if (most_changes_per_s_ > 0) {
      RefillChanges();
      if (changes_left_ > 0)
        changes_left_ *= BucketFor(most_per_s) / BucketFor(most_changes_per_s_);
    } else {
      changes_left_ = BucketFor(most_per_s);
      changes_left_at_ = clock_->Now();
    }
    most_changes_per_s_ = most_per_s;
  });
}

void GpuWorker::Serve(std::shared_ptr<protocol::ClockChannel> channel, int gpu_of_channel,
                      std::optional<device::Setting> before) {
  Command([this, channel = std::move(channel), gpu_of_channel, before] {
    channel_ = channel;
    slot_ = gpu_of_channel;
    before_ = before;
    handled_ = 0;
    wait_until_ = 0;
    postponed_request_ = 0;
    postponed_ = 0;
    answer_ = {};
    setting_outcome_ = protocol::ClockOutcome::kNone;
    to_restore_.clear();
    restored_ = nullptr;
    {
      const MutexLock lock(mutex_);
      snapshot_.is_serving = true;
      snapshot_.is_restoring = false;
      snapshot_.setting.reset();
      snapshot_.effect.reset();
      snapshot_.foreign.reset();
      unobserved_ = 0;
      overridden_.reset();
    }
    // The bell must not ring earlier. The observer would still find the GPU free, and sleep too
    // long.
    observer_bell_->Ring();
  });
}

void GpuWorker::Restore(std::vector<ControlSetting> settings, std::function<void()> done) {
  Command([this, settings = std::move(settings), done = std::move(done)] {
    channel_.reset();
    to_restore_ = settings;
    restored_ = done;
    next_attempt_ = 0;
    retry_after_ = ToNs(periods_.first_retry);
    const MutexLock lock(mutex_);
    // Another program's lock is newer than both our lock and the setting before the lease.
    if (snapshot_.foreign && snapshot_.foreign->has_yielded && snapshot_.foreign->is_certain) {
      std::erase_if(to_restore_, [](const ControlSetting& wanted) {
        return wanted.control == device::Control::kSmClock;
      });
    }
    snapshot_.is_serving = false;
    snapshot_.is_over_limit = false;
    snapshot_.is_restoring = true;
    snapshot_.setting_trouble.clear();  // The trouble was about the lease.
    unobserved_ = 0;
  });
}

GpuSnapshot GpuWorker::snapshot() const {
  const MutexLock lock(mutex_);
  return snapshot_;
}

// ---- The worker ----

void GpuWorker::Work(const std::stop_token& stop) {
  const auto part = clock_->TakePart(Clock::Part::kFollows);
  while (!stop.stop_requested()) {
    RunCommands();
    ServeRequest();
    AttemptRestore();
    SleepUntilNeeded(stop);
  }
}

void GpuWorker::RunCommands() {
  std::vector<std::function<void()>> commands;
  {
    const MutexLock lock(mutex_);
    commands.swap(commands_);
  }
  for (const auto& command : commands) command();
}

bool GpuWorker::HasRequest() const {
  return channel_ != nullptr && channel_->Latest(slot_).sequence != handled_;
}

void GpuWorker::ServeRequest() {
  wait_until_ = 0;
  if (!HasRequest()) return;
  const protocol::ClockRequest request = channel_->Latest(slot_);
  if (MustWait(request)) return;
  const std::uint32_t overtaken = request.sequence - handled_ - 1;
  handled_ = request.sequence;

  const std::optional<device::Setting> target = TargetOf(request);
  const bool is_known = request.sm_clock_mhz == 0 ||
                        std::ranges::binary_search(info().sm_clocks_mhz, request.sm_clock_mhz);
  bool is_set = false;
  bool has_yielded = false;
  {
    const MutexLock lock(mutex_);
    // A larger jump comes from a client with wrong numbers, not from this many requests.
    if (overtaken < 1U << 20) snapshot_.counts.coalesced += overtaken;
    is_set = snapshot_.setting && snapshot_.setting->setting == target;
    has_yielded = snapshot_.foreign && snapshot_.foreign->has_yielded;
    if (!is_known) ++snapshot_.counts.refused;
    if (is_known && has_yielded) ++snapshot_.counts.yielded;
    if (is_known && is_set) ++snapshot_.counts.no_ops;
  }
  if (!is_known) return Answer(request, protocol::ClockOutcome::kRefused);
  if (has_yielded) return Answer(request, protocol::ClockOutcome::kLimited);
  if (is_set) return Answer(request, setting_outcome_);
  changes_left_ -= 1;
  SwitchTo(request, target);
}

bool GpuWorker::MustWait(const protocol::ClockRequest& request) {
  if (most_changes_per_s_ <= 0) return false;
  RefillChanges();
  const std::optional<device::Setting> target = TargetOf(request);
  const MutexLock lock(mutex_);
  const std::optional<device::Setting> set =
      snapshot_.setting ? snapshot_.setting->setting : before_;
  const bool is_lower = target && (!set || target->upper < set->upper);
  const bool is_change = std::ranges::binary_search(info().sm_clocks_mhz, request.sm_clock_mhz) &&
                         !(snapshot_.foreign && snapshot_.foreign->has_yielded);
  if (!is_lower || !is_change || changes_left_ >= 1) return false;
  wait_until_ = changes_left_at_ + ToNanoseconds((1 - changes_left_) / most_changes_per_s_) + 1;
  if (std::exchange(postponed_request_, request.sequence) != request.sequence) {
    ++snapshot_.counts.postponed;
    // Requests are counted from 1.
    if (std::uint64_t{10} * ++postponed_ > request.sequence) snapshot_.is_over_limit = true;
    channel_->SetPostponed(slot_, postponed_);
  }
  return true;
}

void GpuWorker::RefillChanges() {
  const Nanoseconds now = clock_->Now();
  changes_left_ = std::min(BucketFor(most_changes_per_s_),
                           changes_left_ + ToSeconds(now - changes_left_at_) * most_changes_per_s_);
  changes_left_at_ = now;
}

std::optional<device::Setting> GpuWorker::TargetOf(const protocol::ClockRequest& request) const {
  if (request.sm_clock_mhz == 0) return before_;
  return device::Setting{request.sm_clock_mhz, request.sm_clock_mhz};
}

// Repeats the latest request if another program has changed its clock.
void GpuWorker::SetAgain() {
  if (!channel_ || handled_ == 0) return;
  protocol::ClockRequest request = channel_->Latest(slot_);
  // Does nothing if a newer request exists, or if the latest request was refused.
  if (request.sequence != handled_ || answer_.outcome == protocol::ClockOutcome::kRefused) return;
  request.requested_at = 0;  // The latency of this request was already counted.
  SwitchTo(request, TargetOf(request));
}

void GpuWorker::SwitchTo(const protocol::ClockRequest& request,
                         const std::optional<device::Setting>& target) {
  const Nanoseconds started = clock_->Now();
  const auto applied = Apply({device::Control::kSmClock, target});
  {
    const MutexLock lock(mutex_);
    // The client sets this time, so it may be wrong. Ignores a time in the future.
    if (request.requested_at > 0 && request.requested_at <= started) {
      snapshot_.request_to_call.Add(started - request.requested_at);
    }
    snapshot_.call.Add(clock_->Now() - started);
    snapshot_.effect.reset();
    switched_at_ = clock_->Now();
    if (applied) {
      ++snapshot_.counts.switches;
      snapshot_.setting = ControlSetting{device::Control::kSmClock, target};
      unobserved_ = ++last_switch_;
    } else {
      ++snapshot_.counts.failed;
      snapshot_.setting.reset();
      unobserved_ = 0;
    }
  }
  if (applied) answer_.sm_clock_mhz = request.sm_clock_mhz;
  setting_outcome_ = applied ? protocol::ClockOutcome::kAccepted : protocol::ClockOutcome::kFailed;
  Answer(request, setting_outcome_);
}

void GpuWorker::Answer(const protocol::ClockRequest& request, protocol::ClockOutcome outcome) {
  answer_.sequence = request.sequence;
  answer_.outcome = outcome;
  answer_.applied_at = clock_->Now();
  channel_->Answer(slot_, answer_);
}

device::DeviceResult<void> GpuWorker::Apply(const ControlSetting& wanted) {
  {
    const MutexLock lock(mutex_);
    snapshot_.in_driver_since = MonotonicNow();
  }
  auto applied = device_->Apply(wanted.control, wanted.setting);
  const MutexLock lock(mutex_);
  snapshot_.in_driver_since = 0;
  snapshot_.setting_trouble = applied ? "" : applied.error().Message();
  return applied;
}

// ---- Restoring ----

void GpuWorker::AttemptRestore() {
  if (!restored_ || clock_->Now() < next_attempt_) return;
  std::vector<ControlSetting> left;
  std::string trouble;
  for (const ControlSetting& wanted : to_restore_) {
    if (const auto back = PutBack(wanted); !back) {
      left.push_back(wanted);
      trouble = back.error().Message();
    }
  }
  to_restore_ = std::move(left);
  {
    const MutexLock lock(mutex_);
    snapshot_.counts.restore_failures += to_restore_.size();
    snapshot_.setting_trouble = trouble;
    if (to_restore_.empty()) {
      ++snapshot_.counts.restores;
      snapshot_.is_restoring = false;
      snapshot_.setting.reset();
      snapshot_.effect.reset();
      snapshot_.foreign.reset();
      overridden_.reset();
    }
  }
  if (to_restore_.empty()) {
    std::exchange(restored_, nullptr)();
    return;
  }
  next_attempt_ = clock_->Now() + retry_after_;
  retry_after_ = std::min(2 * retry_after_, ToNs(periods_.last_retry));
}

device::DeviceResult<void> GpuWorker::PutBack(const ControlSetting& wanted) {
  PERSEUS_RETURN_IF_ERROR(Apply(wanted));
  PERSEUS_ASSIGN_OR_RETURN(const auto reading, device_->ReadSetting(wanted.control));
  if (HasTaken(reading, wanted.setting)) return {};
  return device::DeviceFail(
      device::DeviceErrorKind::kFailed, "the {} of {} was not restored to {}: {} (trying again)",
      NameOf(wanted.control), info().uuid, device::Describe(wanted.control, wanted.setting),
      reading.is_known ? "it reads " + device::Describe(wanted.control, reading.setting)
                       : reading.hint);
}

void GpuWorker::SleepUntilNeeded(const std::stop_token& stop) {
  if (channel_) channel_->Announce(slot_, protocol::ClockChannel::Sleep::kAboutToSleep);
  // If a newer request replaces a waiting request, the worker examines it at once.
  const bool is_waiting =
      wait_until_ != 0 && HasRequest() && channel_->Latest(slot_).sequence == postponed_request_;
  const bool is_needed = stop.stop_requested() || (HasRequest() && !is_waiting);
  Nanoseconds until = is_needed ? 0 : restored_ ? next_attempt_ : Clock::kNever;
  if (is_waiting) until = std::min(until, wait_until_);
  // A command rings the bell after it is stored, so no command is missed.
  std::array<pollfd, 2> bells{
      {{.fd = bell_->fd(), .events = POLLIN, .revents = 0},
       {.fd = channel_ ? channel_->wakeup(slot_) : -1, .events = POLLIN, .revents = 0}}};
  clock_->Poll(bells, until);
  if (bells[0].revents != 0) bell_->Silence();
  if (channel_) {
    channel_->Announce(slot_, protocol::ClockChannel::Sleep::kAwake);
    if (bells[1].revents != 0) channel_->DrainWakeups(slot_);
  }
}

// ---- The observer ----

void GpuWorker::Observe(const std::stop_token& stop) {
  const auto part = clock_->TakePart(Clock::Part::kPeriodic);
  while (!stop.stop_requested()) {
    auto telemetry = device_->Read();
    bool is_serving = false;
    {
      const MutexLock lock(mutex_);
      is_serving = snapshot_.is_serving;
      snapshot_.reading_trouble = telemetry ? "" : telemetry.error().Message();
      snapshot_.telemetry = telemetry ? std::optional(*telemetry) : std::nullopt;
      // A driver that comes back has lost all settings. So the worker has to set the same clock
      // again.
      if (!telemetry && telemetry.error().kind == device::DeviceErrorKind::kGone) {
        snapshot_.setting.reset();
      }
    }
    LookAtEffect();
    if (telemetry) LookAtHolder(*telemetry);
    pollfd bell{.fd = observer_bell_->fd(), .events = POLLIN, .revents = 0};
    const auto period = is_serving ? periods_.observe_serving : periods_.observe_free;
    if (clock_->Poll({&bell, 1}, clock_->Now() + ToNs(period)) > 0) observer_bell_->Silence();
  }
}

void GpuWorker::LookAtEffect() {
  std::uint32_t of_switch = 0;
  std::optional<device::Setting> setting;
  {
    const MutexLock lock(mutex_);
    if (unobserved_ == 0 || !snapshot_.setting) return;
    of_switch = unobserved_;
    setting = snapshot_.setting->setting;
  }
  const auto effect = device_->ReadEffect(device::Control::kSmClock, setting);
  if (!effect) return;
  {
    const MutexLock lock(mutex_);
    if (unobserved_ != of_switch) return;  // A later switch overtook this reading.
    snapshot_.effect = *effect;
    if (effect->state == device::EffectState::kPending) return;
    unobserved_ = 0;
    ++(effect->state == device::EffectState::kInEffect ? snapshot_.counts.in_effect
                                                       : snapshot_.counts.limited);
  }
  auto outcome = protocol::ClockOutcome::kInEffect;
  if (effect->state != device::EffectState::kInEffect) {
    outcome = device::IsAtPowerLimit(effect->limits) ? protocol::ClockOutcome::kAtPowerLimit
                                                     : protocol::ClockOutcome::kLimited;
  }
  // Only the worker writes answers.
  Command([this, of_switch, outcome] {
    if (!channel_ || last_switch_ != of_switch) return;
    // A refusal that came later stays. A later request for this clock gets the new outcome, too.
    const bool is_of_setting = answer_.outcome == setting_outcome_;
    setting_outcome_ = outcome;
    if (!is_of_setting) return;
    answer_.outcome = outcome;
    channel_->Answer(slot_, answer_);
  });
}

// ---- Who holds the clock ----

void GpuWorker::LookAtHolder(const device::Telemetry& telemetry) {
  std::optional<device::Setting> ours;
  std::uint64_t switches = 0;
  {
    const MutexLock lock(mutex_);
    if (snapshot_.is_serving && clock_->Now() - switched_at_ >= ToNs(periods_.landing)) {
      ours = overridden_;
      if (!ours && snapshot_.setting) ours = snapshot_.setting->setting;
    }
    switches = snapshot_.counts.switches;
  }
  if (!ours) {
    same_in_a_row_ = 0;
    return;
  }
  const Judgement judgement = Judge(telemetry, *ours);
  if (judgement.holder == Holder::kUnknown) return;
  same_in_a_row_ = judgement.holder == last_holder_ ? same_in_a_row_ + 1 : 1;
  last_holder_ = judgement.holder;
  if (same_in_a_row_ < kReadingsToJudge) return;
  same_in_a_row_ = 0;
  bool sets_again = false;
  {
    const MutexLock lock(mutex_);
    // Meanwhile, the worker has set a clock, or is setting one now.
    if (!snapshot_.is_serving || snapshot_.counts.switches != switches ||
        snapshot_.in_driver_since != 0) {
      return;
    }
    sets_again = ActOn(judgement);
  }
  if (sets_again) Command([this] { SetAgain(); });
}

GpuWorker::Judgement GpuWorker::Judge(const device::Telemetry& telemetry,
                                      const device::Setting& ours) {
  if (reports_locks_) {
    const auto reading = device_->ReadSetting(device::Control::kSmClock);
    if (!reading) return {};
    reports_locks_ = reading->is_known;
    if (reading->is_known) {
      if (!reading->setting) return {Holder::kNobody, {}};
      if (*reading->setting == ours) return {Holder::kPerseus, {}};
      return {Holder::kOther,
              {.setting = reading->setting,
               .sm_clock_mhz = telemetry.sm_clock_mhz.value_or(0),
               .is_certain = true}};
    }
  }
  using device::ClockLimit;
  for (const ClockLimit limit : {ClockLimit::kIdle, ClockLimit::kPowerCap, ClockLimit::kThermal,
                                 ClockLimit::kPowerBrake, ClockLimit::kOther}) {
    if (telemetry.limits.Has(limit)) return {};
  }
  if (!telemetry.sm_clock_mhz) return {};
  const int mhz = *telemetry.sm_clock_mhz;
  if (mhz >= ours.lower - kNearMhz && mhz <= ours.upper + kNearMhz) return {Holder::kPerseus, {}};
  const bool is_above = mhz > ours.upper;
  if (telemetry.limits.Has(ClockLimit::kSetting)) {
    return {Holder::kOther, {.setting = std::nullopt, .sm_clock_mhz = mhz, .is_certain = is_above}};
  }
  return {is_above ? Holder::kNobody : Holder::kUnknown, {}};
}

// Returns whether the clock has to be set again.
bool GpuWorker::ActOn(const Judgement& judgement) {
  const bool was_yielding = snapshot_.foreign && snapshot_.foreign->has_yielded;
  if (judgement.holder == Holder::kPerseus) {
    // The other program has set exactly our clock, or no longer sets another clock.
    if (was_yielding) snapshot_.setting = {device::Control::kSmClock, overridden_};
    snapshot_.foreign.reset();
    overridden_.reset();
    return was_yielding;  // Meanwhile, the job may have requested another clock.
  }
  if (judgement.holder == Holder::kNobody) {
    if (!was_yielding) ++snapshot_.counts.foreign_resets;
    snapshot_.foreign.reset();
    overridden_.reset();
    snapshot_.setting.reset();
    return true;
  }
  if (was_yielding) {
    snapshot_.foreign = judgement.foreign;
    snapshot_.foreign->has_yielded = true;
    return false;
  }
  ++snapshot_.counts.foreign_locks;
  snapshot_.foreign = judgement.foreign;
  if (when_overridden_ == WhenOverridden::kYield) {
    snapshot_.foreign->has_yielded = true;
    overridden_ = snapshot_.setting ? snapshot_.setting->setting : std::nullopt;
  }
  snapshot_.setting.reset();
  snapshot_.effect.reset();
  unobserved_ = 0;
  return when_overridden_ == WhenOverridden::kInsist;
}

}  // namespace perseus::agent
