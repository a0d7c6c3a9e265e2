// Finds relaxed schedules that need little rounding.
//
// The relaxed optimum is far from unique. A training iteration repeats the same few instructions
// hundreds of times, and the relaxation does not care which microbatch gets the slower vertex of a
// curve and which the faster. It tends to give every microbatch the same mix, and no measured
// option is such a mix. Rounding needs the opposite: whole instructions on vertices. Two steps lead
// there.
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
#pragma once

#include <cstdint>
#include <stop_token>

#include "perseus/base/result.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/plan/search/rounding.h"

namespace perseus::plan {

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

}  // namespace perseus::plan
