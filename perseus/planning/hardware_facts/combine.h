// One estimate of many: of the nodes of a kind (merge.h), or of the GPUs of a node.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "perseus/planning/hardware_facts/hardware_facts.h"

namespace perseus::hardware_facts {

// The median of the values. Its interval covers all of theirs. Requires an estimate.
Estimate Combine(const std::vector<Estimate>& estimates);

// The least of the values, with the least of the lower and of the upper ends. Requires an estimate.
Estimate LeastOf(const std::vector<Estimate>& estimates);

// Which of some values differ from the others, by the rule that merge.h explains.
struct Comparison {
  double median = 0;
  // One for each estimate. Of two estimates, both or none differ: there is no majority.
  std::vector<bool> differs;
  bool has_differences() const;
};

// No value differs by less than `least_bound` from the median. Fractions need one above 0, because
// they may be near 0. Requires an estimate.
Comparison Compare(const std::vector<Estimate>& estimates, double least_bound);
inline constexpr double kLeastFractionBound = 0.01;

// The estimates that do not differ, or both of two.
std::vector<Estimate> UsualOf(const std::vector<Estimate>& estimates, const Comparison& comparison);

}  // namespace perseus::hardware_facts
