// The layers of models: of transformers (embeddings, blocks, and the language-model head with its
// loss), and of Wide-ResNet101.
#pragma once

#include <vector>

#include "perseus/simulation/synthetic/model_zoo.h"

namespace perseus::synthetic {

// The blocks of the model family.
enum class TransformerKind {
  kDecoder,         // GPT-3, Bloom, Llama: one stack.
  kEncoder,         // BERT: the same kernels, and a dense layer before the head.
  kEncoderDecoder,  // T5: `layers` of each. The decoder also attends to the encoder's output.
};
enum class AttentionKind {
  kEager,  // Scores pass through memory in every step of the softmax.
  // FlashAttention (arXiv 2205.14135): scores never pass through memory, and a causal mask halves
  // the products.
  kFused,
};

struct Transformer {
  TransformerKind kind = TransformerKind::kDecoder;
  AttentionKind attention = AttentionKind::kEager;
  int layers = 0;
  double hidden = 0;
  int heads = 0;
  int key_value_heads = 0;
  double head_size = 0;
  double feed_forward = 0;
  bool is_gated = false;      // SwiGLU: two products in, one out.
  int experts = 1;            // In each feed-forward layer.
  int experts_per_token = 1;  // How many of them process a token.
  double vocabulary = 0;
  double positions = 0;  // Learned position embeddings. 0 means none.
  // Whether the position embedding is a layer of its own.
  bool has_position_layer = false;
  bool has_biases = false;  // In products and normalizations.
  bool has_dropout = false;
  bool ties_head = false;       // The head shares the weights of the token embedding.
  double activation_bytes = 0;  // For one number of the activation function.
};

struct TransformerBatch {
  double sequences = 0;
  double length = 0;  // In tokens, of encoder and decoder.
  double gpus = 1;    // The tensor parallel degree.
};

std::vector<LayerWork> TransformerLayers(const Transformer& model, const TransformerBatch& batch);

// The layers of Wide-ResNet101 (arXiv 1605.07146) for images of 224 x 224: bottleneck blocks of
// ResNet101 (arXiv 1512.03385) whose inner convolutions have `width` times the channels.
std::vector<LayerWork> WideResNet101Layers(int width, int images);

}  // namespace perseus::synthetic
