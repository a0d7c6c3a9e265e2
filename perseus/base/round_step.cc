#include "perseus/base/round_step.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace perseus {

double RoundStep::value() const { return digit * std::pow(10, exponent); }

std::string RoundStep::Format(double multiple) const {
  const std::string text = fmt::format("{:.{}f}", multiple, std::max(0, -exponent));
  // A multiple of 0 may be computed as -0 or as a tiny number below 0.
  return text.find_first_not_of("-0.") == std::string::npos && text.front() == '-' ? text.substr(1)
                                                                                   : text;
}

RoundStep NextRoundStep(const RoundStep& step) {
  switch (step.digit) {
    case 1:
      return {2, step.exponent};
    case 2:
      return {5, step.exponent};
    default:
      return {1, step.exponent + 1};
  }
}

RoundStep RoundStepFrom(double least) {
  RoundStep step{1, static_cast<int>(std::floor(std::log10(least)))};
  while (step.value() < least) step = NextRoundStep(step);
  return step;
}

}  // namespace perseus
