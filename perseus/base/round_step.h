// Round distances between the ticks of an axis: 1, 2 or 5 times a power of ten.
//
// Thread safety: pure functions.
#pragma once

#include <string>

namespace perseus {

struct RoundStep {
  int digit = 1;  // 1, 2 or 5.
  int exponent = 0;
  double value() const;
  // A multiple of the step, with as many decimals as the step has.
  std::string Format(double multiple) const;
};

// The smallest round step that is at least `least`. Requires 0 < least < infinity.
RoundStep RoundStepFrom(double least);
// The next larger round step.
RoundStep NextRoundStep(const RoundStep& step);

}  // namespace perseus
