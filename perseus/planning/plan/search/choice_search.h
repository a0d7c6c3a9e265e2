// From the relaxed optimum to the best choice of measured options that an effort finds.
//
// The search is a sequence of cycles. It does not depend on the effort: the effort is the number of
// cycles. So a search can go on later, and more effort is never worse.
//
//   first look   The relaxed optimum is rounded forward and backward in time (choices.h). Both
//                choices are improved by one round of small windows (window_search.h). The better
//                one is kept.
//   a cycle      1. Starts: further schedules near the optimum, chosen so that they need little
//                   rounding (SharpenedWindows), are rounded and improved in the same way. In the
//                   first cycle, the first look is a start, too.
//                2. The best start is improved by rounds of larger windows, until the work of the
//                   cycle is done, or until nothing improves.
//                3. It is kept if it is the best so far.
//
// WHY
//   Which schedule is the best start depends on the profile. For GPT-3 on A100, the relaxed optimum
//   itself is as good as any other. For Bloom on A40 with 96 microbatches, one sharpened schedule
//   cuts the gap from 0.5 to 0.06 %. So the first cycle has at least one sharpened start. It has
//   more as long as they take less than three fifths of the work. Rounds with windows of 10
//   instructions find nearly everything that larger windows find: of 1,536 windows, the first round
//   improves 14, and the next rounds one or two (GPT-3, 96 microbatches). So rounds end soon. A
//   window that is not improved within 10,000 options tried is skipped. With up to 100,000, rounds
//   of 14 used 8.7 of the 15.3 million options tried for Bloom with 96 microbatches, and found
//   nothing. Without rounds of 14, the gap of GPT-3 with 12 microbatches and no slowdown is 0.098 %
//   instead of 0.087 %.
//
// Work is counted in options tried in windows. A window and a solve count as many options as take
// the same time.
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
// The relaxed optimum is far from unique. A training iteration repeats the same few instructions
// hundreds of times. For the relaxation, it makes no difference which microbatch gets the slower
// vertex of a curve and which gets the faster one. The optimum tends to give every microbatch the
// same mix, and no measured option is such a mix. Rounding needs the opposite: whole instructions
// on vertices. Two steps achieve this.
//
//   Tilt: multiply the slopes of each curve by a random factor near one, drawn for each microbatch
//   (so that all instructions of a microbatch are fast or slow together) or for each instruction.
//   Sharpen: if an instruction is still inside a segment of its curve, make this segment as steep
//   (if it is nearer to the slow end) or as flat (if nearer to the fast end) as convexity allows.
//   This pushes the instruction to that end. Solve again. After a few rounds, a fraction of the
//   instructions is still inside a segment: the structure of the schedule forces these.
//
// The schedule is then a little above the optimum (hundredths of a percent). But rounding and
// window search turn it into a far better plan than the optimum itself: Bloom 176B on A40 at 2 %
// slowdown, 96 microbatches: 0.08 % above the bound instead of 0.32 %.
enum class TiltBy { kMicrobatch, kInstruction };

struct Tilt {
  TiltBy by = TiltBy::kMicrobatch;
  double size = 0.1;  // Slopes change by at most this fraction.
  std::uint64_t seed = 0;
};

// A schedule no longer than `optimum` from `rounds` + 1 solves. `network` is the relaxation of
// `graph`, and `optimum` one of its optima. Each solve starts from the schedule of the one before.
// Fails (kSystem) once `stop` is requested.
Result<Windows> SharpenedWindows(const frontier::Network& network,
                                 const schedule::InstructionGraph& graph,
                                 const frontier::Solution& optimum, const Tilt& tilt, int rounds,
                                 const std::stop_token& stop = {});

class ChoiceSearch {
 public:
  // `solution` is an optimum of `network`, the relaxation of `graph`. Keeps references to all
  // three. Does nothing yet.
  ChoiceSearch(const ChoiceGraph& graph, const frontier::Network& network,
               const frontier::Solution& solution);

  // Returns the best choices that this effort finds. Their schedule is no longer than the
  // solution's. Continues the search of earlier calls. A call with less effort than before does
  // nothing. Fails (kSystem) once a stop is requested.
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
