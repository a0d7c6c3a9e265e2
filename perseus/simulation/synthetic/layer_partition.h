// Where a pipeline cuts a model: which layers each part (a stage, or a chunk of a stage) holds.
//
// Part p holds the layers from boundaries[p] to boundaries[p + 1] - 1. The first boundary is 0, the
// last one is the number of layers, and they increase, so no part is empty.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/synthetic/model_zoo.h"

namespace perseus::synthetic {

// Fails (kInput) unless the boundaries cut `layers` layers into `parts` parts. The message says
// what is wrong and what was expected.
Result<void> CheckBoundaries(std::span<const int> boundaries, int layers, int parts);

// Gives each part the same number of layers. The first parts get one more each if there is a
// remainder. Fails (kInput) if there are fewer layers than parts.
Result<std::vector<int>> UniformBoundaries(int layers, int parts);

// Gives each part the same number of blocks, as UniformBoundaries does with layers. The layers
// before the first block belong to the first part, those after the last block to the last part.
// Fails (kInput) if there are fewer blocks than parts.
Result<std::vector<int>> UniformBlockBoundaries(std::span<const LayerWork> layers, int parts);

}  // namespace perseus::synthetic
