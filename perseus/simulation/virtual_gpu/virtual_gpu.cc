#include "perseus/simulation/virtual_gpu/virtual_gpu.h"
#include "perseus/base/limits.h"
#include "perseus/base/statistics.h"
#include "perseus/base/units.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

namespace perseus::virtual_gpu {
namespace {

// A VirtualGpu is in memory that processes share, so it has to be copyable as bytes.
static_assert(std::is_trivially_copyable_v<VirtualGpu>);

constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();
constexpr Nanoseconds kWanderPeriod = 50'000'000;
constexpr double kLeastDelayS = 0.25e-3;
constexpr double kMostDelayS = 20e-3;

// Independent streams of random numbers from one seed.
enum class Stream : std::uint64_t { kLatency = 1, kRun, kPhase, kReading, kWander };

SplitMix64 GeneratorOf(std::uint64_t seed, Stream stream, std::uint64_t index = 0) {
  SplitMix64 mixed{seed};
  mixed.state = mixed() + static_cast<std::uint64_t>(stream);
  mixed.state = mixed() + index;
  return mixed;
}

double LogNormal(double spread, SplitMix64& random) {
  const double normal = Normal(random);
  return std::exp(spread * normal);
}

// The delay of a late launch. Its distribution is that of Pareto with index 1: twice the delay is
// half as frequent.
double LaunchDelay(SplitMix64& random) {
  return std::min(kLeastDelayS / (1 - Uniform(random)), kMostDelayS);
}

double SteadyTemperature(const ThermalModel& thermal, double power_w) {
  return thermal.ambient_c + thermal.resistance_c_per_w * power_w;
}

}  // namespace

bool ClockList::Has(int clock_mhz) const {
  return std::binary_search(mhz.begin(), mhz.begin() + count, clock_mhz);
}

int ClockList::HighestUpTo(int clock_mhz) const {
  const auto* const above = std::upper_bound(mhz.begin(), mhz.begin() + count, clock_mhz);
  return above == mhz.begin() ? lowest() : *(above - 1);
}

int ClockList::Nearest(double clock_mhz) const {
  return NearestTo({mhz.begin(), mhz.begin() + count}, clock_mhz);
}

VirtualGpu::VirtualGpu(const VirtualGpuModel& model, std::uint64_t seed, Nanoseconds at)
    : model_(model),
      seed_(seed),
      latency_random_(GeneratorOf(seed, Stream::kLatency)),
      run_random_(GeneratorOf(seed, Stream::kRun)),
      at_(at),
      temperature_c_(SteadyTemperature(model.thermal, model.idle_power_w)),
      finished_at_(at) {
  SplitMix64 phase = GeneratorOf(seed, Stream::kPhase);
  counter_phase_ = static_cast<Nanoseconds>(phase() >> 1) % model.counter_period;
}

// ---- The current state ----

int VirtualGpu::CapForPower(int clock_mhz) const {
  const int limit_mw = power_limit_ ? power_limit_->upper : model_.default_power_limit_mw;
  if (limit_mw == 0) return clock_mhz;
  const double most_w = kPowerLimitSlack * limit_mw / kMilliwattsPerWatt;
  // The power of a measured table need not grow with the clock. So each clock is tried.
  for (int i = model_.sm_clocks.count - 1; i >= 0; --i) {
    const int candidate_mhz = model_.sm_clocks.mhz[static_cast<std::size_t>(i)];
    if (candidate_mhz > clock_mhz) continue;
    const synthetic::TimeAndEnergy whole = instruction_.At(candidate_mhz);
    if (model_.power_factor * whole.energy_j <= most_w * whole.time_s) return candidate_mhz;
  }
  return model_.sm_clocks.lowest();
}

int VirtualGpu::WanderAround(int clock_mhz) const {
  if (model_.power_limit_wander == 0) return clock_mhz;
  SplitMix64 random =
      GeneratorOf(seed_, Stream::kWander, static_cast<std::uint64_t>(at_ / kWanderPeriod));
  return model_.sm_clocks.Nearest(clock_mhz * LogNormal(model_.power_limit_wander, random));
}

VirtualGpu::Pace VirtualGpu::CurrentPace() const {
  Pace pace;
  if (!is_running_ && rest_ == Rest::kIdle) {
    pace.sm_clock_mhz = model_.sm_clocks.lowest();
    pace.limits.Add(device::ClockLimit::kIdle);
    pace.power_w = model_.idle_power_w;
    return pace;
  }
  const ClockList& clocks = model_.sm_clocks;
  int clock_mhz = lock_ ? clocks.HighestUpTo(lock_->upper) : clocks.highest();
  if (clock_mhz < clocks.highest()) pace.limits.Add(device::ClockLimit::kSetting);

  int cap_mhz = throttle_mhz_.value_or(clocks.highest());
  if (is_hot_) cap_mhz = std::min(cap_mhz, model_.thermal.throttle_mhz);
  if (clocks.HighestUpTo(cap_mhz) < clock_mhz) {
    pace.limits.Add(device::ClockLimit::kThermal);
    clock_mhz = clocks.HighestUpTo(cap_mhz);
  }
  if (!is_running_) {
    pace.sm_clock_mhz = clock_mhz;
    pace.power_w = model_.blocking_power_w;
    return pace;
  }
  if (const int capped_mhz = CapForPower(clock_mhz); capped_mhz < clock_mhz) {
    pace.limits.Add(device::ClockLimit::kPowerCap);
    clock_mhz = std::min(clock_mhz, WanderAround(capped_mhz));
  }
  pace.sm_clock_mhz = clock_mhz;
  pace.whole = instruction_.At(clock_mhz);
  pace.whole.time_s *= time_factor_;
  pace.whole.energy_j *= time_factor_ * power_factor_ * model_.power_factor;
  pace.whole.time_s += delay_s_;
  pace.whole.energy_j += delay_s_ * model_.blocking_power_w;
  pace.power_w = pace.whole.energy_j / pace.whole.time_s;
  return pace;
}

// ---- Events ----

Nanoseconds VirtualGpu::TimeLeft(const Pace& pace) const {
  return std::llround((1 - done_) * pace.whole.time_s * kNanosecondsPerSecond);
}

// How long until the temperature crosses the threshold towards which it moves.
Nanoseconds VirtualGpu::ThermalEvent(const Pace& pace) const {
  const ThermalModel& thermal = model_.thermal;
  const double goal_c = SteadyTemperature(thermal, pace.power_w);
  const double threshold_c = is_hot_ ? thermal.resume_at_c : thermal.throttle_at_c;
  const bool will_cross = is_hot_ ? goal_c < threshold_c : goal_c > threshold_c;
  if (!will_cross) return kNever;
  const double time_s =
      thermal.time_constant_s * std::log((goal_c - temperature_c_) / (goal_c - threshold_c));
  // A threshold that is very close to the final temperature is reached only in the limit.
  if (!(time_s < kLongestSeconds)) return kNever;
  // Rounding may leave the temperature just before the threshold. Then the next event is 1 ns
  // later.
  return std::max<Nanoseconds>(1,
                               static_cast<Nanoseconds>(std::ceil(time_s * kNanosecondsPerSecond)));
}

Nanoseconds VirtualGpu::NextEvent(const Pace& pace) const {
  Nanoseconds next = kNever;
  if (pending_count_ > 0) next = pending_[0].lands_at;
  if (is_running_) next = std::min(next, at_ + TimeLeft(pace));
  if (!is_running_ && has_queued_) next = std::min(next, queued_not_before_);
  const bool wanders =
      model_.power_limit_wander > 0 && pace.limits.Has(device::ClockLimit::kPowerCap);
  if (wanders) next = std::min(next, (at_ / kWanderPeriod + 1) * kWanderPeriod);
  const Nanoseconds thermal = ThermalEvent(pace);
  if (thermal != kNever) next = std::min(next, at_ + thermal);
  return next;
}

Nanoseconds VirtualGpu::LastTick(Nanoseconds now) const {
  const Nanoseconds since = now - counter_phase_;
  const Nanoseconds over =
      (since % model_.counter_period + model_.counter_period) % model_.counter_period;
  return now - over;
}

void VirtualGpu::Integrate(const Pace& pace, Nanoseconds until) {
  const Nanoseconds duration = until - at_;
  const double duration_s = ToSeconds(duration);
  double drawn_j = pace.power_w * duration_s;
  if (is_running_) {
    // The last part takes the rest of the instruction exactly, without the rounding to nanoseconds.
    const bool ends = duration >= TimeLeft(pace);
    const double share = ends ? 1 - done_ : std::min(1 - done_, duration_s / pace.whole.time_s);
    drawn_j = share * pace.whole.energy_j;
    done_ = ends ? 1 : done_ + share;
  }
  // This does not use `until`, so that two reads between two ticks return exactly the same value.
  if (const Nanoseconds tick = LastTick(until); tick > at_) {
    published_energy_j_ = energy_j_ + pace.power_w * ToSeconds(tick - at_);
  }
  energy_j_ += drawn_j;
  const double goal_c = SteadyTemperature(model_.thermal, pace.power_w);
  temperature_c_ =
      goal_c + (temperature_c_ - goal_c) * std::exp(-duration_s / model_.thermal.time_constant_s);
  at_ = until;
}

// Handles all events whose time has come.
void VirtualGpu::HandleDue() {
  while (pending_count_ > 0 && pending_[0].lands_at <= at_) {
    lock_ = pending_[0].lock;
    std::move(pending_.begin() + 1, pending_.begin() + pending_count_, pending_.begin());
    --pending_count_;
  }
  if (is_hot_ ? temperature_c_ <= model_.thermal.resume_at_c
              : temperature_c_ >= model_.thermal.throttle_at_c) {
    is_hot_ = !is_hot_;
  }
  // An instruction without duration ends as soon as it begins.
  do {
    if (!is_running_ && has_queued_ && queued_not_before_ <= at_) BeginQueued();
  } while (FinishIfDone());
}

bool VirtualGpu::FinishIfDone() {
  if (!is_running_) return false;
  const Pace pace = CurrentPace();
  if (TimeLeft(pace) > 0) return false;
  energy_j_ += (1 - done_) * pace.whole.energy_j;
  is_running_ = false;
  finished_at_ = at_;
  runs_[runs_begun_ % kRunsRemembered].finish = at_;
  return true;
}

void VirtualGpu::BeginQueued() {
  instruction_ = queued_;
  has_queued_ = false;
  is_running_ = true;
  done_ = 0;
  time_factor_ = LogNormal(model_.time_noise, run_random_);
  power_factor_ = LogNormal(model_.power_noise, run_random_);
  const bool is_late = model_.late_launches > 0 && Uniform(run_random_) < model_.late_launches;
  delay_s_ = is_late ? LaunchDelay(run_random_) : 0;
  runs_[++runs_begun_ % kRunsRemembered] = {at_, at_};
}

void VirtualGpu::AdvanceTo(Nanoseconds now) {
  for (;;) {
    HandleDue();
    if (at_ >= now) return;
    const Pace pace = CurrentPace();
    Integrate(pace, std::min(now, NextEvent(pace)));
  }
}

Nanoseconds VirtualGpu::FinishTime() const {
  VirtualGpu future = *this;
  for (;;) {
    future.HandleDue();
    if (!future.is_running_ && !future.has_queued_) return future.finished_at_;
    const Pace pace = future.CurrentPace();
    future.Integrate(pace, future.NextEvent(pace));
  }
}

VirtualRun VirtualGpu::RunOf(std::uint64_t run) const {
  VirtualGpu future = *this;
  for (;;) {
    future.HandleDue();
    const bool has_begun = run <= future.runs_begun_;
    const bool is_done = run < future.runs_begun_ || !future.is_running_;
    if (has_begun && is_done) return future.runs_[run % kRunsRemembered];
    const Pace pace = future.CurrentPace();
    future.Integrate(pace, future.NextEvent(pace));
  }
}

// ---- Changes ----

std::optional<device::Setting> VirtualGpu::RequestedLock() const {
  return pending_count_ > 0 ? pending_[static_cast<std::size_t>(pending_count_ - 1)].lock : lock_;
}

Nanoseconds VirtualGpu::RequestLock(const std::optional<device::Setting>& lock, Nanoseconds now) {
  AdvanceTo(now);
  const double latency_s =
      model_.switch_latency_s * LogNormal(model_.switch_latency_spread, latency_random_);
  Nanoseconds lands_at = at_ + ToNanoseconds(std::min(latency_s, kLongestSeconds));
  if (pending_count_ > 0) {
    lands_at = std::max(lands_at, pending_[static_cast<std::size_t>(pending_count_ - 1)].lands_at);
  }
  // If the queue is full, the second-last request is dropped.
  if (pending_count_ == kMostPending) --pending_count_;
  pending_[static_cast<std::size_t>(pending_count_++)] = {lock, lands_at};
  HandleDue();
  return lands_at;
}

void VirtualGpu::SetMemoryLock(const std::optional<device::Setting>& lock, Nanoseconds now) {
  AdvanceTo(now);
  memory_lock_ = lock;
}

void VirtualGpu::SetPowerLimit(const std::optional<device::Setting>& limit_mw, Nanoseconds now) {
  AdvanceTo(now);
  power_limit_ = limit_mw;
}

void VirtualGpu::SetThrottle(std::optional<int> clock_mhz, Nanoseconds now) {
  AdvanceTo(now);
  throttle_mhz_ = clock_mhz;
}

void VirtualGpu::SetRest(Rest rest, Nanoseconds now) {
  AdvanceTo(now);
  rest_ = rest;
}

void VirtualGpu::Begin(const InstructionTable& instruction, Nanoseconds now) {
  Enqueue(instruction, now, now);
}

std::uint64_t VirtualGpu::Enqueue(const InstructionTable& instruction, Nanoseconds not_before,
                                  Nanoseconds now) {
  AdvanceTo(now);
  queued_ = instruction;
  queued_not_before_ = not_before;
  has_queued_ = true;
  const std::uint64_t run = last_run();
  HandleDue();
  return run;
}

void VirtualGpu::Stop(Nanoseconds now) {
  AdvanceTo(now);
  if (is_running_) {
    finished_at_ = at_;
    runs_[runs_begun_ % kRunsRemembered].finish = at_;
  }
  is_running_ = false;
  has_queued_ = false;
  rest_ = Rest::kIdle;
}

// ---- Readings ----

double VirtualGpu::PowerReadingNoise() const {
  SplitMix64 random =
      GeneratorOf(seed_, Stream::kReading, static_cast<std::uint64_t>(LastTick(at_)));
  return LogNormal(model_.power_noise, random);
}

VirtualGpuReading VirtualGpu::ReadAt(Nanoseconds now) const {
  VirtualGpu then = *this;
  then.AdvanceTo(now);
  const Pace pace = then.CurrentPace();
  VirtualGpuReading reading;
  reading.at = then.at_;
  reading.energy_j = then.energy_j_;
  reading.published_energy_j = then.published_energy_j_;
  reading.power_w = pace.power_w;
  reading.published_power_w = pace.power_w * then.PowerReadingNoise();
  reading.temperature_c = then.temperature_c_;
  reading.sm_clock_mhz = pace.sm_clock_mhz;
  if (model_.memory_clocks.count > 0) {
    reading.memory_clock_mhz =
        then.memory_lock_ ? then.memory_lock_->upper : model_.memory_clocks.highest();
  }
  reading.limits = pace.limits;
  reading.is_running = then.is_running_;
  reading.done = then.is_running_ ? then.done_ : 0;
  reading.rest = then.rest_;
  reading.lock = then.lock_;
  reading.requested_lock = then.RequestedLock();
  reading.memory_lock = then.memory_lock_;
  reading.power_limit = then.power_limit_;
  reading.throttle_mhz = then.throttle_mhz_;
  return reading;
}

synthetic::TimeAndEnergy InstructionTable::At(int frequency_mhz) const {
  const auto* const begin = frequencies_mhz.begin();
  const auto* const end = begin + count;
  const auto* const above = std::lower_bound(begin, end, frequency_mhz);
  if (above == end) return rows[static_cast<std::size_t>(count - 1)];
  const auto index = static_cast<std::size_t>(above - begin);
  if (*above == frequency_mhz || index == 0) return rows[index];
  const synthetic::TimeAndEnergy& slow = rows[index - 1];
  const synthetic::TimeAndEnergy& fast = rows[index];
  const double part = static_cast<double>(frequency_mhz - frequencies_mhz[index - 1]) /
                      static_cast<double>(*above - frequencies_mhz[index - 1]);
  return {std::lerp(slow.time_s, fast.time_s, part), std::lerp(slow.energy_j, fast.energy_j, part)};
}

Result<InstructionTable> MakeInstructionTable(const profile::Profile& profile, int pp_rank,
                                              int chunk, InstructionKind kind) {
  const profile::ProfileEntry* entry = profile.Find(pp_rank, chunk, kind);
  if (entry == nullptr) {
    return Fail(InFile(profile.name()),
                "has no {} of stage {}, chunk {} (measure it, or run another instruction)",
                Name(kind), pp_rank, chunk);
  }
  if (!profile.other_knob_names().empty()) {
    return Fail(InFile(profile.name()),
                "has the knob {}, but a virtual GPU has only clocks (remove the column)",
                profile.other_knob_names().front());
  }
  if (entry->options.size() > kMostClocks) {
    return Fail(InFile(profile.name()),
                "{} of stage {} has {} clocks (a virtual GPU has at most {})", Name(kind), pp_rank,
                entry->options.size(), kMostClocks);
  }
  InstructionTable table;
  // The table is ascending by clock. A profile is descending.
  const std::vector<profile::Option> options(entry->options.rbegin(), entry->options.rend());
  for (const profile::Option& option : options) {
    const auto index = static_cast<std::size_t>(table.count);
    table.frequencies_mhz[index] = option.frequency_mhz;
    table.rows[index] = {ToSeconds(option.time), option.energy_j};
    ++table.count;
  }
  return table;
}

InstructionTable FixedInstruction(synthetic::TimeAndEnergy cost) {
  InstructionTable table;
  table.count = 1;
  table.frequencies_mhz[0] = 1;
  table.rows[0] = cost;
  return table;
}

}  // namespace perseus::virtual_gpu
