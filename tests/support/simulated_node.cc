#include "tests/support/simulated_node.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <utility>

#include "perseus/base/random.h"

namespace perseus::qualifier {
namespace {

using device::Control;
using device::DeviceErrorKind;
using device::DeviceFail;
using device::DeviceResult;
using device::Setting;

constexpr Nanoseconds kSampleDistance = 110 * kMicrosecond;
// Dynamic power grows faster than the clock, because the voltage grows with it.
constexpr double kPowerExponent = 2.5;
constexpr double kKernelUnitMs = 1;
constexpr double kCopyMs = 2;
constexpr double kCollectiveMs = 3;
// 1 % of the reads of an H100 take 17 ms, and half of them take 3 ms.
constexpr double kReadSpread = 0.75;
constexpr double kLeastLateMs = 0.25;
constexpr double kMostLateMs = 20;

Nanoseconds FromMs(double ms) { return std::llround(ms * kMillisecond); }

}  // namespace

struct SimulatedNode::Shared {
  SimulatedModel model;
  FakeClock clock;
  SplitMix64 random;
  int writes = 0;

  double LogNormal(double median, double spread) {
    return spread == 0 ? median : median * std::exp(spread * Normal(random));
  }
  Nanoseconds ReadTime() { return FromMs(LogNormal(model.read_ms, kReadSpread)); }
  // Adds up the delays of late launches in this time. Twice the delay is half as frequent, as on an
  // H100 (docs/hardware.md).
  double LateMs(Nanoseconds duration) {
    double sum_ms = 0;
    for (double at_s = 0; model.late_launches_per_s > 0;) {
      at_s -= std::log(1 - Uniform(random)) / model.late_launches_per_s;
      if (at_s >= ToSeconds(duration)) break;
      sum_ms += std::min(kLeastLateMs / (1 - Uniform(random)), kMostLateMs);
    }
    return sum_ms;
  }
};

class SimulatedNode::Gpu final : public device::Device {
 public:
  Gpu(Shared& shared, int index) : shared_(shared) {
    const SimulatedModel& model = shared.model;
    info_.uuid = fmt::format("GPU-virtual-{}", index);
    info_.name = model.name;
    info_.backend = "virtual";
    info_.sm_clocks_mhz = model.sm_clocks_mhz;
    const bool is_odd = index == model.odd_gpu;
    if (is_odd && !model.odd_name.empty()) info_.name = model.odd_name;
    can_set_clocks_ = model.can_set_clocks && (!is_odd || model.odd_can_set_clocks);
    own_power_ = is_odd ? model.odd_power_factor : 1;
    period_ = FromMs(model.counter_period_ms * (is_odd ? model.odd_period_factor : 1));
    phase_ = std::llround(static_cast<double>(period_) * Uniform(shared.random));
    Tick();
  }

  const device::DeviceInfo& info() const override { return info_; }

  DeviceResult<device::Telemetry> Read() override {
    Nanoseconds end = shared_.clock.Now();
    const auto telemetry = ReadFrom(end);
    shared_.clock.AdvanceTo(end);
    return telemetry;
  }

  // Reads from `now` on, and moves `now` to the end of the call. The counter may be read at any
  // moment of the call, which takes nearly all of its time.
  DeviceResult<device::Telemetry> ReadFrom(Nanoseconds& now) {
    if (!shared_.model.can_read) {
      return DeviceFail(DeviceErrorKind::kNotSupported, "cannot read the power: not supported");
    }
    AdvanceTo(now);
    device::Telemetry telemetry;
    telemetry.at = now;
    telemetry.power_w = published_power_w_;
    const Nanoseconds length = shared_.ReadTime();
    AdvanceTo(now + std::llround(Uniform(shared_.random) * static_cast<double>(length)));
    telemetry.energy_j = published_j_;
    now += length;
    AdvanceTo(now);
    telemetry.temperature_c = 40;
    // With a CUDA context, an idle GPU keeps its clock.
    telemetry.sm_clock_mhz = ClockNow();
    if (load_ == Load::kIdle) telemetry.limits.Add(device::ClockLimit::kIdle);
    if (ClockNow() < Wanted()) telemetry.limits.Add(device::ClockLimit::kPowerCap);
    return telemetry;
  }

