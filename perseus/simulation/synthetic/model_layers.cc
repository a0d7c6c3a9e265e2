#include "perseus/simulation/synthetic/model_layers.h"

#include <fmt/core.h>

namespace perseus::synthetic {
namespace {

// ---- Kernels, forward and backward (model_zoo.h has the rules) ----

constexpr double kBytesPerNumber = 2;  // FP16 or BF16.
// A weight's gradient is added to the sum over microbatches: two reads and one write.
constexpr double kAccumulateBytes = 3 * kBytesPerNumber;

// `count` products (m x k)(k x n), each with its own weight as the right side.
struct Product {
  double m = 0;
  double k = 0;
  double n = 0;
  double count = 1;
};
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

// Adds a matrix product of two activations. Its backward pass has two products, and no gradient of
// a weight. `bytes` is the size of the operands and the result.
void AddActivationProduct(double flops, double bytes, LayerWork& layer) {
  const KernelWork kernel{.flops = flops, .memory_bytes = bytes};
  layer.forward.push_back(kernel);
  layer.backward_input.insert(layer.backward_input.end(), 2, kernel);
}

// Adds a kernel that only moves data. The backward pass moves `backward` times the bytes of the
// forward pass.
void AddMove(double bytes, LayerWork& layer, double backward = 2) {
  layer.forward.push_back({.memory_bytes = bytes});
  layer.backward_input.push_back({.memory_bytes = backward * bytes});
}

// Adds an all-reduce to the forward and to the backward pass. `bytes` is what each GPU sends.
void AddAllReduce(double bytes, LayerWork& layer) {
  if (bytes == 0) return;
  layer.forward.push_back({.all_reduce_bytes = bytes});
  layer.backward_input.push_back({.all_reduce_bytes = bytes});
}

// ---- Transformers ----

// The number of bytes that a kernel without products reads and writes for one number in the forward
// pass. A 16-bit number takes two bytes each way, a 32-bit number four bytes, and a dropout mask
// one byte.
//
// A score in eager attention, without what the products before and after it read and write: scale
// (2 + 2), mask (2 + 2), softmax in 32 bits (2 + 4, 4 + 4), conversion to 16 bits (4 + 2), dropout
// (2 + 2 + 1).
constexpr double kScoreBytes = 31;
constexpr double kScoreBytesWithoutDropout = 26;
constexpr double kLayerNormBytes = 4;    // One read, one write.
constexpr double kResidualAddBytes = 6;  // Two reads, one write.
constexpr double kDropoutBytes = 5;      // One read, one write, and the mask.
constexpr double kTransposeBytes = 4;    // Attention heads, one way.
constexpr double kEmbeddingBytes = 4;    // A row is read and written.
// A logit, without the write of the product: shift by a token (2 + 2), conversion to 32 bits
// (2 + 4), log-softmax (4 + 4). Its gradient takes the same way back.
constexpr double kLossBytes = 18;
// A row of an embedding: the microbatch's gradient is written, and then added to the sum.
constexpr double kEmbeddingGradientBytes = 8;

constexpr double kMaskBytes = 1;       // The mask of dropout, for one number.
constexpr double kStatisticBytes = 4;  // The log-sum-exp of a query in fused attention.
constexpr double kLogitBytes = 4;      // The loss keeps its input in 32 bits.

class Builder {
 public:
  Builder(const Transformer& model, const TransformerBatch& batch)
      : model_(model), batch_(batch), tokens_(batch.sequences * batch.length) {}

