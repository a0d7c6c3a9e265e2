// The energy that a GPU has drawn up to a moment, from a counter that moves every 20 to 100 ms.
//
// Between two values of the counter, the power is taken as constant. Over n steps, the error is
// that of the two windows at the ends, so it falls as 1/n. It has no preferred sign, as long as
// steps and the period of the counter drift past each other.
//
// Do not use it at a moment at which clocks change: the window around this moment mixes both (see
// comparison.h).
#pragma once

#include <optional>
#include <vector>

#include "perseus/base/units.h"

namespace perseus::profiler {

class EnergyCurve {
 public:
  // The counter took this value after `after` and not after `until`. In order of time: what lies
  // before the last one is passed over (a counter that was reset begins a new curve).
  void Add(Nanoseconds after, Nanoseconds until, double energy_j);

  // Nothing outside of the first and the last value.
  std::optional<double> At(Nanoseconds time) const;
  // Nothing where one of the two is not known.
  std::optional<double> Between(Nanoseconds begin, Nanoseconds end) const;

  // What no later question needs.
  void ForgetBefore(Nanoseconds time);

 private:
  struct Point {
    Nanoseconds at;
    double energy_j;
  };
  std::vector<Point> points_;
};

}  // namespace perseus::profiler