  DeviceResult<device::SettingReading> ReadSetting(Control control) override {
    device::SettingReading reading;
    reading.is_known = true;
    if (control == Control::kSmClock) reading.setting = requested_;
    return reading;
  }

  DeviceResult<void> Apply(Control control, const std::optional<Setting>& setting) override {
    const auto applied = Request(control, setting, shared_.clock.Now(), 1);
    if (!applied) return tl::unexpected(applied.error());
    shared_.clock.AdvanceTo(*applied);
    return {};
  }

  DeviceResult<device::Effect> ReadEffect(Control /*control*/,
                                          const std::optional<Setting>& /*setting*/) override {
    Advance();
    return device::Effect{
        pending_.empty() ? device::EffectState::kInEffect : device::EffectState::kPending,
        ClockNow(),
        {}};
  }

  // Returns the time at which the call ends, without moving the clock.
  DeviceResult<Nanoseconds> Request(Control control, const std::optional<Setting>& setting,
                                    Nanoseconds now, int set_at_once) {
    const SimulatedModel& model = shared_.model;
    if (control != Control::kSmClock) {
      return DeviceFail(DeviceErrorKind::kNotSupported, "a simulated GPU has no {} to set",
                        device::NameOf(control));
    }
    if (!can_set_clocks_) {
      return DeviceFail(DeviceErrorKind::kPermission,
                        "cannot lock the GPU clock: permission denied (run as root)");
    }
    ++shared_.writes;
    const Nanoseconds call_end =
        now + FromMs(model.call_ms + model.call_per_other_ms * (set_at_once - 1));
    const int to_mhz = setting ? setting->upper : model.sm_clocks_mhz.back();
    const int from_mhz = requested_ ? requested_->upper : model.sm_clocks_mhz.back();
    requested_ = setting;
    const double factor = to_mhz < from_mhz ? model.landing_down_factor : 1;
    const Nanoseconds lands =
        call_end + FromMs(factor * shared_.LogNormal(model.landing_ms, model.landing_spread));
    // Requests land in the order in which they were made.
    pending_.push_back({std::max(lands, pending_.empty() ? 0 : pending_.back().at), setting});
    return call_end;
  }

  void SetLoad(Load load) {
    Advance();
    load_ = load;
    Tick();
  }

  double WorkAt(Nanoseconds now) {
    AdvanceTo(now);
    return work_;
  }
  bool is_stopped() const { return at_ < stalled_until_; }
  std::optional<Setting> requested() const { return requested_; }

 private:
  struct Pending {
    Nanoseconds at = 0;
    std::optional<Setting> lock;
  };

  int Lowest() const { return shared_.model.sm_clocks_mhz.front(); }
  int Highest() const { return shared_.model.sm_clocks_mhz.back(); }

  // The clock without the power limit.
  int Wanted() const {
    const int upper = lock_ ? lock_->upper : Highest();
    const int waiting = shared_.model.waiting_mhz;
    const bool may_fall = lock_ ? lock_->lower < lock_->upper : true;
    if (load_ != Load::kBlocked || waiting == 0 || !may_fall) return upper;
    return std::min(std::max(waiting, lock_ ? lock_->lower : Lowest()), upper);
  }
  int ClockNow() const {
    return load_ == Load::kCompute ? std::min(Wanted(), allowed_mhz_) : Wanted();
  }

  // The clock that the power limit allows. The GPU regulates, so this clock is now and then one
  // step higher or lower.
  int AllowedClock() {
    const auto& clocks_mhz = shared_.model.sm_clocks_mhz;
    const double limit_w = shared_.model.power_limit_w;
    if (limit_w == 0) return Highest();
    const auto above = std::ranges::partition_point(clocks_mhz, [&](int mhz) {
      return own_power_ * MeanPower(Load::kCompute, mhz) <= limit_w;
    });
    if (above == clocks_mhz.end()) return Highest();
    const auto index = std::max<std::ptrdiff_t>(0, above - clocks_mhz.begin() - 2);
    return clocks_mhz[static_cast<std::size_t>(index + Below(shared_.random, 3))];
  }

  double PowerNow() const { return own_power_ * power_factor_ * MeanPower(load_, ClockNow()); }

