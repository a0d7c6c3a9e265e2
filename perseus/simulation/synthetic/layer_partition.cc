#include "perseus/simulation/synthetic/layer_partition.h"

#include <algorithm>
#include <iterator>

namespace perseus::synthetic {

Result<void> CheckBoundaries(std::span<const int> boundaries, int layers, int parts) {
  if (std::ssize(boundaries) != parts + 1) {
    return Fail(
        "{} layer boundaries make {} parts, but {} parts are needed (give {} boundaries: the first "
        "layer of each part, and {})",
        boundaries.size(), std::max<std::ptrdiff_t>(0, std::ssize(boundaries) - 1), parts,
        parts + 1, layers);
  }
  const auto fall = std::adjacent_find(boundaries.begin(), boundaries.end(), std::greater_equal());
  if (fall != boundaries.end()) {
    return Fail("layer boundary {} is followed by {} (each must be larger than the one before)",
                *fall, *(fall + 1));
  }
  if (boundaries.front() != 0 || boundaries.back() != layers) {
    return Fail("layer boundaries go from {} to {} (the model has {} layers: use 0 to {})",
                boundaries.front(), boundaries.back(), layers, layers);
  }
  return {};
}

Result<std::vector<int>> UniformBoundaries(int layers, int parts) {
  if (parts < 1 || layers < parts) {
    return Fail("{} layers cannot fill {} parts (choose 1 to {} for stages times chunks)", layers,
                parts, layers);
  }
  std::vector<int> boundaries = {0};
  for (int part = 0; part < parts; ++part) {
    boundaries.push_back(boundaries.back() + layers / parts + (part < layers % parts ? 1 : 0));
  }
  return boundaries;
}

Result<std::vector<int>> UniformBlockBoundaries(std::span<const LayerWork> layers, int parts) {
  const auto is_block = [](const LayerWork& layer) { return layer.is_block; };
  const auto first = std::find_if(layers.begin(), layers.end(), is_block);
  const auto before = static_cast<int>(first - layers.begin());
  const auto blocks = static_cast<int>(std::count_if(layers.begin(), layers.end(), is_block));
  auto boundaries = UniformBoundaries(blocks, parts);
  if (!boundaries) return boundaries;
  for (int& boundary : *boundaries) boundary += before;
  boundaries->front() = 0;
  boundaries->back() = static_cast<int>(layers.size());
  return boundaries;
}

}  // namespace perseus::synthetic
