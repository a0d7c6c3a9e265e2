// Rounds relaxed durations to measured options. The result is never late.
//
// To round every instruction down to the next faster option leaves 0.1 to 3 % of the energy unused:
// each instruction leaves a little slack that nothing uses. Error diffusion, known from printing
// gray with black dots, passes the slack on. Instructions are taken in order of time. Each starts
// when its predecessors really end, which is no later than in the relaxed schedule. It takes the
// slowest option that ends no later than in the relaxed schedule. So the next instruction can use
// what rounding left. Backward in time this works in the same way, and gives other plans.
//
// All useful options take part, not only those on the hull: an option beside the hull often fits
// better.
#pragma once

#include <vector>

#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/plan/search/choices.h"

namespace perseus::plan {

// The start and the end of each instruction in a relaxed schedule.
struct Windows {
  Nanoseconds length = 0;  // Of the whole schedule.
  std::vector<Nanoseconds> starts;
  std::vector<Nanoseconds> ends;
};

// Requires `solution` to be of `network`.
Windows WindowsOf(const frontier::Network& network, const frontier::Solution& solution);

enum class TimeDirection { kForward, kBackward };

// A choice for every instruction whose schedule is no longer than windows.length.
Choices DiffuseRounding(const ChoiceGraph& graph, const Windows& windows, TimeDirection direction);

}  // namespace perseus::plan
