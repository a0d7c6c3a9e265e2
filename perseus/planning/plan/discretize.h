// From the relaxed optimum to the best plan of measured options that a limited effort finds.
//
// Several relaxed schedules near the optimum, chosen so that they need little rounding
// (sharpening.h), are rounded forward and backward in time (rounding.h). Each plan is improved a
// little, and the best plan a lot (window_search.h).
//
// The effort is counted in options that are examined, not in seconds. So the same input always
// gives the same plan.
#pragma once

#include <stop_token>

#include "perseus/base/result.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/plan/choices.h"

namespace perseus::plan {

enum class SearchEffort {
  kFirstLook,  // Only the relaxed optimum, and a short search.
  kFull,
};

struct SearchLimits {
  SearchEffort effort = SearchEffort::kFull;
  // After a stop request, the search fails (kSystem). It checks for a request between windows,
  // rounds and solves, none of which takes long.
  std::stop_token stop = {};
};

// `solution` is an optimum of `network`, the relaxation of `graph`. The schedule of the choices is
// no longer than the solution's.
Result<Choices> Discretize(const ChoiceGraph& graph, const frontier::Network& network,
                           const frontier::Solution& solution, const SearchLimits& limits);

}  // namespace perseus::plan
