// From the relaxed optimum to the best plan of measured options that a bounded effort finds.
//
// The relaxed optimum is far from unique: a training iteration repeats the same few instructions
// hundreds of times, and which microbatch gets the slower vertex of a curve and which the faster is
// all the same to the relaxation, but not to rounding. So several relaxed optima are rounded in
// several ways (rounding.h), each is improved a little (window_search.h), and the best a lot. Other
// optima come from tilting the curves at random, per operation or per microbatch, by a thousandth
// to a tenth: the relaxation then has preferences, and puts most operations on vertices.
//
// The effort is counted in options looked at, not in seconds, so the same input always gives the
// same plan.
#pragma once

#include "perseus/base/result.h"
#include "perseus/frontier/check.h"
#include "perseus/frontier/network.h"
#include "perseus/plan/choices.h"

namespace perseus {

enum class SearchEffort {
  kFirstLook,  // One relaxed optimum, a short search.
  kFull,
};

// `solution` is an optimum of `network`, the relaxation of `graph`. The schedule of the choices is
// no longer than the solution's.
Result<Choices> Discretize(const ChoiceGraph& graph, const Network& network,
                           const Solution& solution, SearchEffort effort);

}  // namespace perseus
