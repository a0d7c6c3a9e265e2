#include "perseus/simulation/synthetic/model_zoo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace perseus::synthetic {
namespace {

using ::testing::HasSubstr;

double Flops(const std::vector<KernelWork>& kernels) {
  return std::accumulate(kernels.begin(), kernels.end(), 0.0,
                         [](double sum, const KernelWork& kernel) { return sum + kernel.flops; });
}

double Bytes(const std::vector<KernelWork>& kernels) {
  return std::accumulate(
      kernels.begin(), kernels.end(), 0.0,
      [](double sum, const KernelWork& kernel) { return sum + kernel.memory_bytes; });
}

double AllReduceBytes(const std::vector<KernelWork>& kernels) {
  return std::accumulate(
      kernels.begin(), kernels.end(), 0.0,
      [](double sum, const KernelWork& kernel) { return sum + kernel.all_reduce_bytes; });
}

LayerWork LayerNamed(const ModelWorkload& workload, std::string_view name) {
  const auto layers = LayersOf(workload);
  for (const LayerWork& layer : *layers) {
    if (layer.name == name) return layer;
  }
  ADD_FAILURE() << workload.model << " has no layer " << name;
  return {};
}

std::string ModelZooMessageFor(const ModelWorkload& workload) {
  const auto layers = LayersOf(workload);
  return layers ? "no error" : layers.error().Message();
}

TEST(ModelZoo, ParametersAreWithinTwoPercentOfThePublishedCount) {
  for (const ModelInfo& model : ModelZoo()) {
    double parameters = 0;
    const auto layers = LayersOf({.model = std::string(model.name)});
    for (const LayerWork& layer : *layers) {
      parameters += layer.parameters;
    }
    EXPECT_NEAR(parameters / model.published_parameters, 1, 0.02) << model.name;
  }
}

TEST(ModelZoo, LayersAreThoseThatThePublishedMeasurementsCount) {
  const std::map<std::string, std::size_t> counts = {{"gpt3-xl", 27},
                                                     {"bloom-3b", 32},
                                                     {"bert-huge-uncased", 26},
                                                     {"t5-3b", 74},
                                                     {"wide-resnet101_8", 34}};
  for (const auto& [name, count] : counts) {
    EXPECT_EQ(LayersOf({.model = name})->size(), count) << name;
  }
}

// A block of GPT-3 1.3B: 2,048 hidden units, 4 sequences of 1,024 tokens.
TEST(ModelZoo, FlopsOfAGpt3BlockMatchACountByHand) {
  const LayerWork block =
      LayerNamed({.model = "gpt3-xl", .microbatch_size = 4, .sequence_length = 1024}, "block 5");
  const double tokens = 4 * 1024;
  // Queries, keys, values: 3 h^2; output: h^2; feed-forward: 8 h^2; twice that in flops. Scores and
  // their product with the values: 2 * 2 * length * h.
  const double weights = 12.0 * 2048 * 2048;
  const double attention = 4.0 * 1024 * 2048;
  EXPECT_DOUBLE_EQ(Flops(block.forward), tokens * (2 * weights + attention));
  EXPECT_DOUBLE_EQ(Flops(block.backward_input), tokens * (2 * weights + 2 * attention));
  EXPECT_DOUBLE_EQ(Flops(block.backward_weight), tokens * 2 * weights);
  // Weights and biases of the four products (4h and 5h), two normalizations.
  EXPECT_DOUBLE_EQ(block.parameters, weights + 9.0 * 2048 + 4 * 2048);
  // The scores of 16 heads go through memory: 31 bytes each, and 2 at each of the two products.
  EXPECT_GT(Bytes(block.forward), tokens * 1024 * 16 * 35);
}

TEST(ModelZoo, TheHeadIsAProductWithTheVocabulary) {
  const LayerWork head = LayerNamed({.model = "bloom-3b", .sequence_length = 1024}, "head");
  EXPECT_DOUBLE_EQ(Flops(head.forward), 2.0 * 1024 * 2560 * 250880);
  EXPECT_LT(head.parameters, 1e4);  // The head shares its parameters with the embedding.
  const LayerWork untied = LayerNamed({.model = "llama3-8b"}, "head");
  EXPECT_DOUBLE_EQ(untied.parameters, 4096.0 * 128256 + 4096);
}

TEST(ModelZoo, T5sDecoderAlsoAttendsToTheEncoder) {
  const ModelWorkload workload = {.model = "t5-3b", .microbatch_size = 4};
  const double tokens = 4 * 512;
  const double attention = 2 * 4.0 * 1024 * 4096 + 4.0 * 512 * 4096;  // Flops of a token.
  const double feed_forward = 2 * 2.0 * 1024 * 16384;
  EXPECT_DOUBLE_EQ(Flops(LayerNamed(workload, "encoder block 0").forward),
                   tokens * (attention + feed_forward));
  EXPECT_DOUBLE_EQ(Flops(LayerNamed(workload, "decoder attention 0").forward),
                   tokens * 2 * attention);
  EXPECT_DOUBLE_EQ(Flops(LayerNamed(workload, "decoder feed-forward 0").forward),
                   tokens * feed_forward);
}

TEST(ModelZoo, ATokenVisitsTwoExpertsButAllAreRead) {
  const LayerWork block = LayerNamed({.model = "mixtral-8x7b", .sequence_length = 1024}, "block 0");
  const double projections = 4096.0 * (2 * 4096 + 2 * 1024);
  const double expert = 3 * 4096.0 * 14336;
  const double attention = 0.5 * 4 * 1024 * 4096;  // Causal, fused.
  EXPECT_DOUBLE_EQ(Flops(block.forward),
                   1024 * (2 * (projections + 2 * expert + 4096 * 8) + attention));
  EXPECT_GT(Bytes(block.forward), 2 * 8 * expert);
}

// ResNet101's first block of the last group: 1 x 1 on 14 x 14, then 3 x 3 and 1 x 1 on 7 x 7, and
// the shortcut; inner channels 8 times ResNet's 512.
TEST(ModelZoo, FlopsOfAWideResNetBlockMatchACountByHand) {
  const LayerWork block =
      LayerNamed({.model = "wide-resnet101_8", .microbatch_size = 2}, "block 3.0");
  const double flops =
      2 * (14.0 * 14 * 1024 * 4096 + 7.0 * 7 * (9.0 * 4096 * 4096 + 4096.0 * 2048 + 1024.0 * 2048));
  EXPECT_DOUBLE_EQ(Flops(block.forward), 2 * flops);
  EXPECT_DOUBLE_EQ(Flops(block.backward_input) + Flops(block.backward_weight), 2 * 2 * flops);
}

TEST(ModelZoo, TensorParallelismDividesProductsAndAddsAllReduces) {
  const LayerWork whole = LayerNamed({.model = "gpt3-175b"}, "block 0");
  const LayerWork part = LayerNamed({.model = "gpt3-175b", .tensor_parallel = 8}, "block 0");
  EXPECT_DOUBLE_EQ(Flops(part.forward), Flops(whole.forward) / 8);
  EXPECT_GT(Bytes(part.forward), Bytes(whole.forward) / 8);
  EXPECT_EQ(AllReduceBytes(whole.forward), 0);
  // Two sums of 2,048 tokens x 12,288 numbers of two bytes, 7/8 of them sent twice.
  EXPECT_DOUBLE_EQ(AllReduceBytes(part.forward), 2 * 2 * 7.0 / 8 * 2 * 2048 * 12288);
  EXPECT_DOUBLE_EQ(AllReduceBytes(part.backward_input), AllReduceBytes(part.forward));
  EXPECT_EQ(part.parameters, whole.parameters);
}

TEST(ModelZoo, UnsupportedModelsAreErrorsWithARemedy) {
  EXPECT_THAT(ModelZooMessageFor({.model = "gpt5"}), HasSubstr("choose one of gpt3-xl, gpt3-2.7b"));
  EXPECT_THAT(ModelZooMessageFor({.model = "gpt3-xl", .microbatch_size = 0}),
              HasSubstr("microbatch size 0 is out of range"));
  EXPECT_THAT(ModelZooMessageFor({.model = "gpt3-xl", .sequence_length = -1}),
              HasSubstr("sequence length -1 is out of range"));
  EXPECT_THAT(ModelZooMessageFor({.model = "gpt3-xl", .tensor_parallel = 3}),
              HasSubstr("a divisor"));
  EXPECT_THAT(ModelZooMessageFor({.model = "wide-resnet101_8", .sequence_length = 8}),
              HasSubstr("leave the sequence length out"));
  EXPECT_THAT(ModelZooMessageFor({.model = "wide-resnet101_8", .tensor_parallel = 2}),
              HasSubstr("no tensor parallelism"));
}

}  // namespace
}  // namespace perseus::synthetic
