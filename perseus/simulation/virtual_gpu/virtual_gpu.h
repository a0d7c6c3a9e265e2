// The physics of a GPU whose clock is set while it works: how far an instruction has got, what was
// drawn for it, how hot it made the GPU. No real time, no input or output: every call is told what
// time it is, and the same calls give the same GPU.
//
// Instruction. At clock f it runs at the rate 1/time(f) and draws energy(f)/time(f); a change of
// clock midway changes both from there on. So one that runs at a constant clock takes exactly
// what its table says, in time to the nanosecond and in energy to the last bits of a double.
//
// Clock. What the SM clock is, when the GPU does not idle: the highest of
//   wanted   the upper end of the lock in effect; without a lock the GPU's highest clock
// that none of these forbids:
//   kThermal  above the throttle that was injected; above `thermal.throttle_mhz` while the GPU is
//             hot (from throttle_at_c on, until it has cooled to resume_at_c)
//   kPowerCap the instruction would draw more than the power limit (kPowerLimitSlack), by its table
// and the GPU's lowest clock if all are forbidden. An idle GPU shows its lowest clock.
// The memory clock is shown and locked, and changes nothing: an instruction's table has no such
// column.
//
// Queue. One instruction may stand behind the running one, as on a CUDA stream: it begins when that
// is done, to the nanosecond, and not before the time it was given (when its input arrives).
// Whoever keeps the queue filled loses nothing by being woken late. Runs count from 1, in the order
// of their begin.
//
// Lock. One that is requested lands later, after a log-normal latency; until then the previous one
// stays. Requests land in their order, each on its own, as a driver's queue would have it.
//
// Temperature. First order: it approaches ambient + resistance * power with a time constant.
// Within a stretch of constant power that is an exponential, so the moment when it crosses a
// threshold is computed, not searched for; between such moments nothing is stepped.
//
// Energy counter. What a driver publishes is the exact energy as of the last tick; the GPU ticks
// once a counter period, from a moment on that differs between GPUs. Power is shown as it is now,
// with a noise that changes from tick to tick.
//
// Noise. Log-normal: on what each run of an instruction takes and draws (this is real and in the
// energy), and on power readings (this is not). Latency and runs have a generator each, so that the
// order in which an agent and a rank come does not matter to what each gets.
//
// A VirtualGpu is trivially copyable, of fixed size, without pointers: it may lie in memory that
// processes share, and reading into the future is done on a copy.
//
// Thread safety: none of its own (virtual_node.h has it).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "perseus/base/random.h"
#include "perseus/base/units.h"
#include "perseus/runtime/device/device.h"
#include "perseus/simulation/virtual_gpu/instruction_table.h"

namespace perseus::virtual_gpu {

// An instruction may draw this many times the limit. A profile that was measured under a power
// limit has rows a hair above it, for a GPU keeps a limit on average; they are no reason to go
// lower.
inline constexpr double kPowerLimitSlack = 1.01;

struct ClockList {
  int count = 0;
  std::array<int, kMostClocks> mhz{};  // Ascending.

  bool Has(int clock_mhz) const;
  int lowest() const { return mhz[0]; }
  int highest() const { return mhz[static_cast<std::size_t>(count - 1)]; }
  // The highest that is not above; the lowest if all are.
  int HighestUpTo(int clock_mhz) const;
  friend bool operator==(const ClockList&, const ClockList&) = default;
};

struct ThermalModel {
  double ambient_c = 30;
  double resistance_c_per_w = 0.1;
  double time_constant_s = 20;  // > 0
  double throttle_at_c = 90;
  double resume_at_c = 85;  // Below throttle_at_c by half a degree at least.
  int throttle_mhz = 0;     // What it is held to while hot; 0: the lowest clock.
  friend bool operator==(const ThermalModel&, const ThermalModel&) = default;
};

// What kind of GPU it is. Nothing changes it.
struct VirtualGpuModel {
  ClockList sm_clocks;      // At least one.
  ClockList memory_clocks;  // None: there is no memory clock to lock.
  double idle_power_w = 50;
  double blocking_power_w = 80;
  int default_power_limit_mw = 0;  // 0: there is no power limit.
  int least_power_limit_mw = 0;
  int most_power_limit_mw = 0;
  double switch_latency_s = 0;               // The median.
  double switch_latency_spread = 0;          // Standard deviation of its logarithm.
  Nanoseconds counter_period = 100'000'000;  // > 0
  double time_noise = 0;                     // Standard deviation of the logarithm.
  double power_noise = 0;                    // The same.
  ThermalModel thermal;
  friend bool operator==(const VirtualGpuModel&, const VirtualGpuModel&) = default;
};

// What a GPU does that runs no instruction.
enum class Rest : std::uint8_t {
  kIdle,
  kBlocking,  // It spins, waiting for a neighbour.
};

// From when to when an instruction ran, or will if no clock is set until then.
struct VirtualRun {
  Nanoseconds begin = 0;
  Nanoseconds finish = 0;
  friend bool operator==(const VirtualRun&, const VirtualRun&) = default;
};

struct VirtualGpuReading {
  Nanoseconds at = 0;
  double energy_j = 0;            // Exact, now.
  double published_energy_j = 0;  // As of the last tick.
  double power_w = 0;             // Exact, now.
  double published_power_w = 0;   // With noise.
  double temperature_c = 0;
  int sm_clock_mhz = 0;
  int memory_clock_mhz = 0;  // 0 if the GPU lists none.
  device::ClockLimits limits;
  bool is_running = false;
  double done = 0;  // Of the running instruction, 0 to 1.
  Rest rest = Rest::kIdle;
  std::optional<device::Setting> lock;            // In effect.
  std::optional<device::Setting> requested_lock;  // The latest; the same as `lock` once it landed.
  std::optional<device::Setting> memory_lock;
  std::optional<device::Setting> power_limit;  // Nothing: the default one.
  std::optional<int> throttle_mhz;             // Injected.
};

class VirtualGpu {
 public:
  // At ambient temperature warmed by idle power, unlocked, idle, its counter at 0.
  VirtualGpu(const VirtualGpuModel& model, std::uint64_t seed, Nanoseconds at);

