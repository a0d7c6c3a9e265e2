// Functions that append the kernels of a layer, forward and backward (model_zoo.h has the rules).
#pragma once

#include "perseus/simulation/synthetic/model_zoo.h"

namespace perseus::synthetic {

inline constexpr double kBytesPerNumber = 2;  // FP16 or BF16.

// `count` products (m x k)(k x n), each with its own weight as the right side.
struct Product {
  double m = 0;
  double k = 0;
  double n = 0;
  double count = 1;
};
void AddProduct(const Product& product, LayerWork& layer);

// Adds a matrix product of two activations. Its backward pass has two products, and no gradient of
// a weight. `bytes` is the size of the operands and the result.
void AddActivationProduct(double flops, double bytes, LayerWork& layer);

// Adds a kernel that only moves data. The backward pass moves `backward` times the bytes of the
// forward pass.
void AddMove(double bytes, LayerWork& layer, double backward = 2);

// Adds an all-reduce to the forward and to the backward pass. `bytes` is what each GPU sends.
void AddAllReduce(double bytes, LayerWork& layer);

}  // namespace perseus::synthetic
