// The physics of a GPU whose clock may change while it works: the progress of an instruction, its
// energy, and the temperature. The code uses no real time, no input and no output. Every call
// receives the time, and the same calls give the same results.
//
// Instruction. At clock f, an instruction progresses at the rate 1/time(f) and draws the power
// energy(f)/time(f). After a change of the clock, both have their new values at once. So at a
// constant clock, an instruction takes exactly the time of its table, to the nanosecond, and the
// energy of its table, to the last bits of a double.
//
// Clock. While the GPU is not idle, its SM clock is the wanted clock: the upper end of the lock in
// effect, or the highest clock of the GPU without a lock. The following limits may lower this
// clock. It becomes the highest clock that they allow, or the lowest clock of the GPU:
//   kThermal  The injected throttle, and `thermal.throttle_mhz` while the GPU is hot (from
//             throttle_at_c until it has cooled to resume_at_c).
//   kPowerCap By its table, the instruction would draw more than the power limit
//             (kPowerLimitSlack). While the GPU regulates its power, its clock wanders around this
//             limit (`power_limit_wander`), but not above the wanted clock.
// An idle GPU shows its lowest clock. The memory clock can be locked and is shown, but has no
// effect, because the tables of instructions do not depend on it.
//
// Queue. One instruction may wait behind the running one, as on a CUDA stream. It begins exactly
// when the running one ends, but not before its given time (when its input arrives). So a process
// that keeps the queue filled loses no time if it is woken late. Runs are numbered 1, 2, ..., in
// the order in which they begin.
//
// Lock. A requested lock takes effect after a log-normal latency. Until then, the previous lock
// stays. Requests take effect one by one, in their order, as in the queue of a driver.
//
// Temperature. It approaches ambient + resistance * power with a time constant (first order). While
// the power is constant, the temperature is an exponential function of time. So the moment at which
// it crosses a threshold is computed directly, without time steps.
//
// Energy counter. A driver publishes the exact energy at the last tick. A GPU ticks once per
// counter period, with a phase that differs between GPUs. The published power is the current one,
// with a noise that changes at each tick.
//
// Noise. It is log-normal. The noise of the time and power of an instruction is real: it changes
// the energy. The noise of power readings does not. Latencies and runs have separate random
// generators. So the order of the calls from an agent and from a rank has no effect on their
// values.
//
// Late launches. On real GPUs, times have a heavy tail, because the host sometimes launches late:
// on an H100, 4 % of the instructions took 0.2 ms longer than usual or more, 1 % took 1 ms longer,
// and one took 16 ms longer (docs/hardware.md). So a late launch adds 0.25 to 20 ms to the time of
// a run, at any clock. Meanwhile, the GPU draws its blocking power.
//
// Wander. On an H100 at its power limit, neighboring instructions vary together, with a standard
// deviation of 1.8 %, and the correlation disappears within 70 ms (docs/hardware.md). So the wander
// of the clock changes every 50 ms, and not with each instruction. A GPU that is locked to a clock
// within its power limit does not regulate, so its clock does not wander.
//
// A VirtualGpu is trivially copyable, of fixed size, and without pointers. So it may be in shared
// memory, and a prediction is made with a copy.
//
// Not thread-safe (virtual_node.h is).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "perseus/base/random.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/runtime/device/device.h"
#include "perseus/simulation/synthetic/gpu_roofline.h"

namespace perseus::virtual_gpu {

// The maximum number of clocks. No real GPU has more for one memory clock (an H100 has 110).
inline constexpr int kMostClocks = 128;

// The time and the energy of an instruction at each clock, in a block of memory of fixed size. A
// virtual GPU receives its instructions in this form.
struct InstructionTable {
  int count = 0;                                   // 1 to kMostClocks.
  std::array<int, kMostClocks> frequencies_mhz{};  // Ascending.
  std::array<synthetic::TimeAndEnergy, kMostClocks> rows{};

  // The row for this clock. Between two rows, time and energy are each interpolated linearly over
  // the clock. Outside of all rows, the nearest row is used. Requires count > 0.
  synthetic::TimeAndEnergy At(int frequency_mhz) const;
};

// The table of an instruction of the profile, which may be measured or synthetic. Fails (kInput) if
// the profile lacks the instruction, has knobs besides the clock, or has more than kMostClocks
// clocks. The message says which.
Result<InstructionTable> MakeInstructionTable(const profile::Profile& profile, int pp_rank,
                                              int chunk, InstructionKind kind);

// An instruction that is the same at every clock: a transfer, an all-reduce, a load. Requires
// time_s > 0.
InstructionTable FixedInstruction(synthetic::TimeAndEnergy cost);

// An instruction may draw this factor times the limit. A GPU keeps a limit on average. So a profile
// that was measured with a limit has rows slightly above the limit, and these rows must not lower
// the clock.
inline constexpr double kPowerLimitSlack = 1.01;

struct ClockList {
  int count = 0;
  std::array<int, kMostClocks> mhz{};  // Ascending.