  std::vector<LayerWork> Build() {
    std::vector<LayerWork> layers;
    LayerWork tokens = Embedding("token embedding", model_.vocabulary);
    if (model_.positions > 0) {
      LayerWork positions = Embedding("position embedding", model_.positions);
      AddMove(tokens_ * model_.hidden * kResidualAddBytes, positions);
      if (model_.has_position_layer) {
        layers.push_back(std::move(tokens));
        layers.push_back(std::move(positions));
      } else {
        tokens.parameters += positions.parameters;
        layers.push_back(std::move(tokens));
      }
    } else {
      layers.push_back(std::move(tokens));
    }
    if (model_.kind == TransformerKind::kEncoderDecoder) {
      for (int i = 0; i < model_.layers; ++i) {
        layers.push_back(Block(fmt::format("encoder block {}", i)));
      }
      for (int i = 0; i < model_.layers; ++i) {
        LayerWork attention{.name = fmt::format("decoder attention {}", i), .is_block = true};
        // First self-attention, then attention to the encoder's output, which has the same length.
        AddAttention(attention);
        AddAttention(attention);
        LayerWork feed_forward{.name = fmt::format("decoder feed-forward {}", i), .is_block = true};
        AddFeedForward(feed_forward);
        attention.memory.input_bytes = feed_forward.memory.input_bytes =
            tokens_ * model_.hidden * kBytesPerNumber;
        layers.push_back(std::move(attention));
        layers.push_back(std::move(feed_forward));
      }
    } else {
      for (int i = 0; i < model_.layers; ++i) layers.push_back(Block(fmt::format("block {}", i)));
    }
    layers.push_back(Head());
    return layers;
  }

 private:
  double query_width() const { return model_.heads * model_.head_size; }
  double key_value_width() const { return model_.key_value_heads * model_.head_size; }
  bool IsCausal() const { return model_.kind == TransformerKind::kDecoder; }

  LayerWork Embedding(const std::string& name, double rows) const {
    LayerWork layer{.name = name, .parameters = rows * model_.hidden};
    AddMove(tokens_ * model_.hidden * kEmbeddingBytes, layer);
    layer.backward_weight.push_back(
        {.memory_bytes = rows * model_.hidden / batch_.gpus * kEmbeddingGradientBytes});
    if (model_.has_dropout) layer.memory.saved_bytes += tokens_ * model_.hidden * kMaskBytes;
    return layer;
  }

  LayerWork Block(const std::string& name) const {
    LayerWork layer{.name = name, .is_block = true};
    AddAttention(layer);
    AddFeedForward(layer);
    layer.memory.input_bytes = tokens_ * model_.hidden * kBytesPerNumber;
    return layer;
  }

  // Adds attention of `tokens_` queries to the same number of keys and values (self-attention or
  // cross-attention).
  void AddAttention(LayerWork& layer) const {
    const double queries = query_width() / batch_.gpus;
    const double key_values = key_value_width() / batch_.gpus;
    layer.parameters += model_.hidden * (2 * query_width() + 2 * key_value_width());
    if (model_.has_biases) layer.parameters += 2 * query_width() + 2 * key_value_width();
    AddMove(tokens_ * model_.hidden * kLayerNormBytes, layer);
    AddProduct({tokens_, model_.hidden, queries + 2 * key_values}, layer);
    AddMove(tokens_ * (2 * queries + 2 * key_values) * kTransposeBytes, layer);
    // Scores = queries * keys, result = scores * values.
    const double flops = 2 * tokens_ * batch_.length * queries;
    const double operands = kBytesPerNumber * tokens_ * (queries + key_values);
    if (model_.attention == AttentionKind::kFused) {
      const double computed = IsCausal() ? 0.5 : 1;
      AddActivationProduct(2 * computed * flops, 2 * operands, layer);
      layer.memory.saved_bytes += tokens_ * model_.heads / batch_.gpus * kStatisticBytes;
      // The backward pass computes the scores again.
      layer.backward_input.push_back({.flops = computed * flops});
    } else {
      const double scores = tokens_ * batch_.length * model_.heads / batch_.gpus;
      AddActivationProduct(flops, operands + kBytesPerNumber * scores, layer);
      AddMove(scores * (model_.has_dropout ? kScoreBytes : kScoreBytesWithoutDropout), layer);
      AddActivationProduct(flops, operands + kBytesPerNumber * scores, layer);
      // The output of softmax; and with dropout, its mask and its output.
      layer.memory.saved_bytes +=
          scores * (kBytesPerNumber + (model_.has_dropout ? kMaskBytes + kBytesPerNumber : 0));
    }
    // Queries, keys and values, and the input of the last product.
    layer.memory.saved_bytes += tokens_ * kBytesPerNumber * (2 * queries + 2 * key_values);
    AddProduct({tokens_, queries, model_.hidden}, layer);
    AddResidual(layer);
  }

