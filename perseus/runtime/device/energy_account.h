// The energy of one GPU, from a counter that is judged before it is used, or else from its power.
//
// Counters of real GPUs fail in four ways. Each one would give joules that nobody drew:
//   - The counter is that of a whole module: on a GH200 or GB200, it adds the CPU and the memory to
//     the GPU, whose power readings are of the GPU alone.
//   - It stands still, as on an MI100, or on the second die of an MI250X.
//   - It falls: a reset of the GPU sets it to 0, and some firmware lets it jump back.
//   - It has another unit than its driver says.
// So a new counter is on trial: for a window of time, its energy is compared with the integral of
// the power readings. A counter passes if the two agree. It is the counter of a module if it is
// above what the GPU would have drawn at its highest power reading. Otherwise, the next window
// decides. A counter that passes no window is not used.
//
// A counter in use is watched. If it falls once, only the window of the fall is lost: the energy
// begins again at 0, so that readers see that a new count begins. A counter that falls again soon
// after, or stands still, is no longer used. Then the energy is integrated from power, and begins
// at 0, too. A counter that failed is not tried again.
//
// Threads may pass their readings in another order than they took them. So a reading that began
// before the last one had ended is ignored.
//
// Not thread-safe. The device that owns it uses a lock.
#pragma once

#include <cstdint>
#include <optional>

#include "perseus/base/units.h"
#include "perseus/runtime/device/device.h"

namespace perseus::device {

// The integral of a GPU's power readings. This class connects them by straight lines (trapezoids).
// So it does not see how the power changes between two readings.
class EnergyIntegrator {
 public:
  // Adds a reading. Ignores a reading that is not later than the last one, so the energy never
  // falls.
  void Add(Nanoseconds at, double power_w) {
    if (last_) {
      if (at <= last_->at) return;
      energy_j_ += ToSeconds(at - last_->at) * (last_->power_w + power_w) / 2;
    }
    last_ = Reading{at, power_w};
  }
  // The energy since the first reading.
  double energy_j() const { return energy_j_; }

 private:
  struct Reading {
    Nanoseconds at;
    double power_w;
  };
  std::optional<Reading> last_;
  double energy_j_ = 0;
};

class EnergyAccount {
 public:
  // The shortest window of a trial, the least number of its readings, and the most windows. The
  // period of a counter (at most 100 ms) makes an error of at most 5 % in the shortest window.
  static constexpr Nanoseconds kWindow = 2 * kSecond;
  static constexpr int kLeastReadings = 8;
  static constexpr int kMostWindows = 5;
  // On an H100, counter and power agree within 0.1 %. NVIDIA states 5 % for most boards.
  static constexpr double kAgreement = 0.12;
  // The counter of a module is above the GPU's highest power reading by this factor or more.
  static constexpr double kModuleFactor = 1.2;
  // A counter of a GPU that is switched on changes at least every 100 ms.
  static constexpr Nanoseconds kLongestStandstill = 3 * kSecond;
  // A counter that falls twice in this time is not used.
  static constexpr Nanoseconds kBetweenFalls = 600 * kSecond;

  struct Reading {
    Nanoseconds began = 0;  // When the driver was called.
    Nanoseconds ended = 0;
    std::optional<double> counter_j;  // Absent: the GPU has no counter.
    // Absent: the driver does not report it, or it was not read. While the counter is not in use,
    // each reading needs it.
    std::optional<double> power_w;
  };
  void Add(const Reading& reading);

  // Fills the fields of the energy.
  void Fill(Telemetry& telemetry) const;
  CounterState state() const { return state_; }
  // The energy after the last reading. See Telemetry.
  std::optional<double> energy_j() const;

 private:
  struct Trial {
    Nanoseconds began = 0;
    double counter_j = 0;
    double power_j = 0;
    double most_w = 0;
    int readings = 0;
  };
  void BeginTrial(const Reading& reading);
  void Judge(const Reading& reading);
  void Integrate(CounterState why, const Reading& reading);

  CounterState state_ = CounterState::kOnTrial;
  std::optional<Reading> last_;
  Nanoseconds changed_at_ = 0;  // The end of the reading that saw the last change of the counter.
  std::optional<Nanoseconds> fell_at_;
  double base_j_ = 0;  // The counter after its last fall.
  std::uint64_t falls_ = 0;
  Trial trial_;
  int windows_ = 0;
  EnergyIntegrator integrator_;
};

}  // namespace perseus::device
