// Relaxed schedules that hardly need rounding.
//
// The relaxed optimum is far from unique: a training iteration repeats the same few instructions
// hundreds of times, and which microbatch gets the slower vertex of a curve and which the faster is
// all the same to the relaxation. It tends to give every microbatch the same mix, which no measured
// option is. Rounding wants the opposite: whole instructions on vertices. Two steps get there.
//
//   Tilt: multiply each curve's slopes by a random factor near one, drawn per microbatch (so that
//   all of a microbatch's instructions agree on being fast or slow) or per instruction.
//   Sharpen: where an instruction still lies inside a segment of its curve, make that segment as
//   steep (if it is nearer to its slow end) or as flat (nearer to its fast end) as convexity
//   allows, which pushes it to that end, and solve again. A few rounds leave a fraction of
//   instructions inside; those the structure of the schedule forces there.
//
// The schedule is then a little above the optimum (hundredths of a percent), and what rounding and
// window search make of it is far below what they make of the optimum itself: Bloom 176B on A40 at
// 2 % slowdown, 96 microbatches: 0.08 % above the bound instead of 0.32 %.
#pragma once

#include <cstdint>
#include <stop_token>

#include "perseus/base/result.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/plan/rounding.h"

namespace perseus::plan {

enum class TiltBy { kMicrobatch, kGeneric };

struct Tilt {
  TiltBy by = TiltBy::kMicrobatch;
  double size = 0.1;  // Slopes change by up to this part.
  std::uint64_t seed = 0;
};

// A schedule of at most `length` from `rounds` + 1 solves. `network` is the relaxation of `graph`.
// Fails (kSystem) once `stop` is requested.
Result<Windows> SharpenedWindows(const frontier::Network& network,
                                 const schedule::InstructionGraph& graph, Nanoseconds length,
                                 const Tilt& tilt, int rounds, const std::stop_token& stop = {});

}  // namespace perseus::plan
