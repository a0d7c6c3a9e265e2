// GPUs in virtual time. The caller gives their behavior. Tests check that the measurements find
// this behavior.
//
// The node has only what qualification.h can see: clocks that land late, and that a power limit
// lowers; calls that take longer the more GPUs are set at once; changes, readings and late launches
// that delay work; an energy counter with a period and a bias, which takes long to read; power by
// load and clock. The defaults are those of an H100 where one was measured (docs/hardware.md). The
// node has no temperature and no instructions. simulation/virtual_gpu, which runs plans, has them.
//
// The node's clock is a FakeClock, and the node's own calls advance it. So a measurement of minutes
// takes milliseconds, and the same seed gives the same result.
//
// Not thread-safe.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "perseus/base/random.h"
#include "perseus/runtime/qualifier/measured_node.h"

namespace perseus::qualifier {

struct SimulatedModel {
  std::string name = "Simulated GPU";
  std::vector<int> sm_clocks_mhz;  // Ascending.

  // How a switch behaves. Times begin at the call.
  double call_ms = 1;  // The duration of the call, if one GPU is set.
  // The additional duration for each other GPU that is set at the same time.
  double call_per_other_ms = 0;
  double landing_ms = 10;          // The median time from the driver's answer to the new clock.
  double landing_spread = 0;       // The standard deviation of the logarithm of this time.
  double landing_down_factor = 1;  // A factor on landing_ms, if the clock falls.
  bool can_set_clocks = true;      // False: the driver refuses with "permission denied".
  bool can_read = true;            // False: the driver refuses readings with "not supported".

  // How long one change of a clock delays work. During this time, no work of that kind proceeds. A
  // kernel stops when the clock lands.
  double holds_launch_ms = 0;
  double holds_kernel_ms = 0;
  double holds_copy_ms = 0;
  double holds_collective_ms = 0;
  double read_holds_launch_ms = 0;  // How long one reading of one GPU delays work.
  double time_noise = 0;            // The noise of the mean time of a block, and of a work sample.
  // Launches that the host delays by 0.25 to 20 ms, with a heavy tail.
  double late_launches_per_s = 0;

  double counter_period_ms = 100;
  double counter_resolution_j = 0.001;
  double counter_bias = 0;
  // The noise of the power itself, which changes at each tick of the counter, and of each power
  // reading.
  double power_noise = 0;

  double idle_power_w = 50;
  double busy_power_w = 400;    // At the highest clock, without a limit.
  double power_limit_w = 0;     // A busy GPU lowers its clock to keep this limit. 0: no limit.
  double blocked_power_w = 84;  // At the highest clock.
  // At the lowest clock. Between the two clocks, the power is linear.
  double blocked_power_lowest_w = 84;
  // The clock of a GPU that only waits, if the lock is a range. 0: the upper end of the range.
  int waiting_mhz = 0;

  // The mean power. Dynamic power grows faster than the clock, because the voltage grows with it.
  double MeanPower(Load load, int mhz) const {
    const double lowest = sm_clocks_mhz.front(), highest = sm_clocks_mhz.back();
    if (load == Load::kIdle) return idle_power_w;
    return load == Load::kBlocked
               ? blocked_power_lowest_w + (blocked_power_w - blocked_power_lowest_w) *
                                              (mhz - lowest) / (highest - lowest)
               : idle_power_w + (busy_power_w - idle_power_w) * std::pow(mhz / highest, 2.5);
  }
  // The duration of the call that sets one of so many GPUs at once.
  double CallMs(int set_at_once) const { return call_ms + call_per_other_ms * (set_at_once - 1); }
};

// What the GPUs of a node share.
struct SimulatedWorld {
  SplitMix64 random;
  FakeClock clock{};
  int writes = 0;

