// Reads the energy counter of a GPU, and reports when it took new values. Everything else is read
// once a second, because each call takes a lock of the driver that launches of the training also
// need. Only at the power limit is the clock read about 100 times a second, because different kinds
// of instructions reach different clocks there.
//
// The problem. A counter changes every 20 to 100 ms. On an H100, a read of it takes 3 ms of CPU
// time in the median and 17 ms at 99 %. A read of the clock or the power takes 2 us. When the
// counter took a value is known only to be between two reads. So a reader that reads 100 times a
// second takes a third of a core, for ten values, and each is known within 13 ms or more.
//
// The method. A change is seen by a pair of looks, one shortly before it and one shortly after it:
//   - Search. Looks are 5 to 15 ms apart, until five changes were seen (0.4 to 1 s). They give the
//     period and the time of the next change.
//   - Follow. Each change gets one pair of looks. Of a faster counter, every second, third, ...
//     change gets one. The looks begin less than 10 ms apart. A prediction (change_predictor.h)
//     says when. It follows the drift of the counter, because every pair says whether the change
//     was before, in or after the pair. (After a pair that came too early, a third look half a
//     period later sees the new value, so that the next pair can tell its own change from this
//     one.) After kMostMisses pairs without a change between the looks, the search begins again.
//     (If the counter changes faster than every 10 ms, each pair sees a new value at any place.)
//   - A GPU without a counter that can be used (device/energy_account.h). The device integrates its
//     power at each read, so a value belongs to the time of its read. Pairs would add nothing, so
//     looks are single, 40 to 50 ms apart.
//   - A counter on trial gets looks 50 to 100 ms apart. A GPU whose energy is unknown gets one a
//     second. Nothing is recorded.
// If a value is smaller than the one before, it is recorded, and the search begins again: readers
// of the record take it for the beginning of another count.
//
// A budget of kMostLooksPerSecond holds for all of this: the first search may take kSearchLooks,
// and the budget grows with time. Without a budget, a search goes on with the looks that the budget
// allows. If the counter does not change for seconds, looks are 0.1 s apart.
//
// Why the place of a pair is random (dither). Reads with a fixed period of 10 ms stay in phase with
// a counter that changes every 100 ms, so the error of the time of a change is the same for
// minutes. Then no average removes it: under a plan, most windows between clock changes are short,
// and energies were 6 to 20 % off (measured on virtual GPUs). A pair at a fixed place around the
// prediction would have the same error, because the prediction is exact for minutes. So a pair is
// moved by a random time that puts the change anywhere between the two looks, with the same
// probability, and the errors are independent.
//
// Alternatives that were left out:
//   - Look once for each change, in the middle of the period, and take the time of the change from
//     the prediction. It halves the reads. But then the times are as wrong as the prediction, all
//     in the same direction, and a reader of the record cannot see by how much.
//   - Find the change by the power, which costs 2 us: it changes every 100 ms, too. Nobody has
//     measured whether both change at the same moment, and other GPUs show a moving average.
//   - Look only at some changes. It saves the most, but the energies of instructions come from many
//     windows that contain them in different proportions (profiler/power_fit.h), and long windows
//     contain all kinds in the same proportion.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/random.h"
#include "perseus/base/units.h"
#include "perseus/runtime/client/change_period.h"
#include "perseus/runtime/client/change_predictor.h"
#include "perseus/runtime/device/device.h"

namespace perseus::client {

struct EnergyReading {
  Nanoseconds after = 0;  // The counter took this value in (after, until]; CLOCK_MONOTONIC.
  Nanoseconds until = 0;
  double energy_j = 0;
};
struct ClockReading {
  Nanoseconds at = 0;  // CLOCK_MONOTONIC.
  int sm_clock_mhz = 0;
};

// Not thread safe.
class EnergyMeter {
 public:
  // On average, after the first search.
  static constexpr double kMostLooksPerSecond = 25;
  // From the begin of the first look of a pair to the end of the second, if both take the usual
  // time and less than 5 ms.
  static constexpr Nanoseconds kWidestWindow = 10 * kMillisecond;
  // A window of a slow search or of a busy machine that is wider is not reported.
  static constexpr Nanoseconds kWidestReported = 60 * kMillisecond;
  static constexpr int kMostMisses = 8;
  static constexpr double kSearchLooks = 100;