  const VirtualGpuModel& model() const { return model_; }

  // Every `now` that is earlier than one before counts as that one.
  void AdvanceTo(Nanoseconds now);
  VirtualGpuReading ReadAt(Nanoseconds now) const;

  // Settings have to be ones of the model's. Nothing: the GPU's own management. When it lands:
  Nanoseconds RequestLock(const std::optional<device::Setting>& lock, Nanoseconds now);
  void SetMemoryLock(const std::optional<device::Setting>& lock, Nanoseconds now);      // At once.
  void SetPowerLimit(const std::optional<device::Setting>& limit_mw, Nanoseconds now);  // At once.
  // Holds the clock to this one at most, whatever the lock, as heat or a power brake would.
  void SetThrottle(std::optional<int> clock_mhz, Nanoseconds now);
  // All locks and limits as after a reload of the driver, at once.
  void ResetSettings(Nanoseconds now);

  // What it does from now on, or once the running instruction is done.
  void SetRest(Rest rest, Nanoseconds now);
  // Requires that none runs or is queued at `now`.
  void Begin(const InstructionTable& instruction, Nanoseconds now);
  // Begins it at `not_before`, now, or when the running one is done: whichever comes last. The
  // number of its run. Requires that none is queued at `now`.
  std::uint64_t Enqueue(const InstructionTable& instruction, Nanoseconds not_before,
                        Nanoseconds now);
  // Gives the running instruction up, and the queued one, and idles.
  void Stop(Nanoseconds now);

  Nanoseconds at() const { return at_; }  // The latest `now`.
  bool is_running() const { return is_running_; }
  bool has_queued() const { return has_queued_; }
  // The latest that has begun or is queued; 0: none yet.
  std::uint64_t last_run() const { return runs_begun_ + (has_queued_ ? 1 : 0); }
  // Requires that `run` is one of the kRunsRemembered latest.
  VirtualRun RunOf(std::uint64_t run) const;
  static constexpr std::uint64_t kRunsRemembered = 4;
  // When the last instruction was done; the beginning of time if there was none.
  Nanoseconds finished_at() const { return finished_at_; }
  // When the running and the queued one will be, if nothing is set in the meantime; without one,
  // finished_at().
  // Takes longer the more often the clock changes until then by itself (throttling).
  Nanoseconds FinishTime() const;

 private:
  static constexpr int kMostPending = 8;
  struct PendingLock {
    std::optional<device::Setting> lock;
    Nanoseconds lands_at = 0;
  };
  // What goes on, as long as no event comes.
  struct Pace {
    int sm_clock_mhz = 0;
    device::ClockLimits limits;
    double power_w = 0;
    synthetic::TimeAndEnergy whole;  // Of the running instruction.
  };

  Pace CurrentPace() const;
  int CapForPower(int clock_mhz) const;
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
  std::array<PendingLock, kMostPending> pending_{};  // In the order of landing.
  int pending_count_ = 0;
  std::optional<device::Setting> memory_lock_;
  std::optional<device::Setting> power_limit_;
  std::optional<int> throttle_mhz_;

  Rest rest_ = Rest::kIdle;
  bool is_running_ = false;
  double done_ = 0;
  double time_factor_ = 1;  // This run's noise.
  double power_factor_ = 1;
  Nanoseconds finished_at_;
  InstructionTable instruction_;
  bool has_queued_ = false;
  Nanoseconds queued_not_before_ = 0;
  InstructionTable queued_;
  std::uint64_t runs_begun_ = 0;
  std::array<VirtualRun, kRunsRemembered> runs_{};  // [run % kRunsRemembered]
};

}  // namespace perseus::virtual_gpu
