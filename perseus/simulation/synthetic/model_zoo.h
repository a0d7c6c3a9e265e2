// A small zoo of published architectures, and the kernels that training one microbatch runs.
//
// An architecture is data: how many layers of which shape. What a layer does follows from the
// shape, kernel by kernel, as a framework without fused kernels runs it ("eager") or with fused
// attention, so that a GPU's roofline (gpu_roofline.h) can tell which of them the clock matters to.
// 16-bit numbers throughout; softmax and loss in 32 bits.
//
// Layers are what a pipeline can be cut between. Transformers: each embedding, each block, the
// language-model head with the loss. GPT-3 has two embeddings, of tokens and of positions, so
// GPT-3 1.3B has 2 + 24 + 1 = 27 layers. A decoder block of T5 is two layers, attention and
// feed-forward: 1 + 24 + 2 * 24 + 1 = 74. Wide-ResNet101 is cut between residual blocks: 33, and
// the stem before them; the classifier is part of the last. These are the layers that the published
// measurements of pipelines count (the artifact of arXiv 2312.06902, its example scripts).
//
// Work of one layer, N tokens, a matrix product (m x k)(k x n): 2mkn flops, and its operands and
// its result through memory once. The backward pass has two products for each of the forward pass:
// one gives the gradient of the input (backward_input), one that of the weights (backward_weight),
// which is then added to the sum over microbatches. Kernels that only move data (normalisation,
// softmax, dropout, activation functions ...) count as bytes: model_zoo.cc lists them, and how many
// times an element passes through memory. Their backward pass moves twice as much (gradient and
// saved tensor in, gradient out).
//
// Tensor parallelism divides attention, feed-forward, embedding and head among N GPUs
// (Megatron-LM, arXiv 1909.08053); normalisation, dropout and residual sums are done by each of
// them. Two all-reduces a block in either direction.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/synthetic/gpu_roofline.h"

namespace perseus::synthetic {

struct LayerWork {
  std::string name = {};  // "token embedding", "block 3", "head"
  double parameters = 0;  // Of the whole model; those shared with an earlier layer count there.
  bool is_block = false;  // Alike and many; not an embedding or the head.
  // Of one microbatch, one GPU.
  std::vector<KernelWork> forward = {};
  std::vector<KernelWork> backward_input = {};
  std::vector<KernelWork> backward_weight = {};
};

struct ModelInfo {
  std::string_view name;   // "gpt3-xl"
  std::string_view title;  // "GPT-3 1.3B"
  double published_parameters = 0;
  int sequence_length = 0;  // The published one; 0 for images.
};

// In the order of the families.
std::vector<ModelInfo> ModelZoo();

struct ModelWorkload {
  std::string model = {};
  int microbatch_size = 1;  // Sequences, or images.
  int sequence_length = 0;  // 0: the published one.
  int tensor_parallel = 1;
};

// First layer first. Fails for an unknown model (and lists the known), for sizes below 1, for
// tensor parallelism that does not divide the attention heads, and for a sequence length or tensor
// parallelism of Wide-ResNet, which has neither here.
Result<std::vector<LayerWork>> LayersOf(const ModelWorkload& workload);

}  // namespace perseus::synthetic