  bool Has(int clock_mhz) const;
  int lowest() const { return mhz[0]; }
  int highest() const { return mhz[static_cast<std::size_t>(count - 1)]; }
  // The highest clock that is not above `clock_mhz`, or the lowest clock if all are above.
  int HighestUpTo(int clock_mhz) const;
  int Nearest(double clock_mhz) const;
  friend bool operator==(const ClockList&, const ClockList&) = default;
};

struct ThermalModel {
  double ambient_c = 30;
  double resistance_c_per_w = 0.1;
  double time_constant_s = 20;  // Above 0.
  double throttle_at_c = 90;
  double resume_at_c = 85;  // At least half a degree below throttle_at_c.
  int throttle_mhz = 0;     // The highest clock while hot. 0: the lowest clock of the GPU.
  friend bool operator==(const ThermalModel&, const ThermalModel&) = default;
};

// The type of a GPU. It never changes.
struct VirtualGpuModel {
  ClockList sm_clocks;      // At least one.
  ClockList memory_clocks;  // If empty, there is no memory clock to lock.
  double idle_power_w = 50;
  double blocking_power_w = 80;
  int default_power_limit_mw = 0;  // 0: no power limit.
  int least_power_limit_mw = 0;
  int most_power_limit_mw = 0;
  double switch_latency_s = 0;               // The median.
  double switch_latency_spread = 0;          // The standard deviation of its logarithm.
  Nanoseconds counter_period = 100'000'000;  // Above 0.
  double time_noise = 0;                     // The standard deviation of the logarithm.
  double power_noise = 0;                    // The same.
  double late_launches = 0;                  // The fraction of the runs that are launched late.
  // At the power limit: the standard deviation of the logarithm of the clock.
  double power_limit_wander = 0;
  // The power of an instruction relative to its table, because chips of one type differ. A GPU with
  // a larger factor reaches a lower clock at the same power limit. Above 0.
  double power_factor = 1;
  ThermalModel thermal;
  friend bool operator==(const VirtualGpuModel&, const VirtualGpuModel&) = default;
};

// The state of a GPU while it runs no instruction.
enum class Rest : std::uint8_t {
  kIdle,
  kBlocking,  // It spins while it waits for a neighbor.
};

// The begin and the end of the run of an instruction. A time in the future assumes that no clock is
// set until then.
struct VirtualRun {
  Nanoseconds begin = 0;
  Nanoseconds finish = 0;
  friend bool operator==(const VirtualRun&, const VirtualRun&) = default;
};

struct VirtualGpuReading {
  Nanoseconds at = 0;
  double energy_j = 0;            // Exact.
  double published_energy_j = 0;  // At the last tick.
  double power_w = 0;             // Exact.
  double published_power_w = 0;   // With noise.
  double temperature_c = 0;
  int sm_clock_mhz = 0;
  int memory_clock_mhz = 0;  // 0 if the GPU has none.
  device::ClockLimits limits;
  bool is_running = false;
  double done = 0;  // The fraction of the running instruction that is done.
  Rest rest = Rest::kIdle;
  std::optional<device::Setting> lock;            // In effect.
  std::optional<device::Setting> requested_lock;  // The latest. Equals `lock` once it is in effect.
  std::optional<device::Setting> memory_lock;
  std::optional<device::Setting> power_limit;  // nullopt: the default.
  std::optional<int> throttle_mhz;             // The injected one.
};

class VirtualGpu {
 public:
  // The GPU is idle at its steady temperature, without locks, and its counter is at 0.
  VirtualGpu(const VirtualGpuModel& model, std::uint64_t seed, Nanoseconds at);

  const VirtualGpuModel& model() const { return model_; }

  // Advances to `now`. In all calls, a `now` before the latest one is treated as the latest one.
  void AdvanceTo(Nanoseconds now);
  VirtualGpuReading ReadAt(Nanoseconds now) const;

