// Finds a choice of measured options that is close to the relaxed optimum, within a given effort.
//
// The search is a sequence of cycles. Each cycle is the same for any effort: the effort is only the
// number of cycles. So a search can continue later, and more effort never gives a worse result.
//
//   first look   The relaxed optimum is rounded forward and backward in time (choices.h). Both
//                choices are improved by one round of small windows (window_search.h). The better
//                choice is kept.
//   a cycle      1. Starts: further schedules near the optimum, chosen so that they need little
//                   rounding (SharpenedWindows), are rounded and improved in the same way. In the
//                   first cycle, the result of the first look is a start, too.
//                2. The best start is improved by rounds of larger windows, until the work of the
//                   cycle is done, or until nothing improves.
//                3. If the result is the best so far, it is kept.
//
// WHY
//   Which schedule is the best start depends on the profile. For GPT-3 on A100, the relaxed optimum
//   itself is as good as any other. For Bloom on A40 with 96 microbatches, one sharpened schedule
//   reduces the gap from 0.5 to 0.06 %. So the first cycle has at least one sharpened start. It has
//   more sharpened starts, as long as they take less than three fifths of the work.
//
//   Windows of 10 instructions find nearly everything that larger windows find. Of 1,536 windows,
//   the first round improves 14, and each of the next rounds improves one or two (GPT-3, 96
//   microbatches). So rounds end soon. A window is skipped if 10,000 tried options do not improve
//   it. With a limit of 100,000, rounds of windows of 14 instructions used 8.7 of the 15.3 million
//   tried options for Bloom with 96 microbatches, and found nothing. Without these rounds, the gap
//   of GPT-3 with 12 microbatches and no slowdown is 0.098 % instead of 0.087 %.
//
// Work is counted as the number of options that are tried in windows. The setup of a window and the
// solution of a schedule also count, as the number of options that take the same time.
#pragma once

#include <cstdint>
#include <stop_token>

#include "perseus/base/result.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/plan/search/choices.h"
#include "perseus/planning/plan/search/search_limits.h"

namespace perseus::plan {

// Finds relaxed schedules that need little rounding.
//
// Many different schedules are optima of the relaxation. A training iteration repeats the same few
// instructions hundreds of times. For the relaxation, it makes no difference which microbatch gets
// the slower vertex of a curve and which gets the faster one. The solver tends to give every
// microbatch the same mix of two vertices, but no measured option is such a mix. Rounding needs the
// opposite: whole instructions on vertices. Two steps achieve this.
//
//   Tilt: multiply the slopes of each curve by a random factor near one. The factor is chosen for
//   each microbatch (so that all its instructions are fast or slow together) or for each
//   instruction.
//   Sharpen: find the instructions that are still inside a segment of their curve. If an
//   instruction is nearer to the slow end, make its segment as steep as convexity allows. If it is
//   nearer to the fast end, make the segment as flat as convexity allows. This pushes the
//   instruction to that end. Then solve again.
//
//   After a few rounds, only a fraction of the instructions is still inside a segment: the
//   structure of the schedule forces these.
//
// The energy of this schedule is a little above the optimum (hundredths of a percent). But rounding
// and window search turn it into a much better plan than they make from the optimum itself. For
// Bloom 176B on A40 at 2 % slowdown with 96 microbatches, the plan is 0.08 % above the bound
// instead of 0.32 %.
enum class TiltBy { kMicrobatch, kInstruction };

struct Tilt {
  TiltBy by = TiltBy::kMicrobatch;
  double size = 0.1;  // Slopes change by at most this fraction.
  std::uint64_t seed = 0;
};

// Returns a schedule no longer than `optimum`, after `rounds` + 1 solves. `network` is the
// relaxation of `graph`, and `optimum` is an optimum of `network`. Each solve starts from the
// schedule of the previous solve. Fails (kSystem) after a stop request.
Result<Windows> SharpenedWindows(const frontier::Network& network,
                                 const schedule::InstructionGraph& graph,
                                 const frontier::Solution& optimum, const Tilt& tilt, int rounds,
                                 const std::stop_token& stop = {});

class ChoiceSearch {
 public:
  // `solution` is an optimum of `network`, the relaxation of `graph`. Keeps references to all
  // three. The search begins with the first call of Spend.
  ChoiceSearch(const ChoiceGraph& graph, const frontier::Network& network,
               const frontier::Solution& solution);

  // Continues the search of earlier calls, and returns the best choices that this effort finds.
  // Their schedule is no longer than the schedule of the solution. A call with less effort than an
  // earlier call does nothing. Fails (kSystem) after a stop request.
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
