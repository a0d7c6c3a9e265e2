// From the relaxed optimum to the best choice of measured options that an effort finds.
//
// The search is a sequence of cycles. It does not depend on the effort: the effort is the number of
// cycles. So a search can go on later, and more effort is never worse.
//
//   first look   The relaxed optimum is rounded forward and backward in time (rounding.h). Both
//                choices are improved by one round of small windows (window_search.h). The better
//                one is kept.
//   a cycle      1. Starts: further schedules near the optimum, chosen so that they need little
//                   rounding (sharpening.h), are rounded and improved in the same way. In the first
//                   cycle, the first look is a start, too.
//                2. The best start is improved by rounds of larger windows, until the work of the
//                   cycle is done, or until nothing improves.
//                3. It is kept if it is the best so far.
//
// WHY SO
//   Which schedule is the best start depends on the profile. For GPT-3 on A100, the relaxed optimum
//   itself is as good as any other. For Bloom on A40 with 96 microbatches, one sharpened schedule
//   cuts the gap from 0.5 to 0.06 %. So the first cycle has at least one, and more as long as they
//   take less than three fifths of the work. Of the windows, rounds of 10 instructions find nearly
//   all that any window finds: of 1,536 windows, the first round improves 14, and the next rounds
//   one or two (GPT-3, 96 microbatches). So rounds end soon. A window that is not improved within
//   10,000 options tried is given up: with up to 100,000, rounds of 14 had 8.7 of the 15.3 million
//   options tried for Bloom with 96 microbatches, and found nothing. Without rounds of 14, the gap
//   of GPT-3 with 12 microbatches and no slowdown is 0.098 % in place of 0.087 %.
//
// Work is counted in options tried in windows. A window and a solve count as many options as take
// the same time.
#pragma once

#include "perseus/base/result.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/plan/search/choices.h"
#include "perseus/planning/plan/search/search_limits.h"

namespace perseus::plan {

class ChoiceSearch {
 public:
  // `solution` is an optimum of `network`, the relaxation of `graph`. Keeps references to all
  // three. Does nothing yet.
  ChoiceSearch(const ChoiceGraph& graph, const frontier::Network& network,
               const frontier::Solution& solution);

  // The best choices with this effort. Their schedule is no longer than the solution's. Goes on
  // from the effort of earlier calls: a call with less effort than before does nothing. Fails
  // (kSystem) once a stop is requested.
  Result<Choices> Spend(const SearchLimits& limits);

 private:
  class Cycle;

  Result<void> LookFirst(const std::stop_token& stop);
  Result<void> RunCycle(const SearchLimits& limits);

  const ChoiceGraph& graph_;
  const frontier::Network& network_;
  const frontier::Solution& solution_;
  double bound_j_ = 0;
  Choices best_;
  double energy_j_ = 0;
  int cycles_ = 0;
  int tilts_ = 0;
};

}  // namespace perseus::plan
