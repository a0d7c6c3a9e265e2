// What the parts of a qualification share: the node, what is possible on it, and the result so far.
//
// Each part is a function of its own file: measure_counter.h, measure_power.h, measure_switches.h,
// measure_interference.h. A part returns an error only if the whole qualification has to end. What
// it cannot measure it leaves out, with a sentence in the limits.
//
// Not thread-safe.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/runtime/qualifier/clock_choice.h"
#include "perseus/runtime/qualifier/measured_node.h"
#include "perseus/runtime/qualifier/qualification.h"
#include "perseus/runtime/qualifier/siblings.h"

namespace perseus::qualifier {

// A range of the whole duration, as fractions.
struct PartOfRun {
  double from = 0;
  double length = 0;
};

struct QualifyRun {
  QualifyRun(MeasuredNode& measured, const QualifyOptions& wanted);

  // Adds a sentence to the limits, once.
  void Limit(std::string sentence);
  // Fails if the caller asked for the end.
  Result<void> CheckStop() const;
  Result<void> LockAll(const device::Setting& setting);
  Result<void> LockAll(int mhz) { return LockAll(device::Setting{mhz, mhz}); }
  Result<void> RunOnAll(Load load);
  // The kernel that computes, where it runs.
  Load BusyLoad() const;
  // That fraction of the whole duration.
  Nanoseconds DurationOf(double fraction) const;

  MeasuredNode& node;
  const QualifyOptions& options;
  const std::vector<int> all_gpus;
  bool can_set = false;  // Clocks.
  bool can_read = true;  // Power and clocks.
  SwitchClocks clocks;   // If can_set.
  Siblings siblings;
  Qualification result;
};

// An error of a driver, as one that ends the qualification.
template <typename T>
Result<T> Pass(device::DeviceResult<T> of_driver) {
  if (!of_driver) return FailAs(ErrorKind::kSystem, "{}", of_driver.error().message);
  if constexpr (std::is_void_v<T>) {
    return {};
  } else {
    return *std::move(of_driver);
  }
}

}  // namespace perseus::qualifier
