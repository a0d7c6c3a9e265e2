// The period and the phase of an energy counter, from the windows of its first changes.
//
// A least squares fit needs the number of periods between two changes. Windows are up to a period
// wide, so a rounded quotient may be wrong. But all middles together have the right period: it is
// the one with the largest peak of their periodogram (Rayleigh's test), near the median of the
// times between two changes.
#pragma once

#include <vector>

#include "perseus/base/units.h"
#include "perseus/runtime/client/change_predictor.h"

namespace perseus::client {

// The counter changed in (after, until].
struct ChangeWindow {
  Nanoseconds after = 0;
  Nanoseconds until = 0;
};

// Requires two windows or more, in order of time.
ChangePredictor::Start StartFrom(const std::vector<ChangeWindow>& changes);

}  // namespace perseus::client
