// The energy that a GPU has drawn up to a moment, computed from a counter that changes every 20 to
// 100 ms.
//
// Between two values of the counter, the power is taken as constant. Over n steps, only the two
// windows at the ends cause an error, so the error per step falls as 1/n. The sign of the error is
// random if the steps and the period of the counter drift past each other.
//
// Do not use the curve at a moment at which clocks change: the window around this moment mixes the
// power at both clocks (see comparison.h).
#pragma once

#include <optional>
#include <vector>

#include "perseus/base/units.h"

namespace perseus::profiler {

class EnergyCurve {
 public:
  // Adds a value: the counter reached `energy_j` in (after, until]. Values come in order of time. A
  // value that is not later than the last one is skipped. A smaller value means that the counter
  // was reset, and begins a new curve.
  void Add(Nanoseconds after, Nanoseconds until, double energy_j);

  // Returns the energy at `time`, or nullopt before the first and after the last value.
  std::optional<double> At(Nanoseconds time) const;
  // Returns the energy between two times, or nullopt if the energy at one of the times is unknown.
  std::optional<double> Between(Nanoseconds begin, Nanoseconds end) const;

  // Deletes the values that no call with a time from `time` on needs.
  void ForgetBefore(Nanoseconds time);

 private:
  struct Point {
    Nanoseconds at;
    double energy_j;
  };
  std::vector<Point> points_;
};

}  // namespace perseus::profiler
