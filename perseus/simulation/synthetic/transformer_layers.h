// The layers of a transformer: embeddings, blocks, and the language-model head with its loss.
#pragma once

#include <vector>

#include "perseus/simulation/synthetic/model_zoo.h"

namespace perseus::synthetic {

// The order of the family's layers, and what its blocks are made of.
enum class TransformerKind {
  kDecoder,         // GPT-3, Bloom, Llama: one stack.
  kEncoder,         // BERT: the same kernels, and a dense layer before the head.
  kEncoderDecoder,  // T5: `layers` of each; the decoder also attends to the encoder's output.
};
enum class AttentionKind {
  kEager,  // Scores go through memory, once for every step of the softmax.
  kFused,  // FlashAttention (arXiv 2205.14135): they never do; a causal mask halves the products.
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
  bool is_gated = false;  // SwiGLU: two products in, one out.
  int experts = 1;        // Of these every token visits
  int experts_per_token = 1;
  double vocabulary = 0;
  double positions = 0;       // Learned position embeddings; 0: none.
  bool embeds_apart = false;  // The position embedding is a layer of its own.
  bool has_biases = false;    // In products and normalisations.
  bool has_dropout = false;
  bool ties_head = false;       // To the token embedding.
  double activation_bytes = 0;  // Of the activation function, a number of the feed-forward layer.
};

struct TransformerBatch {
  double sequences = 0;
  double length = 0;  // Of encoder and decoder both.
  double gpus = 1;    // Tensor parallel.
};

std::vector<LayerWork> TransformerLayers(const Transformer& model, const TransformerBatch& batch);

}  // namespace perseus::synthetic