  double MeanPower(Load load, int mhz) const {
    const SimulatedModel& model = shared_.model;
    const double part = static_cast<double>(mhz) / Highest();
    const double above =
        Highest() == Lowest() ? 1 : static_cast<double>(mhz - Lowest()) / (Highest() - Lowest());
    switch (load) {
      case Load::kIdle:
        return model.idle_power_w;
      case Load::kBlocked:
        return model.blocked_power_lowest_w +
               (model.blocked_power_w - model.blocked_power_lowest_w) * above;
      case Load::kCompute:
        return model.idle_power_w +
               (model.busy_power_w - model.idle_power_w) * std::pow(part, kPowerExponent);
    }
    return 0;
  }

  // The rate in iterations per nanosecond.
  double WorkRate() const { return load_ == Load::kIdle || is_stopped() ? 0 : ClockNow() / 1000.0; }

  void Tick() {
    const double exact_j = energy_j_ * (1 + shared_.model.counter_bias);
    const double resolution_j = shared_.model.counter_resolution_j;
    published_j_ =
        resolution_j > 0 ? std::floor(exact_j / resolution_j + 1e-9) * resolution_j : exact_j;
    allowed_mhz_ = AllowedClock();
    power_factor_ = 1 + shared_.model.power_noise * Normal(shared_.random);
    published_power_w_ = PowerNow() * (1 + shared_.model.power_noise * Normal(shared_.random));
  }

  void Advance() { AdvanceTo(shared_.clock.Now()); }

  void AdvanceTo(Nanoseconds now) {
    while (at_ < now) {
      const Nanoseconds next_tick = at_ + period_ - (at_ + phase_) % period_;
      const bool has_landing = !pending_.empty() && pending_.front().at <= std::min(now, next_tick);
      Nanoseconds next =
          std::max(at_, has_landing ? pending_.front().at : std::min(now, next_tick));
      if (at_ < stalled_until_) next = std::min(next, stalled_until_);
      energy_j_ += PowerNow() * ToSeconds(next - at_);
      work_ += WorkRate() * static_cast<double>(next - at_);
      at_ = next;
      if (has_landing && next >= pending_.front().at) {
        stalled_until_ = at_ + FromMs(shared_.model.holds_kernel_ms);
        lock_ = pending_.front().lock;
        pending_.pop_front();
      } else if (at_ == next_tick) {
        Tick();
      }
    }
  }

  Shared& shared_;
  device::DeviceInfo info_;
  bool can_set_clocks_ = true;
  double own_power_ = 1;    // A factor on the power.
  Nanoseconds period_ = 0;  // The period of the energy counter.
  Nanoseconds at_ = 0;
  Nanoseconds phase_ = 0;
  Load load_ = Load::kIdle;
  std::optional<Setting> lock_;  // The lock that is in effect.
  std::optional<Setting> requested_;
  std::deque<Pending> pending_;
  Nanoseconds stalled_until_ = 0;
  int allowed_mhz_ = 0;
  double power_factor_ = 1;
  double energy_j_ = 0;
  double published_j_ = 0;
  double published_power_w_ = 0;
  double work_ = 0;
};

SimulatedNode::SimulatedNode(SimulatedModel model, int gpus, std::uint64_t seed)
    : shared_(std::make_unique<Shared>()) {
  shared_->model = std::move(model);
  shared_->random.state = seed;
  for (int i = 0; i < gpus; ++i) gpus_.push_back(std::make_unique<Gpu>(*shared_, i));
}

SimulatedNode::~SimulatedNode() = default;

int SimulatedNode::gpu_count() const { return static_cast<int>(gpus_.size()); }
device::Device& SimulatedNode::device(int gpu) { return *gpus_[static_cast<std::size_t>(gpu)]; }
Clock& SimulatedNode::clock() { return shared_->clock; }
int SimulatedNode::writes() const { return shared_->writes; }

std::optional<Setting> SimulatedNode::RequestedLock(int gpu) const {
  return gpus_[static_cast<std::size_t>(gpu)]->requested();
}

Result<void> SimulatedNode::Run(int gpu, Load load) {
  gpus_[static_cast<std::size_t>(gpu)]->SetLoad(load);
  return {};
}

void SimulatedNode::Sample(int gpu, Nanoseconds from, Nanoseconds to,
                           std::vector<WorkSample>& samples) {
  for (Nanoseconds at = from; at < to; at += kSampleDistance) {
    const double work = gpus_[static_cast<std::size_t>(gpu)]->WorkAt(at);
    // A kernel that stops writes no sample.
    if (gpus_[static_cast<std::size_t>(gpu)]->is_stopped()) continue;
    const double noise = shared_->model.time_noise * Normal(shared_->random);
    const Nanoseconds seen = at + std::llround(noise * kSampleDistance);
    if (samples.empty() || seen > samples.back().at) samples.push_back({seen, work});
  }
}

DeviceResult<std::vector<SwitchRecord>> SimulatedNode::Record(const std::vector<int>& gpus,
                                                              const std::optional<Setting>& setting,
                                                              Nanoseconds before,
                                                              Nanoseconds after) {
  const Nanoseconds begin = shared_->clock.Now();
  const Nanoseconds call_begin = begin + before;
  std::vector<SwitchRecord> records;
  Nanoseconds end = call_begin + after;
  for (const int gpu : gpus) {
    SwitchRecord& record = records.emplace_back();
    record.call_begin = record.call_end = call_begin;
    Sample(gpu, begin, call_begin, record.samples);
    if (!setting) continue;
    const auto call_end = gpus_[static_cast<std::size_t>(gpu)]->Request(
        Control::kSmClock, setting, call_begin, static_cast<int>(gpus.size()));
    if (!call_end) return tl::unexpected(call_end.error());
    record.call_end = *call_end;
    end = std::max(end, *call_end + after);
  }
  for (std::size_t i = 0; i < gpus.size(); ++i)
    Sample(gpus[i], call_begin, end, records[i].samples);
  shared_->clock.AdvanceTo(end);
  return records;
}

DeviceResult<std::vector<std::vector<device::Telemetry>>> SimulatedNode::Read(
    const std::vector<int>& gpus, Nanoseconds duration) {
  std::vector<std::vector<device::Telemetry>> readings(gpus.size());
  const Nanoseconds begin = shared_->clock.Now(), end = begin + duration;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (Nanoseconds now = begin; now < end; now += kBetweenReadings) {
      PERSEUS_ASSIGN_OR_RETURN(const auto telemetry,
                               gpus_[static_cast<std::size_t>(gpus[i])]->ReadFrom(now));
      readings[i].push_back(telemetry);
      shared_->clock.AdvanceTo(now);
    }
  }
  return readings;
}

