// Where a pipeline cuts a model: which layers each part (a stage, or a stage's chunk) holds.
//
// Boundaries: part p holds the layers from boundaries[p] to before boundaries[p + 1]. The first is
// 0, the last the number of layers, and they increase: no part is empty.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/synthetic/model_zoo.h"

namespace perseus::synthetic {

// Fails unless the boundaries cut so many layers into so many parts; the message says what is wrong
// and what was expected.
Result<void> CheckBoundaries(std::span<const int> boundaries, int layers, int parts);

// As many layers in each part, the remainder one each to the first parts. Fails if there are fewer
// layers than parts.
Result<std::vector<int>> UniformBoundaries(int layers, int parts);

// As many blocks in each part (the remainder to the first parts); what comes before the first block
// goes to the first part, what comes after the last one to the last. Fails if there are fewer
// blocks than parts.
Result<std::vector<int>> UniformBlockBoundaries(std::span<const LayerWork> layers, int parts);

}  // namespace perseus::synthetic
