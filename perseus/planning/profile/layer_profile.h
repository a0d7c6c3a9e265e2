// The profile of the layers of a model. The search for the best partition into stages uses it. It
// is a Profile in which each pp_rank is a layer, in the order of the model.
//
// The file has the format of a profile (profile.h), with the column `layer` instead of `stage`, and
// without `chunk` and other knobs. For each instruction, all layers have the same clocks. So the
// times and the energies of the layers of a stage can be added.
//
// A sum is an approximation. It ignores kernels that overlap or are fused across layers. It also
// ignores that a GPU at its power limit sets its clock by its mean load. A measurement of the whole
// stage is more accurate.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/profile/profile.h"

namespace perseus::profile {

// With at most this number of layers, sums fit 64 bits of nanoseconds.
inline constexpr int kMostLayers = 2'000;

// Errors (kInput) are one line: "name:line: cause (remedy)", or "name: cause (remedy)" for missing
// rows.
Result<Profile> ParseLayers(std::string_view text, std::string_view name);

inline int LayerCount(const Profile& layers) { return layers.pp_ranks(); }

// Returns the total time of the instructions `kinds` of each layer at the highest clock. Fails
// (kInput) if a layer lacks one of these instructions. The message has the layer and the kind.
Result<std::vector<Nanoseconds>> LayerTimes(const Profile& layers,
                                            std::span<const InstructionKind> kinds);

// The profile of the stages: for each clock, the sums of the times and of the energies of the
// layers of a stage. Stage s has the layers boundaries[s] to boundaries[s + 1] - 1. Requires layers
// from ParseLayers, and boundaries that increase strictly from 0 to the number of layers.
Profile StageProfile(const Profile& layers, std::span<const int> boundaries);

}  // namespace perseus::profile
