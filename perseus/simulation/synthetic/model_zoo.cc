#include "perseus/simulation/synthetic/model_zoo.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "perseus/simulation/synthetic/model_layers.h"

namespace perseus::synthetic {
namespace {

struct ZooEntry {
  ModelInfo info;
  std::optional<Transformer> transformer;  // If empty, the model is Wide-ResNet101.
  int width = 0;
};

// The bytes that an activation function moves for one number (Transformer::activation_bytes), in
// its usual implementation. GPT's tanh form of GELU is eight kernels that read and write. BERT's
// and Bloom's GELU is one kernel. T5's ReLU is followed by a dropout. SwiGLU is SiLU and a product
// of two.
constexpr double kGeluOfGpt = 32;
constexpr double kGelu = 4;
constexpr double kReluAndDropout = 9;
constexpr double kSwiglu = 10;

// GPT-3: Brown et al., arXiv 2005.14165, table 2.1. The 1.3B model has 16 heads of 128, as usual,
// because the table's 24 heads do not divide 2048. 50,257 tokens, 2,048 positions.
Transformer Gpt3(int layers, double hidden, int heads) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .key_value_heads = heads,
          .head_size = hidden / heads,
          .feed_forward = 4 * hidden,
          .vocabulary = 50257,
          .positions = 2048,
          .has_position_layer = true,
          .has_biases = true,
          .has_dropout = true,
          .ties_head = true,
          .activation_bytes = kGeluOfGpt};
}

// Bloom: BigScience, arXiv 2211.05100, table 3, and the published configurations: 250,880 tokens,
// ALiBi instead of position embeddings, dropout 0.
Transformer Bloom(int layers, double hidden, int heads) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .key_value_heads = heads,
          .head_size = hidden / heads,
          .feed_forward = 4 * hidden,
          .vocabulary = 250880,
          .has_biases = true,
          .ties_head = true,
          .activation_bytes = kGelu};
}

// Llama 3: arXiv 2407.21783, table 3. It uses fused attention.
Transformer Llama3(int layers, double hidden, int heads, double feed_forward) {
  return {.attention = AttentionKind::kFused,
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .key_value_heads = 8,
          .head_size = 128,
          .feed_forward = feed_forward,
          .is_gated = true,
          .vocabulary = 128256,
          .activation_bytes = kSwiglu};
}

// Mixtral 8x7B: Jiang et al., arXiv 2401.04088, table 1.
Transformer Mixtral() {
  return {.attention = AttentionKind::kFused,
          .layers = 32,
          .hidden = 4096,
          .heads = 32,
          .key_value_heads = 8,
          .head_size = 128,
          .feed_forward = 14336,
          .is_gated = true,
          .experts = 8,
          .experts_per_token = 2,
          .vocabulary = 32000,
          .activation_bytes = kSwiglu};
}

// BERT: Devlin et al., arXiv 1810.04805. "Huge" is BERT large (24 layers, 16 heads, 30,522 tokens,
// 512 positions and 2 segments) with 2,048 hidden units, as in the measured workloads.
Transformer BertHuge() {
  return {.kind = TransformerKind::kEncoder,
          .layers = 24,
          .hidden = 2048,
          .heads = 16,
          .key_value_heads = 16,
          .head_size = 128,
          .feed_forward = 8192,
          .vocabulary = 30522,
          .positions = 514,
          .has_biases = true,
          .has_dropout = true,
          .ties_head = true,
          .activation_bytes = kGelu};
}

// T5 3B: Raffel et al., arXiv 1910.10683, section 3.7: its attention is four times as wide as the
// model.
Transformer T5() {
  return {.kind = TransformerKind::kEncoderDecoder,
          .layers = 24,
          .hidden = 1024,
          .heads = 32,
          .key_value_heads = 32,
          .head_size = 128,
          .feed_forward = 16384,
          .vocabulary = 32128,
          .has_dropout = true,
          .ties_head = true,
          .activation_bytes = kReluAndDropout};
}

