// Appends the kernels of a layer, forward and backward together (model_zoo.h has the rules).
#pragma once

#include "perseus/simulation/synthetic/model_zoo.h"

namespace perseus::synthetic {

inline constexpr double kBytesPerNumber = 2;  // FP16 or BF16.

// (m x k)(k x n), where the right side is a weight: `count` such products, each with its own.
struct Product {
  double m = 0;
  double k = 0;
  double n = 0;
  double count = 1;
};
void AddProduct(const Product& product, LayerWork& layer);

// A matrix product of two activations, whose backward pass is two products and no weight's.
// `bytes`: operands and result.
void AddActivationProduct(double flops, double bytes, LayerWork& layer);

// A kernel that computes nothing to speak of. `backward` is how many times the forward pass's bytes
// the backward pass moves.
void AddMove(double bytes, LayerWork& layer, double backward = 2);

// `bytes`: what each GPU sends. The backward pass sums as much.
void AddAllReduce(double bytes, LayerWork& layer);

}  // namespace perseus::synthetic