Result<Timing> SimulatedNode::Time(Operation operation, const Disturbance& disturbance,
                                   Nanoseconds duration) {
  const SimulatedModel& model = shared_->model;
  struct Cost {
    double base_ms, held_ms;
  };
  const double launch_ms = model.launch_us / 1000;
  const std::map<Operation, Cost> costs = {
      {Operation::kLaunch, {launch_ms, model.holds_launch_ms}},
      {Operation::kKernel, {kKernelUnitMs, model.holds_kernel_ms}},
      {Operation::kCopy, {kCopyMs, model.holds_copy_ms}},
      {Operation::kCollective, {kCollectiveMs, model.holds_collective_ms}}};
  const auto [base_ms, held_ms] = costs.at(operation);
  const double read_held = operation == Operation::kLaunch
                               ? model.read_holds_launch_ms * disturbance.reads_per_s / 1000
                               : 0;
  // Readings are frequent, so they take a constant part of the time. Changes are rare, so only the
  // changes in this block count.
  const Nanoseconds call = FromMs(model.call_ms + model.call_per_other_ms * (gpu_count() - 1));
  const Nanoseconds period =
      disturbance.change_period == 0 ? 0 : std::max(disturbance.change_period, call);
  const Nanoseconds offset =
      period == 0 ? 0 : std::llround(Uniform(shared_->random) * static_cast<double>(period));
  double held = read_held * static_cast<double>(duration);
  // The kernel of kKernel runs all the time, so it is not launched.
  if (operation != Operation::kKernel) held += shared_->LateMs(duration) * kMillisecond;
  if (period > 0) {
    for (Nanoseconds at = offset; at < duration; at += period) {
      held += static_cast<double>(std::min(FromMs(held_ms), duration - at));
      ++shared_->writes;
    }
  }
  shared_->clock.Advance(duration);
  const double progress = std::max(0.001, 1 - held / static_cast<double>(duration));
  return Timing{.mean_ns = base_ms * kMillisecond / progress *
                           (1 + model.time_noise * Normal(shared_->random)),
                .changes_per_s = period == 0 ? 0 : gpu_count() / ToSeconds(period)};
}

}  // namespace perseus::qualifier