// The published parameter counts come from the papers. Those of GPT-3 1.3B to 6.7B, BERT huge and
// Wide-ResNet101_8 come from the list in the artifact of arXiv 2312.06902.
std::vector<ZooEntry> Zoo() {
  return {{{"gpt3-xl", "GPT-3 1.3B", 1313.63e6, 2048}, Gpt3(24, 2048, 16)},
          {{"gpt3-2.7b", "GPT-3 2.7B", 2648.93e6, 2048}, Gpt3(32, 2560, 32)},
          {{"gpt3-6.7b", "GPT-3 6.7B", 6654.21e6, 2048}, Gpt3(32, 4096, 32)},
          {{"gpt3-175b", "GPT-3 175B", 174.6e9, 2048}, Gpt3(96, 12288, 96)},
          {{"bloom-3b", "Bloom 3B", 3002.56e6, 2048}, Bloom(30, 2560, 32)},
          {{"bloom-176b", "Bloom 176B", 176.247e9, 2048}, Bloom(70, 14336, 112)},
          {{"bert-huge-uncased", "BERT huge 1.3B", 1276.40e6, 512}, BertHuge()},
          {{"t5-3b", "T5 3B", 2.85e9, 512}, T5()},
          {{"wide-resnet101_8", "Wide-ResNet101 x8 1.5B", 1517.37e6, 0}, {}, 8},
          {{"llama3-8b", "Llama 3 8B", 8.03e9, 8192}, Llama3(32, 4096, 32, 14336)},
          {{"llama3-70b", "Llama 3 70B", 70.55e9, 8192}, Llama3(80, 8192, 64, 28672)},
          {{"mixtral-8x7b", "Mixtral 8x7B", 46.7e9, 8192}, Mixtral()}};
}

Result<ZooEntry> FindEntry(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ZooEntry& entry : Zoo()) {
    if (entry.info.name == name) return entry;
    names.push_back(entry.info.name);
  }
  return Fail("model \"{}\" is unknown (choose one of {})", name, fmt::join(names, ", "));
}

constexpr int kLargest = 1'000'000;

Result<void> CheckSize(std::string_view what, int value) {
  if (value >= 1 && value <= kLargest) return {};
  return Fail("model profile: {} {} is out of range (choose 1 to {})", what, value, kLargest);
}

}  // namespace

std::vector<ModelInfo> ModelZoo() {
  std::vector<ModelInfo> models;
  for (const ZooEntry& entry : Zoo()) models.push_back(entry.info);
  return models;
}

Result<std::vector<LayerWork>> LayersOf(const ModelWorkload& workload) {
  PERSEUS_ASSIGN_OR_RETURN(const ZooEntry entry, FindEntry(workload.model));
  const int length =
      workload.sequence_length != 0 ? workload.sequence_length : entry.info.sequence_length;
  for (const auto& [what, value] :
       {std::pair{"microbatch size", workload.microbatch_size},
        std::pair{"tensor parallel degree", workload.tensor_parallel}}) {
    if (const Result<void> fits = CheckSize(what, value); !fits) return Fail(fits);
  }
  if (!entry.transformer) {
    if (workload.sequence_length != 0) {
      return Fail("{} takes images, not sequences (leave the sequence length out)", workload.model);
    }
    if (workload.tensor_parallel != 1) {
      return Fail("{} has no tensor parallelism here (leave the degree at 1)", workload.model);
    }
    return WideResNet101Layers(entry.width, workload.microbatch_size);
  }
  if (const Result<void> fits = CheckSize("sequence length", length); !fits) return Fail(fits);
  const int heads = entry.transformer->key_value_heads;
  if (heads % workload.tensor_parallel != 0) {
    return Fail("{} has {} key-value heads, which {} GPUs cannot share evenly (choose a divisor)",
                workload.model, heads, workload.tensor_parallel);
  }
  return TransformerLayers(*entry.transformer, {static_cast<double>(workload.microbatch_size),
                                                static_cast<double>(length),
                                                static_cast<double>(workload.tensor_parallel)});
}

}  // namespace perseus::synthetic