  Nanoseconds LogNormal(double median_ms, double spread) {
    return FromMilliseconds(spread == 0 ? median_ms
                                        : median_ms * std::exp(spread * Normal(random)));
  }
};

class SimulatedGpu final : public device::Device {
 public:
  SimulatedGpu(SimulatedWorld& world, const SimulatedModel& model, std::size_t index)
      : world_(world), model_(model), period_(FromMilliseconds(model.counter_period_ms)) {
    info_.uuid = fmt::format("GPU-virtual-{}", index);
    info_.name = model.name;
    info_.backend = "virtual";
    info_.sm_clocks_mhz = model.sm_clocks_mhz;
    phase_ = std::llround(static_cast<double>(period_) * Uniform(world.random));
    Tick();
  }

  const device::DeviceInfo& info() const override { return info_; }

  device::DeviceResult<device::Telemetry> Read() override {
    Nanoseconds end = world_.clock.Now();
    const auto telemetry = ReadFrom(end);
    world_.clock.AdvanceTo(end);
    return telemetry;
  }

  // Reads from `now` on, and moves `now` to the end of the call. The counter may be read at any
  // moment of the call, which takes nearly all of its time.
  device::DeviceResult<device::Telemetry> ReadFrom(Nanoseconds& now) {
    if (!model_.can_read) {
      return device::DeviceFail(device::DeviceErrorKind::kNotSupported,
                                "cannot read the power: not supported");
    }
    AdvanceTo(now);
    device::Telemetry telemetry;
    telemetry.at = now;
    telemetry.power_w = published_power_w_;
    // 1 % of the reads of an H100 take 17 ms, and half of them take 3 ms.
    const Nanoseconds length = world_.LogNormal(3, 0.75);
    AdvanceTo(now + std::llround(Uniform(world_.random) * static_cast<double>(length)));
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

  device::DeviceResult<device::SettingReading> ReadSetting(device::Control control) override {
    device::SettingReading reading;
    reading.is_known = true;
    if (control == device::Control::kSmClock) reading.setting = requested_;
    return reading;
  }

  device::DeviceResult<void> Apply(device::Control control,
                                   const std::optional<device::Setting>& setting) override {
    const auto applied = Request(control, setting, world_.clock.Now(), 1);
    if (!applied) return tl::unexpected(applied.error());
    world_.clock.AdvanceTo(*applied);
    return {};
  }

  device::DeviceResult<device::Effect> ReadEffect(
      device::Control /*control*/, const std::optional<device::Setting>& /*setting*/) override {
    AdvanceTo(world_.clock.Now());
    return device::Effect{
        pending_.empty() ? device::EffectState::kInEffect : device::EffectState::kPending,
        ClockNow(),
        {}};
  }

  // Returns the time at which the call ends, without moving the clock.
  device::DeviceResult<Nanoseconds> Request(device::Control control,
                                            const std::optional<device::Setting>& setting,
                                            Nanoseconds now, int set_at_once) {
    if (control != device::Control::kSmClock) {
      return device::DeviceFail(device::DeviceErrorKind::kNotSupported,
                                "a simulated GPU has no {} to set", device::NameOf(control));
    }
    if (!model_.can_set_clocks) {
      return device::DeviceFail(device::DeviceErrorKind::kPermission,
                                "cannot lock the GPU clock: permission denied (run as root)");
    }
    ++world_.writes;
    const Nanoseconds call_end = now + FromMilliseconds(model_.CallMs(set_at_once));
    const int to_mhz = setting ? setting->upper : model_.sm_clocks_mhz.back();
    const int from_mhz = requested_ ? requested_->upper : model_.sm_clocks_mhz.back();
    requested_ = setting;
    const double factor = to_mhz < from_mhz ? model_.landing_down_factor : 1;
    const Nanoseconds lands =
        call_end + world_.LogNormal(factor * model_.landing_ms, model_.landing_spread);
    // Requests land in the order in which they were made.
    pending_.push_back({std::max(lands, pending_.empty() ? 0 : pending_.back().at), setting});
    return call_end;
  }

  void SetLoad(Load load) {
    AdvanceTo(world_.clock.Now());
    load_ = load;
    Tick();
  }

  double WorkAt(Nanoseconds now) {
    AdvanceTo(now);
    return work_;
  }
  bool is_stopped() const { return at_ < stalled_until_; }

 private:
  struct Pending {
    Nanoseconds at = 0;
    std::optional<device::Setting> lock;
  };

  int Lowest() const { return model_.sm_clocks_mhz.front(); }
  int Highest() const { return model_.sm_clocks_mhz.back(); }

  // The clock without the power limit.
  int Wanted() const {
    const int upper = lock_ ? lock_->upper : Highest();
    const int waiting = model_.waiting_mhz;
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
    const auto& clocks_mhz = model_.sm_clocks_mhz;
    const double limit_w = model_.power_limit_w;
    if (limit_w == 0) return Highest();
    const auto above = std::ranges::partition_point(
        clocks_mhz, [&](int mhz) { return model_.MeanPower(Load::kCompute, mhz) <= limit_w; });
    if (above == clocks_mhz.end()) return Highest();
    const auto index = std::max<std::ptrdiff_t>(0, above - clocks_mhz.begin() - 2);
    return clocks_mhz[static_cast<std::size_t>(index + Below(world_.random, 3))];
  }

  double PowerNow() const { return power_factor_ * model_.MeanPower(load_, ClockNow()); }

  // The rate in iterations per nanosecond.
  double WorkRate() const { return load_ == Load::kIdle || is_stopped() ? 0 : ClockNow() / 1000.0; }

  void Tick() {
    const double resolution_j = model_.counter_resolution_j;
    const double steps = energy_j_ * (1 + model_.counter_bias) / resolution_j;
    published_j_ = std::floor(steps + 1e-9) * resolution_j;
    allowed_mhz_ = AllowedClock();
    power_factor_ = 1 + model_.power_noise * Normal(world_.random);
    published_power_w_ = PowerNow() * (1 + model_.power_noise * Normal(world_.random));
  }

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
        stalled_until_ = at_ + FromMilliseconds(model_.holds_kernel_ms);
        lock_ = pending_.front().lock;
        pending_.pop_front();
      } else if (at_ == next_tick) {
        Tick();
      }
    }
  }

  SimulatedWorld& world_;
  const SimulatedModel model_;
  device::DeviceInfo info_;
  const Nanoseconds period_;  // The period of the energy counter.
  Nanoseconds at_ = 0;
  Nanoseconds phase_ = 0;
  Load load_ = Load::kIdle;
  std::optional<device::Setting> lock_;  // The lock that is in effect.
  std::optional<device::Setting> requested_;
  std::deque<Pending> pending_;
  Nanoseconds stalled_until_ = 0;
  int allowed_mhz_ = 0;
  double power_factor_ = 1;
  double energy_j_ = 0;
  double published_j_ = 0;
  double published_power_w_ = 0;
  double work_ = 0;
};

