// Measured layers: the profile of a model that no pipeline has been cut from yet. Held as a Profile
// whose stages are the layers, first layer first.
//
// File format: that of a profile (profile.h) with `layer` in place of `stage`. No `chunk`, no
// further knobs; of each instruction every layer has the same clocks, so that those of a stage can
// be added up.
//
// What adding up leaves out: kernels that overlap or are fused across layers, and a GPU at its
// power limit, whose clock follows the mean of its load. A stage measured as a whole is truer.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/profile/profile.h"

namespace perseus::profile {

// Sums over so many layers fit 64 bits of nanoseconds.
inline constexpr int kMostLayers = 2'000;

// Errors (kInput) are one line, "name:line: cause (remedy)", or "name: cause (remedy)" for rows
// that are missing.
Result<Profile> ParseLayers(std::string_view text, std::string_view name);

// Per layer, how long those instructions take together at the highest clock. Fails if a layer lacks
// one, naming both.
Result<std::vector<Nanoseconds>> LayerTimes(const Profile& layers,
                                            std::span<const InstructionKind> kinds);

// The profile of the stages: at each clock the times and the energies of a stage's layers, added
// up. Requires layers as ParseLayers gives them, and boundaries that CheckBoundaries
// (layer_partition.h) passes.
Profile StageProfile(const Profile& layers, std::span<const int> boundaries);

}  // namespace perseus::profile
