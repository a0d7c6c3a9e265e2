#include "perseus/runtime/client/energy_meter.h"

#include <algorithm>
#include <utility>

#include "perseus/runtime/client/change_period.h"
#include "perseus/runtime/client/driver_gate.h"

namespace perseus::client {
namespace {

constexpr Nanoseconds kStateEvery = kSecond;
// What the budget grows by. The rest of kMostLooksPerSecond is for looks that were saved up before.
constexpr double kEarnedPerSecond = 22;
// Between the begins of two looks of a search, while the budget lasts.
constexpr Nanoseconds kLeastSearchPause = 5 * kMillisecond;
constexpr Nanoseconds kMostSearchPause = 15 * kMillisecond;
constexpr Nanoseconds kShortestSearch = 400 * kMillisecond;
constexpr std::size_t kChangesToFind = 5;
// After this time without a change, looks are kIdlePause apart, plus or minus a half.
constexpr Nanoseconds kIdleAfter = 3 * kSecond;
constexpr Nanoseconds kIdlePause = 100 * kMillisecond;
// Two looks of a pair in this time are kMostLooksPerSecond.
constexpr Nanoseconds kLeastBetweenPairs = 80 * kMillisecond;
// Between the begins of the two looks of a pair, and what stays free for their delays.
constexpr Nanoseconds kLeastGap = 4 * kMillisecond;
constexpr Nanoseconds kGapReserve = 500 * kMicrosecond;
constexpr Nanoseconds kMostDelay = 20 * kMillisecond;
// On a busy machine, delays scatter by more than this. Then pairs would miss half of all changes,
// so their looks are farther apart.
constexpr Nanoseconds kTolerableScatter = 1500 * kMicrosecond;
constexpr Nanoseconds kGapPerScatter = 3;
constexpr Nanoseconds kMostExtraGap = 15 * kMillisecond;
constexpr Nanoseconds kSettlingTime = 20 * kMillisecond;
constexpr Nanoseconds kLeastIntegratedPause = 40 * kMillisecond;
constexpr Nanoseconds kMostIntegratedPause = 50 * kMillisecond;

}  // namespace

EnergyMeter::~EnergyMeter() {
  // The last device of a driver may end the driver's library.
  const InDriver in_driver;
  device_.reset();
}

device::DeviceResult<std::optional<double>> EnergyMeter::ReadEnergy(Nanoseconds now) {
  const InDriver in_driver;
  // Without a counter in use, the device has to read everything in any case.
  if (telemetry_.energy_j && now < next_state_ && IsCounterUsed()) return device_->ReadEnergy();
  PERSEUS_ASSIGN_OR_RETURN(device::Telemetry read, device_->Read());
  next_state_ = now + kStateEvery;
  // Instructions need the energy of this GPU alone.
  if (read.scope != device::PowerScope::kGpu) read.power_w = read.energy_j = std::nullopt;
  const std::optional<double> energy_j = std::exchange(read.energy_j, telemetry_.energy_j);
  telemetry_ = read;
  return energy_j;
}

std::optional<EnergyMeter::Seen> EnergyMeter::LookNow() {
  Seen seen;
  seen.previous = last_look_;
  seen.began = clock_.Now();
  const auto read = ReadEnergy(seen.began);
  seen.ended = clock_.Now();
  if (!read) {
    trouble_ = read.error().Message();
    return std::nullopt;
  }
  trouble_.clear();
  const std::optional<double> before = std::exchange(telemetry_.energy_j, *read);
  if (!*read) return std::nullopt;
  seen.energy_j = **read;
  // The time of the first value is unknown.
  seen.is_new = before && seen.energy_j != *before;
  seen.has_fallen = before && seen.energy_j < *before;
  last_look_ = seen.began;
  return seen;
}

void EnergyMeter::ReadState() {
  if (device_ == nullptr) return;
  next_state_ = 0;
  static_cast<void>(LookNow());
  BeginSearch(clock_.Now());
}

std::optional<EnergyReading> EnergyMeter::Look() {
  if (device_ == nullptr) return std::nullopt;
  const bool has_looked = telemetry_.energy_j.has_value();
  const auto seen = LookNow();
  if (!seen) {
    const Nanoseconds now = clock_.Now();
    BeginSearch(now);
    const bool is_unknown =
        trouble_.empty() && telemetry_.counter != device::CounterState::kOnTrial;
    due_ = now + (is_unknown ? kStateEvery : Between(kIdlePause / 2, kIdlePause));
    return std::nullopt;
  }
  const double earned = kEarnedPerSecond * ToSeconds(seen->began - seen->previous);
  if (has_looked) budget_ = std::min(budget_ + earned, kSearchLooks);
  budget_ = std::max(budget_ - 1, 0.0);
  if (seen->has_fallen) {  // Another count begins, perhaps that of another source.
    next_state_ = 0;
    BeginSearch(seen->ended);
    return EnergyReading{seen->previous, seen->ended, seen->energy_j};
  }
  if (!IsCounterUsed()) {
    due_ = seen->began + Between(kLeastIntegratedPause, kMostIntegratedPause);
    if (!seen->is_new) return std::nullopt;
    return EnergyReading{seen->began, seen->ended, seen->energy_j};
  }
  NoteTimes(*seen);
  const auto reading = predictor_ ? Follow(*seen) : Search(*seen);
  if (reading && reading->until - reading->after > kWidestReported) return std::nullopt;
  return reading;
}

// A slow look moves the median by a twentieth, as a fast one does.
void EnergyMeter::NoteTimes(const Seen& seen) {
  const Nanoseconds length = seen.ended - seen.began;
  if (usual_length_ == 0) usual_length_ = length;
  constexpr Nanoseconds kSteps = 20;
  const Nanoseconds step = usual_length_ / kSteps + 1;
  usual_length_ += std::clamp(length - usual_length_, -step, step);
  if (due_ == 0) return;
  constexpr Nanoseconds kAveraged = 8;
  const Nanoseconds delay = std::clamp<Nanoseconds>(seen.began - due_, 0, kMostDelay);
  delay_scatter_ += (std::abs(delay - usual_delay_) - delay_scatter_) / kAveraged;
  usual_delay_ += (delay - usual_delay_) / kAveraged;
}

Nanoseconds EnergyMeter::Between(Nanoseconds least, Nanoseconds most) {
  return least + static_cast<Nanoseconds>(static_cast<double>(most - least) * Uniform(random_));
}

// ---- Search ----

void EnergyMeter::BeginSearch(Nanoseconds now) {
  first_.reset();
  is_settling_ = false;
  predictor_.reset();
  search_began_ = last_change_ = now;
  search_looks_ = 0;
  changes_.clear();
  due_ = now;
}

Nanoseconds EnergyMeter::SearchPause(Nanoseconds now) {
  if (now > last_change_ + kIdleAfter) return Between(kIdlePause / 2, kIdlePause * 3 / 2);
  const Nanoseconds pause = Between(kLeastSearchPause, kMostSearchPause);
  if (budget_ >= 1) return pause;
  return pause + ToNanoseconds((1 - budget_) / kEarnedPerSecond);
}

std::optional<EnergyReading> EnergyMeter::Search(const Seen& seen) {
  if (search_began_ == 0) search_began_ = last_change_ = seen.began;
  std::optional<EnergyReading> reading;
  // The look before the first look of a search may be long ago.
  if (search_looks_++ > 0 && seen.is_new) {
    reading = EnergyReading{seen.previous, seen.ended, seen.energy_j};
    if (seen.began > last_change_ + kIdleAfter) {
      BeginSearch(seen.began);
      search_looks_ = 1;
    } else {
      changes_.push_back({reading->after, reading->until});
    }
    last_change_ = seen.began;
  }
  if (changes_.size() >= kChangesToFind && seen.began >= search_began_ + kShortestSearch) {
    EndSearch(seen.ended);
  } else {
    due_ = std::max(seen.ended, seen.began + SearchPause(seen.began));
  }
  return reading;
}

void EnergyMeter::EndSearch(Nanoseconds now) {
  first_.reset();
  misses_ = 0;
  predictor_.emplace(StartFrom(changes_));
  has_last_value_ = true;
  last_pair_ = last_look_;
  PlanPair(now);
}

// ---- Follow ----

// The looks of a pair begin `gap` apart. Each takes the counter's value in its middle. So the
// change is seen if it is in the `gap` between the two middles.
void EnergyMeter::PlanPair(Nanoseconds now) {
  const Nanoseconds extra = kGapPerScatter * (delay_scatter_ - kTolerableScatter);
  const Nanoseconds widest = kWidestWindow - kGapReserve - usual_length_;
  const Nanoseconds gap = std::max({kLeastGap, usual_length_ + kGapReserve, widest}) +
                          std::clamp<Nanoseconds>(extra, 0, kMostExtraGap);
  const Nanoseconds lead = (gap + usual_length_) / 2 + usual_delay_;
  const Nanoseconds earliest = std::max(now, last_pair_ + kLeastBetweenPairs);
  const Nanoseconds half = widest / 2;
  const auto next = predictor_->FirstFrom(earliest + lead + half);
  // The change is anywhere between the looks, with the same probability. (The extra gap is for
  // delays, which move a pair, too.) A prediction with a large error gets pairs at more places.
  const Nanoseconds most = std::max(half, static_cast<Nanoseconds>(next.error_ns));
  due_ = std::max(earliest, next.at - lead + Between(-most, most));
  periods_ = next.periods;
  gap_ = gap;
}

Nanoseconds EnergyMeter::EarliestOf(const Seen& seen) const {
  return seen.began + std::min(seen.ended - seen.began, usual_length_) / 2;
}
Nanoseconds EnergyMeter::LatestOf(const Seen& seen) const {
  return seen.ended - std::min(seen.ended - seen.began, usual_length_) / 2;
}

std::optional<EnergyReading> EnergyMeter::Follow(const Seen& seen) {
  if (is_settling_) {
    is_settling_ = false;
    has_last_value_ = true;
    PlanPair(seen.ended);
    return std::nullopt;
  }
  if (!first_) {
    first_ = seen;
    last_pair_ = seen.began;
    due_ = std::max(seen.ended, seen.began + gap_);
    return std::nullopt;
  }
  LearnFromPair(seen);
  first_.reset();
  misses_ = seen.is_new ? 0 : misses_ + 1;
  // Half a period later, the change of this pair has surely come.
  const auto settled = seen.began + static_cast<Nanoseconds>(predictor_->period_ns() / 2);
  if (misses_ == kMostMisses) {
    BeginSearch(seen.ended);
  } else if (has_last_value_ || budget_ < 1 || settled < seen.ended + kSettlingTime) {
    PlanPair(seen.ended);
  } else {
    is_settling_ = true;
    due_ = settled;
  }
  if (!seen.is_new) return std::nullopt;
  return EnergyReading{seen.previous, seen.ended, seen.energy_j};
}

// If the last look before the pair saw the value of the change before, the two looks of the pair
// say whether the change came before, in or after the pair. Otherwise, a pair that does not see it
// only says that it was not inside.
void EnergyMeter::LearnFromPair(const Seen& second) {
  predictor_->Pass(periods_);
  const bool knows_value = std::exchange(has_last_value_, true) && periods_ == 1;
  if (second.is_new) {
    predictor_->WasInside(EarliestOf(*first_), LatestOf(second));
  } else if (!knows_value) {
    predictor_->WasOutside(LatestOf(*first_), EarliestOf(second));
    has_last_value_ = false;
  } else if (first_->is_new) {
    predictor_->WasInside(std::nullopt, LatestOf(*first_));
  } else {
    predictor_->WasInside(EarliestOf(second), std::nullopt);
    has_last_value_ = false;
  }
}

// ---- The clock ----

std::optional<ClockReading> EnergyMeter::ReachedClock() {
  if (!trouble_.empty() || !telemetry_.limits.Has(device::ClockLimit::kPowerCap)) {
    return std::nullopt;
  }
  const InDriver in_driver;
  const Nanoseconds at = clock_.Now();
  const auto mhz = device_->ReadSmClock();
  if (!mhz) return std::nullopt;
  return ClockReading{at, *mhz};
}

}  // namespace perseus::client