class SimulatedNode final : public MeasuredNode {
 public:
  // Has a GPU for each model. The first model is also that of the work. Requires a GPU, and two
  // clocks.
  SimulatedNode(const std::vector<SimulatedModel>& models, std::uint64_t seed)
      : model_(models.front()), world_{{seed}} {
    for (const SimulatedModel& model : models) {
      gpus_.push_back(std::make_unique<SimulatedGpu>(world_, model, gpus_.size()));
      devices_.push_back(gpus_.back().get());
    }
  }

  Clock& clock() override { return world_.clock; }

  // How many settings were requested.
  int writes() const { return world_.writes; }

  Result<void> Run(int gpu, Load load) override {
    gpus_[static_cast<std::size_t>(gpu)]->SetLoad(load);
    return {};
  }

  device::DeviceResult<std::vector<SwitchRecord>> Record(
      int gpus, const std::optional<device::Setting>& setting, Nanoseconds before,
      Nanoseconds after) override {
    const Nanoseconds begin = clock().Now(), call_begin = begin + before;
    std::vector<SwitchRecord> records(static_cast<std::size_t>(gpus));
    Nanoseconds end = call_begin + after;
    for (std::size_t i = 0; i < records.size(); ++i) {
      records[i].call_begin = records[i].call_end = call_begin;
      Sample(*gpus_[i], begin, call_begin, records[i].samples);
      if (!setting) continue;
      PERSEUS_ASSIGN_OR_RETURN(records[i].call_end, gpus_[i]->Request(device::Control::kSmClock,
                                                                      setting, call_begin, gpus));
      end = std::max(end, records[i].call_end + after);
    }
    for (std::size_t i = 0; i < records.size(); ++i) {
      Sample(*gpus_[i], call_begin, end, records[i].samples);
    }
    world_.clock.AdvanceTo(end);
    return records;
  }

