#include "perseus/simulation/synthetic/layer_kernels.h"

namespace perseus::synthetic {
namespace {

// A weight's gradient is added to the sum over microbatches: two reads and one write.
constexpr double kAccumulateBytes = 3 * kBytesPerNumber;

}  // namespace

void AddProduct(const Product& product, LayerWork& layer) {
  const auto& [m, k, n, count] = product;
  const double weights = k * n * count;
  const KernelWork kernel{
      .flops = 2 * m * k * n * count,
      .memory_bytes = kBytesPerNumber * (m * k * count + weights + m * n * count)};
  layer.forward.push_back(kernel);
  layer.backward_input.push_back(kernel);
  layer.backward_weight.push_back(kernel);
  layer.backward_weight.push_back({.memory_bytes = kAccumulateBytes * weights});
}

void AddActivationProduct(double flops, double bytes, LayerWork& layer) {
  const KernelWork kernel{.flops = flops, .memory_bytes = bytes};
  layer.forward.push_back(kernel);
  layer.backward_input.insert(layer.backward_input.end(), 2, kernel);
}

void AddMove(double bytes, LayerWork& layer, double backward) {
  layer.forward.push_back({.memory_bytes = bytes});
  layer.backward_input.push_back({.memory_bytes = backward * bytes});
}

void AddAllReduce(double bytes, LayerWork& layer) {
  if (bytes == 0) return;
  layer.forward.push_back({.all_reduce_bytes = bytes});
  layer.backward_input.push_back({.all_reduce_bytes = bytes});
}

}  // namespace perseus::synthetic
