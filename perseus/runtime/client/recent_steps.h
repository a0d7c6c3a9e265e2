// What the steps of a rank cost lately, for a training that shows these numbers while it runs.
//
// Thread safety: any thread. The background thread adds, and holds the lock for microseconds.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "perseus/base/mutex.h"
#include "perseus/runtime/client/energy_meter.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::client {

class RecentSteps {
 public:
  // The steps that count: those that began in this time before the last one, and at least
  // kLeastSteps. A counter changes every 0.1 s, so its error in this time is small.
  static constexpr Nanoseconds kWindow = 30 * kSecond;
  static constexpr std::size_t kLeastSteps = 8;
  static constexpr std::size_t kMostSteps = 4096;

  struct Costs {
    std::int64_t steps = 0;          // All steps so far.
    std::int64_t steps_on_plan = 0;  // Steps that ran a plan at its clocks.
    // The median time from step to step. 0: fewer than two steps.
    double step_time_s = 0;
    double power_w = 0;   // The mean from the first to the last step that counts. 0: unknown.
    double energy_j = 0;  // The energy of the GPU since the first reading. 0: unknown.
  };

  // Adds a step, in order of time.
  void Add(const protocol::RanStep& step) PERSEUS_EXCLUDES(mutex_);
  // Adds a value of the energy counter, in order of time.
  void Add(const EnergyReading& reading) PERSEUS_EXCLUDES(mutex_);
  Costs Read() const PERSEUS_EXCLUDES(mutex_);

 private:
  struct Step {
    std::int64_t number = 0;
    Nanoseconds begin = 0;
    Nanoseconds end = 0;
  };
  struct Energy {
    Nanoseconds at = 0;
    double energy_j = 0;  // Since the first reading.
  };
  double PowerOfSteps() const PERSEUS_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::deque<Step> steps_ PERSEUS_GUARDED_BY(mutex_);
  std::deque<Energy> energy_ PERSEUS_GUARDED_BY(mutex_);
  std::optional<double> counter_j_ PERSEUS_GUARDED_BY(mutex_);
  Costs costs_ PERSEUS_GUARDED_BY(mutex_);
};

}  // namespace perseus::client