  device::DeviceResult<GpuReadings> Read(Nanoseconds duration) override {
    GpuReadings readings;
    const Nanoseconds begin = clock().Now(), end = begin + duration;
    for (const auto& gpu : gpus_) {
      auto& of_gpu = readings.emplace_back();
      for (Nanoseconds now = begin; now < end; now += kBetweenReadings) {
        PERSEUS_ASSIGN_OR_RETURN(const auto telemetry, gpu->ReadFrom(now));
        of_gpu.push_back(telemetry);
        world_.clock.AdvanceTo(now);
      }
    }
    return readings;
  }

  Result<Timing> Time(Operation operation, const Disturbance& disturbance,
                      Nanoseconds duration) override {
    const struct {
      double base_ms, held_ms;
    } costs[] = {{0.005, model_.holds_launch_ms},
                 {1, model_.holds_kernel_ms},
                 {2, model_.holds_copy_ms},
                 {3, model_.holds_collective_ms}};
    const auto [base_ms, held_ms] = costs[static_cast<std::size_t>(operation)];
    // Readings are frequent, so they take a constant part of the time. Changes are rare, so only
    // the changes in this block count.
    const double read_part = operation == Operation::kLaunch
                                 ? model_.read_holds_launch_ms * disturbance.reads_per_s / 1000
                                 : 0;
    double held = read_part * static_cast<double>(duration);
    double changes_per_s = 0;
    if (disturbance.change_period > 0) {
      const Nanoseconds period =
          std::max(disturbance.change_period, FromMilliseconds(model_.CallMs(gpu_count())));
      changes_per_s = gpu_count() / ToSeconds(period);
      Nanoseconds at = std::llround(Uniform(world_.random) * static_cast<double>(period));
      for (; at < duration; at += period) {
        held += static_cast<double>(std::min(FromMilliseconds(held_ms), duration - at));
        ++world_.writes;
      }
    }
    // The kernel of kKernel runs all the time, so it is not launched.
    if (operation != Operation::kKernel) held += LateMs(duration) * kMillisecond;
    world_.clock.Advance(duration);
    const double progress = std::max(0.001, 1 - held / static_cast<double>(duration));
    const double noise = model_.time_noise * Normal(world_.random);
    return Timing{base_ms * kMillisecond / progress * (1 + noise), changes_per_s};
  }

 private:
  // Adds up the delays of late launches in this time: 0.25 to 20 ms. Twice the delay is half as
  // frequent, as on an H100 (docs/hardware.md).
  double LateMs(Nanoseconds duration) {
    double sum_ms = 0;
    for (double at_s = 0; model_.late_launches_per_s > 0;) {
      at_s -= std::log(1 - Uniform(world_.random)) / model_.late_launches_per_s;
      if (at_s >= ToSeconds(duration)) break;
      sum_ms += std::min(0.25 / (1 - Uniform(world_.random)), 20.0);
    }
    return sum_ms;
  }

  void Sample(SimulatedGpu& gpu, Nanoseconds from, Nanoseconds to,
              std::vector<WorkSample>& samples) {
    constexpr Nanoseconds kSamplingPeriod = 110 * kMicrosecond;
    for (Nanoseconds at = from; at < to; at += kSamplingPeriod) {
      const double work = gpu.WorkAt(at);
      if (gpu.is_stopped()) continue;  // A kernel that stops writes no sample.
      const double noise = model_.time_noise * Normal(world_.random);
      const Nanoseconds seen = at + std::llround(noise * kSamplingPeriod);
      if (samples.empty() || seen > samples.back().at) samples.push_back({seen, work});
    }
  }

  const SimulatedModel model_;
  SimulatedWorld world_;
  std::vector<std::unique_ptr<SimulatedGpu>> gpus_;
};

}  // namespace perseus::qualifier
