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
  kFirstLook,  // The relaxed optimum alone, a short search.
  kFull,
};

// How long to look for a plan, and when to leave off.
struct SearchLimits {
  SearchEffort effort = SearchEffort::kFull;
  // Once stop is requested, the search fails (kSystem) as soon as it notices: between windows,
  // rounds and solves, none of which takes long. Who stops it knows why.
  std::stop_token stop = {};
};

// `solution` is an optimum of `network`, the relaxation of `graph`. The schedule of the choices is
// no longer than the solution's.
Result<Choices> Discretize(const ChoiceGraph& graph, const frontier::Network& network,
                           const frontier::Solution& solution, const SearchLimits& limits);

}  // namespace perseus::plan