  void AddFeedForward(LayerWork& layer) const {
    const double inward = (model_.is_gated ? 2 : 1) * model_.feed_forward;
    layer.parameters += model_.experts * model_.hidden * (inward + model_.feed_forward);
    if (model_.has_biases) layer.parameters += inward + model_.hidden;
    AddMove(tokens_ * model_.hidden * kLayerNormBytes, layer);
    const double visits = tokens_ * model_.experts_per_token;
    if (model_.experts > 1) {
      layer.parameters += model_.hidden * model_.experts;
      AddProduct({tokens_, model_.hidden, static_cast<double>(model_.experts)}, layer);
      // Tokens move to the experts and back.
      AddMove(2 * visits * model_.hidden * kTransposeBytes, layer);
    }
    const double experts = model_.experts;
    AddProduct({visits / experts, model_.hidden, inward / batch_.gpus, experts}, layer);
    AddMove(visits * model_.feed_forward / batch_.gpus * model_.activation_bytes, layer);
    AddProduct({visits / experts, model_.feed_forward / batch_.gpus, model_.hidden, experts},
               layer);
    // The inputs of the activation function and of the last product; the tokens that went to
    // experts.
    layer.memory.saved_bytes +=
        visits * (inward + model_.feed_forward) / batch_.gpus * kBytesPerNumber;
    if (model_.experts > 1) layer.memory.saved_bytes += visits * model_.hidden * kBytesPerNumber;
    AddResidual(layer);
  }

  void AddResidual(LayerWork& layer) const {
    layer.parameters += model_.hidden * (model_.has_biases ? 2 : 1);  // For the normalization.
    // The inputs of the normalization and of the first product.
    const double numbers = tokens_ * model_.hidden;
    layer.memory.saved_bytes += 2 * numbers * kBytesPerNumber;
    if (model_.has_dropout) layer.memory.saved_bytes += numbers * kMaskBytes;
    // In a ring of n GPUs, each GPU sends 2 (n - 1) / n of the sum.
    AddAllReduce(2 * (batch_.gpus - 1) / batch_.gpus * kBytesPerNumber * tokens_ * model_.hidden,
                 layer);
    AddMove(
        tokens_ * model_.hidden * (kResidualAddBytes + (model_.has_dropout ? kDropoutBytes : 0)),
        layer);
  }

  LayerWork Head() const {
    LayerWork layer{.name = "head", .parameters = model_.hidden * (model_.has_biases ? 2 : 1)};
    AddMove(tokens_ * model_.hidden * kLayerNormBytes, layer);
    if (model_.kind == TransformerKind::kEncoder) {
      layer.parameters += model_.hidden * model_.hidden;
      AddProduct({tokens_, model_.hidden, model_.hidden}, layer);
      AddMove(tokens_ * model_.hidden * (model_.activation_bytes + kLayerNormBytes), layer);
      // The inputs of that product and of the activation function.
      layer.memory.saved_bytes += 2 * tokens_ * model_.hidden * kBytesPerNumber;
    }
    (model_.ties_head ? layer.memory.shared_parameters : layer.parameters) +=
        model_.hidden * model_.vocabulary;
    // The inputs of the normalization, of the product, and of the loss.
    layer.memory.saved_bytes += tokens_ * (2 * model_.hidden * kBytesPerNumber +
                                           model_.vocabulary / batch_.gpus * kLogitBytes);
    AddProduct({tokens_, model_.hidden, model_.vocabulary / batch_.gpus}, layer);
    AddMove(tokens_ * model_.vocabulary / batch_.gpus * kLossBytes, layer, 1);
    return layer;
  }

