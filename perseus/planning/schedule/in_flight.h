// How much activation memory a schedule needs: the microbatches that each pp_rank holds at a time.
//
// A forward allocates the activations of its (stage, microbatch). The full backward frees them. If
// the backward is split, the wgrad frees them, because it still needs the inputs of the layer. A
// pp_rank runs its instructions one after another. So its memory over an iteration follows from the
// order of its instructions alone: clocks, delays and stragglers do not change the peak.
//
// If a microbatch has a recompute on a stage, its forward keeps only a part, and the recompute
// allocates the rest.
//
// Not modeled: buffers of communication beside the activations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule {

// The most that each pp_rank holds at any time: [pp_rank]. `size_of_stage` has the size of the
// activations of one microbatch for each stage, in any unit. `kept_of_stage` has the part that
// stays until a recompute; empty: all. Requires a schedule without defect (schedule.h).
std::vector<std::int64_t> PeakActivations(const Schedule& schedule,
                                          std::span<const std::int64_t> size_of_stage,
                                          std::span<const std::int64_t> kept_of_stage = {});

// The same in microbatches: every (stage, microbatch) counts as one.
std::vector<std::int64_t> PeakInFlight(const Schedule& schedule);

}  // namespace perseus::schedule
