// The layers of Wide-ResNet101 (arXiv 1605.07146) for images of 224 x 224: bottleneck blocks of
// ResNet101 (arXiv 1512.03385) whose inner convolutions have `width` times the channels.
#pragma once

#include <vector>

#include "perseus/simulation/synthetic/model_zoo.h"

namespace perseus::synthetic {

std::vector<LayerWork> WideResNet101Layers(int width, int images);

}  // namespace perseus::synthetic
