// A small collection of published architectures, and the kernels that train one microbatch.
//
// An architecture is data: the number of layers and their shapes. The work of a layer follows from
// its shape, kernel by kernel. A framework runs it without fused kernels ("eager") or with fused
// attention. So the roofline of a GPU (gpu_roofline.h) can decide which kernels depend on the
// clock. All numbers have 16 bits, except in softmax and loss, which use 32 bits.
//
// A pipeline can be cut between two layers. The layers of a transformer are: each embedding, each
// block, and the language-model head with the loss. GPT-3 has two embeddings, of tokens and of
// positions, so GPT-3 1.3B has 2 + 24 + 1 = 27 layers. A decoder block of T5 is two layers,
// attention and feed-forward: 1 + 24 + 2 * 24 + 1 = 74. Wide-ResNet101 is cut between residual
// blocks: it has 33 of them, and the stem before them. The classifier belongs to the last block.
// Published measurements of pipelines count layers in the same way (the artifact of arXiv
// 2312.06902, its example scripts).
//
// The work of one layer for N tokens: a matrix product (m x k)(k x n) takes 2mkn flops, and its
// operands and its result pass through memory once. The backward pass has two products for each
// product of the forward pass. The first gives the gradient of the input (backward_input). The
// second gives the gradient of the weights (backward_weight), which is then added to the sum over
// microbatches. Kernels that only move data (normalization, softmax, dropout, activation functions
// ...) are modeled by their bytes: model_layers.cc lists how many times an element passes through
// memory. Their backward pass moves twice as many bytes (it reads the gradient and the saved
// tensor, and writes a gradient).
//
// Memory. A layer keeps the data that its backward pass reads: the inputs of products,
// normalizations and activation functions, the output of softmax, and the masks of dropout (one
// byte for a number). For GPT with eager attention, this is the formula of Korthikanti et al.
// (arXiv 2205.05198, section 4.1), without sequence parallelism: s b h (10 + 24 / t + 5 a s / (h
// t)) bytes for a block. Fused attention keeps one number for each query instead of the scores.
//
// Tensor parallelism divides attention, feed-forward, embedding and head among N GPUs (Megatron-LM,
// arXiv 1909.08053). But each GPU computes all normalizations, dropouts and residual sums. A block
// has two all-reduces in each direction.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/synthetic/gpu_roofline.h"

namespace perseus::synthetic {

// The memory of one layer on one GPU.
struct LayerMemory {
  double saved_bytes = 0;  // What the forward pass of a microbatch keeps for its backward pass.
  double input_bytes = 0;  // Its input, which is enough if the backward pass recomputes the rest.
  // Weights that the layer shares with an earlier layer. If the two are on different stages, the
  // later stage has a copy.
  double shared_parameters = 0;
};

// The work of one layer for one microbatch on one GPU.
struct LayerWork {
  std::string name = {};  // "token embedding", "block 3", "head"
  // The parameters in the whole model. Shared parameters are counted in the earlier layer.
  double parameters = 0;
  bool is_block = false;  // One of many equal layers: not an embedding or the head.
  std::vector<KernelWork> forward = {};
  std::vector<KernelWork> backward_input = {};
  std::vector<KernelWork> backward_weight = {};
  LayerMemory memory = {};
};

struct ModelInfo {
  std::string_view name;   // "gpt3-xl"
  std::string_view title;  // "GPT-3 1.3B"
  double published_parameters = 0;
  int sequence_length = 0;  // The published one. 0 for images.
};

// Models of one family stand together.
std::vector<ModelInfo> ModelZoo();

struct ModelWorkload {
  std::string model = {};
  int microbatch_size = 1;  // In sequences or images.
  int sequence_length = 0;  // 0 means the published one.
  int tensor_parallel = 1;
};

// Returns the layers in the order of the model. Fails (kInput) for an unknown model (the message
// lists the known models), for sizes below 1, and if tensor parallelism does not divide the
// key-value heads. Also fails if a sequence length or tensor parallelism is given for Wide-ResNet,
// which has neither here.
Result<std::vector<LayerWork>> LayersOf(const ModelWorkload& workload);

}  // namespace perseus::synthetic