  // Settings have to be valid for the model. An empty setting returns control to the GPU. A lock of
  // the SM clock takes effect later: RequestLock returns the time at which it will. The other
  // settings take effect at once.
  Nanoseconds RequestLock(const std::optional<device::Setting>& lock, Nanoseconds now);
  void SetMemoryLock(const std::optional<device::Setting>& lock, Nanoseconds now);
  void SetPowerLimit(const std::optional<device::Setting>& limit_mw, Nanoseconds now);
  // Limits the clock independently of the lock, as heat or a power brake does.
  void SetThrottle(std::optional<int> clock_mhz, Nanoseconds now);

  // Sets the state of the GPU while no instruction runs: from now on, or after the running
  // instruction.
  void SetRest(Rest rest, Nanoseconds now);
  // Requires that no instruction runs or is queued at `now`.
  void Begin(const InstructionTable& instruction, Nanoseconds now);
  // Queues an instruction. It begins at the latest of three times: `not_before`, `now`, and the end
  // of the running instruction. Returns the number of its run. Requires an empty queue at `now`.
  std::uint64_t Enqueue(const InstructionTable& instruction, Nanoseconds not_before,
                        Nanoseconds now);
  // Ends the running instruction and drops the queued one. The GPU is idle then.
  void Stop(Nanoseconds now);

  Nanoseconds at() const { return at_; }  // The latest `now`.
  bool is_running() const { return is_running_; }
  bool has_queued() const { return has_queued_; }
  // The number of the latest run that has begun or is queued. 0: none yet.
  std::uint64_t last_run() const { return runs_begun_ + (has_queued_ ? 1 : 0); }
  // Requires that `run` is one of the kRunsRemembered latest.
  VirtualRun RunOf(std::uint64_t run) const;
  static constexpr std::uint64_t kRunsRemembered = 4;
  // When the last instruction ended. If there was none, the creation time of the GPU.
  Nanoseconds finished_at() const { return finished_at_; }
  // When the running and the queued instruction will have ended, if nothing is set until then.
  // Equals finished_at() if there is no instruction. The call is slower if the clock changes often
  // until then (throttling).
  Nanoseconds FinishTime() const;

 private:
  static constexpr int kMostPending = 8;
  struct PendingLock {
    std::optional<device::Setting> lock;
    Nanoseconds lands_at = 0;
  };
  // The state of the GPU until the next event.
  struct Pace {
    int sm_clock_mhz = 0;
    device::ClockLimits limits;
    double power_w = 0;
    synthetic::TimeAndEnergy whole;  // The running instruction.
  };

  Pace CurrentPace() const;
  int CapForPower(int clock_mhz) const;
  int WanderAround(int clock_mhz) const;
  Nanoseconds TimeLeft(const Pace& pace) const;
  Nanoseconds ThermalEvent(const Pace& pace) const;
  void HandleDue();
  void BeginQueued();
  bool FinishIfDone();
  Nanoseconds NextEvent(const Pace& pace) const;
  void Integrate(const Pace& pace, Nanoseconds until);
  Nanoseconds LastTick(Nanoseconds now) const;
  std::optional<device::Setting> RequestedLock() const;
  double PowerReadingNoise() const;

  VirtualGpuModel model_;
  std::uint64_t seed_;
  SplitMix64 latency_random_;
  SplitMix64 run_random_;
  Nanoseconds counter_phase_;  // Ticks are at counter_phase_ + k * period.

  Nanoseconds at_;
  double energy_j_ = 0;
  double published_energy_j_ = 0;
  double temperature_c_;
  bool is_hot_ = false;

  std::optional<device::Setting> lock_;
  std::array<PendingLock, kMostPending> pending_{};  // In the order in which they take effect.
  int pending_count_ = 0;
  std::optional<device::Setting> memory_lock_;
  std::optional<device::Setting> power_limit_;
  std::optional<int> throttle_mhz_;

  Rest rest_ = Rest::kIdle;
  bool is_running_ = false;
  double done_ = 0;
  double time_factor_ = 1;  // This run's noise.
  double power_factor_ = 1;
  double delay_s_ = 0;  // Because this run was launched late.
  Nanoseconds finished_at_;
  InstructionTable instruction_;
  bool has_queued_ = false;
  Nanoseconds queued_not_before_ = 0;
  InstructionTable queued_;
  std::uint64_t runs_begun_ = 0;
  std::array<VirtualRun, kRunsRemembered> runs_{};  // [run % kRunsRemembered]
};

}  // namespace perseus::virtual_gpu