  // `device` may be null: nothing is ever read. Meters with different seeds read at different
  // times.
  EnergyMeter(std::unique_ptr<device::Device> device, Clock& clock, std::uint64_t seed)
      : device_(std::move(device)), clock_(clock), random_{seed} {}
  ~EnergyMeter();

  const device::DeviceInfo* info() const { return device_ != nullptr ? &device_->info() : nullptr; }
  // When the next look is due while steps are recorded.
  Nanoseconds due() const { return device_ != nullptr ? due_ : Clock::kNever; }
  // Reads the counter, and plans the next look. Returns the new value if it is known when the
  // counter took it. Returns nullopt if not, or if the energy is unknown.
  std::optional<EnergyReading> Look();
  // Reads everything while no steps are recorded. The next Look() begins a search.
  void ReadState();
  // Returns the clock now, if the power limit held it down when everything was read last. Returns
  // nullopt otherwise, or if the clock cannot be read.
  std::optional<ClockReading> ReachedClock();
  // The latest read of everything that succeeded, with the energy of the latest look. Power and
  // energy are absent if they are not those of this GPU alone.
  const device::Telemetry& telemetry() const { return telemetry_; }
  // Why the last look failed. Empty if it succeeded.
  const std::string& trouble() const { return trouble_; }

 private:
  struct Seen {
    Nanoseconds previous = 0;  // When the look before this one began.
    Nanoseconds began = 0;
    Nanoseconds ended = 0;
    bool is_new = false;      // The value differs from that of the look before.
    bool has_fallen = false;  // The value is smaller than that of the look before.
    double energy_j = 0;
  };

  bool IsCounterUsed() const { return telemetry_.counter == device::CounterState::kUsed; }
  device::DeviceResult<std::optional<double>> ReadEnergy(Nanoseconds now);
  std::optional<Seen> LookNow();
  void NoteTimes(const Seen& seen);
  void BeginSearch(Nanoseconds now);
  std::optional<EnergyReading> Search(const Seen& seen);
  Nanoseconds SearchPause(Nanoseconds now);
  void EndSearch(Nanoseconds now);
  std::optional<EnergyReading> Follow(const Seen& seen);
  void LearnFromPair(const Seen& second);
  void PlanPair(Nanoseconds now);
  // A look takes the counter's value between these times. In a look of the usual length, both are
  // its middle. It is unknown when a slow look took the value.
  Nanoseconds EarliestOf(const Seen& seen) const;
  Nanoseconds LatestOf(const Seen& seen) const;
  Nanoseconds Between(Nanoseconds least, Nanoseconds most);

  std::unique_ptr<device::Device> device_;
  Clock& clock_;
  SplitMix64 random_;
  Nanoseconds last_look_ = 0;  // When the last look began.
  Nanoseconds next_state_ = 0;
  device::Telemetry telemetry_;
  std::string trouble_;

  Nanoseconds due_ = 0;
  double budget_ = kSearchLooks;   // In looks.
  Nanoseconds usual_length_ = 0;   // The median time that a look takes.
  Nanoseconds usual_delay_ = 0;    // How late a look begins on average.
  Nanoseconds delay_scatter_ = 0;  // The mean deviation of delays from usual_delay_.

  // The search.
  Nanoseconds search_began_ = 0;
  Nanoseconds last_change_ = 0;
  int search_looks_ = 0;
  std::vector<ChangeWindow> changes_;

  // Pairs of looks.
  std::optional<Seen> first_;  // The first look of the pair whose second look is due.
  Nanoseconds last_pair_ = 0;  // When the first look of the last pair began.
  std::optional<ChangePredictor> predictor_;  // Absent: the meter searches.
  Nanoseconds gap_ = 0;                       // Between the begins of its two looks.
  int periods_ = 0;              // From the change of the last pair to that of the next one.
  bool has_last_value_ = false;  // The last look saw the value of the change of its pair.
  bool is_settling_ = false;     // The next look only sees that value.
  int misses_ = 0;               // Pairs without a change between the looks, since the last change.
};

}  // namespace perseus::client
