#include "perseus/simulation/synthetic/wide_resnet_layers.h"

#include <fmt/format.h>

#include "perseus/simulation/synthetic/layer_kernels.h"

namespace perseus::synthetic {
namespace {

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
  double out_pixels = 0;  // Of one image.
};

// Counts a convolution as the product of the unrolled input and the weights. The unrolled input
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
  layer.backward_weight.push_back({.memory_bytes = 3 * kBytesPerNumber * weights});
  AddMove(rows * conv.out * kBatchNormBytes, layer);
  // The inputs of the convolution and of the normalization. The output of a ReLU is the input of
  // the next convolution.
  const double input_bytes = kBytesPerNumber * rows * stride * stride * conv.in;
  layer.memory.saved_bytes += input_bytes + kBytesPerNumber * rows * conv.out;
  if (layer.memory.input_bytes == 0) layer.memory.input_bytes = input_bytes;
}

}  // namespace

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