  const Transformer& model_;
  const TransformerBatch& batch_;
  double tokens_;
};

// ---- Wide-ResNet ----

constexpr int kBlocks[] = {3, 4, 23, 3};
constexpr double kClasses = 1000;
// How many bytes of one number a kernel reads and writes. Batch normalization reads a number twice,
// for the statistics and to apply them, and writes it once.
constexpr double kBatchNormBytes = 6;
constexpr double kReluBytes = 4;
constexpr double kShortcutAddBytes = 6;

struct Convolution {
  double in = 0;  // Channels.
  double out = 0;
  double kernel = 1;
  double out_pixels = 0;  // Pixels of one image.
};

// Models a convolution as the product of the unrolled input and the weights. The unrolled input
// stays in caches, so only the input itself passes through memory.
void AddConvolution(const Convolution& conv, double images, double stride, LayerWork& layer) {
  const double weights = conv.in * conv.out * conv.kernel * conv.kernel;
  const double rows = images * conv.out_pixels;
  const KernelWork kernel{.flops = 2 * rows * weights,
                          .memory_bytes = kBytesPerNumber * (rows * stride * stride * conv.in +
                                                             weights + rows * conv.out)};
  layer.parameters += weights + 2 * conv.out;  // 2 * conv.out are those of the normalization.
  layer.forward.push_back(kernel);
  layer.backward_input.push_back(kernel);
  layer.backward_weight.push_back(kernel);
  layer.backward_weight.push_back({.memory_bytes = kAccumulateBytes * weights});
  AddMove(rows * conv.out * kBatchNormBytes, layer);
  // The inputs of the convolution and of the normalization. The output of a ReLU is the input of
  // the next convolution.
  const double input_bytes = kBytesPerNumber * rows * stride * stride * conv.in;
  layer.memory.saved_bytes += input_bytes + kBytesPerNumber * rows * conv.out;
  if (layer.memory.input_bytes == 0) layer.memory.input_bytes = input_bytes;
}

}  // namespace

std::vector<LayerWork> TransformerLayers(const Transformer& model, const TransformerBatch& batch) {
  return Builder(model, batch).Build();
}

std::vector<LayerWork> WideResNet101Layers(int width, int images) {
  std::vector<LayerWork> layers;
  LayerWork stem{.name = "stem"};
  AddConvolution({.in = 3, .out = 64, .kernel = 7, .out_pixels = 112 * 112}, images, 2, stem);
  stem.backward_input.erase(stem.backward_input.begin());  // No layer needs the image's gradient.
  AddMove(images * 112.0 * 112 * 64 * (kReluBytes + 2.5), stem);  // 2.5: pooling to a quarter.
  layers.push_back(std::move(stem));

  double in = 64;
  double in_side = 56;
  for (int group = 0; group < 4; ++group) {
    const double planes = 64 << group;
    const double inner = planes * width;
    const double out = 4 * planes;
    const double side = 56 >> group;
    for (int block = 0; block < kBlocks[group]; ++block) {
      const double stride = in_side / side;
      LayerWork layer{.name = fmt::format("block {}.{}", group, block), .is_block = true};
      AddConvolution({in, inner, 1, in_side * in_side}, images, 1, layer);
      AddConvolution({inner, inner, 3, side * side}, images, stride, layer);
      AddConvolution({inner, out, 1, side * side}, images, 1, layer);
      AddMove(images * inner * (in_side * in_side + side * side) * kReluBytes, layer);
      AddMove(images * out * side * side * (kShortcutAddBytes + kReluBytes), layer);
      if (in != out) AddConvolution({in, out, 1, side * side}, images, stride, layer);
      layers.push_back(std::move(layer));
      in = out;
      in_side = side;
    }
  }
  LayerWork& last = layers.back();
  last.parameters += in * kClasses + kClasses;
  AddProduct({static_cast<double>(images), in, kClasses}, last);
  return layers;
}

}  // namespace perseus::synthetic
