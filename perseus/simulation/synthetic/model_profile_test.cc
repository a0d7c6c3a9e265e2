#include "perseus/simulation/synthetic/model_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "perseus/planning/profile/curve.h"

namespace perseus::synthetic {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ModelProfileKind = InstructionKind;

// A row of the published measurements.
ModelProfileSpec Gpt3Xl() {
  ModelProfileSpec spec;
  spec.workload = {.model = "gpt3-xl", .microbatch_size = 8, .sequence_length = 1024};
  spec.gpu = *FindGpuRoofline("a100-pcie");
  spec.pp_ranks = 4;
  spec.boundaries = {0, 8, 14, 21, 27};
  return spec;
}

double Bytes(const std::optional<std::int64_t>& bytes) { return static_cast<double>(*bytes); }

double TimeS(const profile::Profile& profile, int pp_rank, ModelProfileKind kind, int chunk = 0) {
  return ToSeconds(profile.Find(pp_rank, chunk, kind)->options.front().time);
}

TEST(ModelProfile, EveryModelOnEveryGpuCanBePlanned) {
  for (const ModelInfo& model : ModelZoo()) {
    for (const GpuRoofline& gpu : GpuRooflines()) {
      ModelProfileSpec spec;
      spec.workload.model = model.name;
      spec.gpu = gpu;
      spec.pp_ranks = 4;
      const auto profile = SynthesizeModelProfile(spec);
      ASSERT_TRUE(profile) << profile.error().Message();
      EXPECT_EQ(profile->pp_ranks(), 4);
      for (const profile::ProfileEntry& entry : profile->entries()) {
        const auto& options = entry.options;
        EXPECT_EQ(options.front().frequency_mhz, gpu.highest_frequency_mhz);
        EXPECT_TRUE(std::is_sorted(options.begin(), options.end(), [](auto& a, auto& b) {
          return a.time < b.time;
        })) << model.name;
        for (const profile::Option& option : options) {
          // Values are rounded to a nanosecond and a microjoule.
          EXPECT_LE(option.energy_j, gpu.power_limit_w * (ToSeconds(option.time) + 1e-9) + 1e-6);
        }
        EXPECT_GT(profile::ParetoFront(options, gpu.blocking_power_w).size(), 10u) << model.name;
      }
    }
  }
}

// docs/hardware.md: transformers' LlamaDecoderLayer in bf16 with flash attention, one sequence of
// 8,192 tokens, at the power limit of 700 W.
TEST(ModelProfile, EightLayersOfLlamaTakeWhatTheyTookOnAnH100) {
  ModelProfileSpec spec;
  spec.workload = {.model = "llama3-8b", .sequence_length = 8192};
  spec.gpu = *FindGpuRoofline("h100-sxm");
  spec.pp_ranks = 3;
  spec.boundaries = {0, 1, 9, 34};
  const auto profile = SynthesizeModelProfile(spec);
  ASSERT_TRUE(profile) << profile.error().Message();
  const auto fastest = [&](InstructionKind kind) {
    return profile->Find(1, 0, kind)->options.front();
  };
  const auto forward = fastest(InstructionKind::kForward);
  const auto backward = fastest(InstructionKind::kBackward);
  EXPECT_NEAR(ToSeconds(forward.time) / 64.4e-3, 1, 0.02);
  EXPECT_NEAR(ToSeconds(backward.time) / 135.3e-3, 1, 0.02);
  EXPECT_NEAR(forward.energy_j / 44.3, 1, 0.03);
  EXPECT_NEAR(backward.energy_j / 95.0, 1, 0.03);
}

// Korthikanti et al., arXiv 2205.05198, equation 2: a block keeps s b h (10 + 24 / t + 5 a s / (h
// t)) bytes with tensor parallelism of degree t, and 2 s b h if its activations are recomputed.
TEST(ModelMemory, ABlockOfGptKeepsWhatThePublishedFormulaSays) {
  ModelProfileSpec spec;
  spec.workload = {.model = "gpt3-175b", .microbatch_size = 2, .tensor_parallel = 8};
  spec.gpu = *FindGpuRoofline("a100-sxm");
  spec.pp_ranks = 3;
  spec.boundaries = {0, 2, 98, 99};  // The embeddings, the 96 blocks, the head.
  constexpr double s = 2048, b = 2, h = 12288, a = 96, t = 8, v = 50257;
  const auto memory = ModelMemory(spec);
  ASSERT_TRUE(memory) << memory.error().Message();
  ASSERT_EQ(memory->parts.size(), 3u);
  EXPECT_EQ(memory->source, profile::MemorySource::kModeled);
  EXPECT_NEAR(Bytes(memory->parts[1].activation_bytes),
              96 * s * b * h * (10 + 24 / t + 5 * a * s / (h * t)), 1);
  // Section 4.1 on the layers around the blocks. The dropout of each embedding keeps a mask.
  EXPECT_NEAR(Bytes(memory->parts[2].activation_bytes), 4 * s * b * h * (1 + v / h / t), 1);
  spec.recomputes_activations = true;
  EXPECT_NEAR(Bytes(ModelMemory(spec)->parts[1].activation_bytes), 96 * 2 * s * b * h, 1);
  // 12 h^2 parameters of a block without its biases and normalizations, 16 bytes each.
  EXPECT_NEAR(Bytes(memory->parts[1].model_bytes) / (96 * 12 * h * h / t * 16), 1, 1e-3);
  // The head shares the embedding of tokens, and has its own copy.
  EXPECT_NEAR(Bytes(memory->parts[2].model_bytes) / (v * h / t * 16), 1, 1e-3);
}

TEST(ModelMemory, EveryStageOfEveryModelTakesSome) {
  for (const ModelInfo& model : ModelZoo()) {
    ModelProfileSpec spec;
    spec.workload.model = model.name;
    spec.gpu = *FindGpuRoofline("a100-sxm");
    spec.pp_ranks = 4;
    const auto memory = ModelMemory(spec);
    ASSERT_TRUE(memory) << memory.error().Message();
    double parameters = 0;
    for (const profile::StageMemory::Part& part : memory->parts) {
      EXPECT_GT(*part.activation_bytes, 1 << 20) << model.name;
      parameters += Bytes(part.model_bytes) / 16;
    }
    // With a copy of the embedding on the last stage.
    EXPECT_GT(parameters, 0.97 * model.published_parameters) << model.name;
    EXPECT_LT(parameters, 1.3 * model.published_parameters) << model.name;
  }
}

TEST(ModelProfile, BoundariesAreTheLayersOfAStage) {
  const auto profile = SynthesizeModelProfile(Gpt3Xl());
  ASSERT_TRUE(profile);
  // Two embeddings and six blocks, six blocks, seven, five and the head.
  EXPECT_GT(TimeS(*profile, 0, ModelProfileKind::kForward),
            TimeS(*profile, 1, ModelProfileKind::kForward));
  EXPECT_NEAR(TimeS(*profile, 2, ModelProfileKind::kForward) /
                  TimeS(*profile, 1, ModelProfileKind::kForward),
              7 / 6.0, 1e-6);
}

TEST(ModelProfile, RecomputationRunsTheBlocksAgain) {
  ModelProfileSpec spec = Gpt3Xl();
  spec.gpu.power_limit_w = 1e4;  // Without a power limit, times add up.
  const auto kept = SynthesizeModelProfile(spec);
  spec.recomputes_activations = true;
  const auto again = SynthesizeModelProfile(spec);
  ASSERT_TRUE(kept && again);
  // Stage 1 has only blocks.
  EXPECT_NEAR(
      TimeS(*again, 1, ModelProfileKind::kBackward),
      TimeS(*kept, 1, ModelProfileKind::kBackward) + TimeS(*kept, 1, ModelProfileKind::kForward),
      3e-9);
  EXPECT_EQ(TimeS(*again, 1, ModelProfileKind::kForward),
            TimeS(*kept, 1, ModelProfileKind::kForward));
}

TEST(ModelProfile, PartsOfTheBackwardPassAddUpAndRecomputeIsForward) {
  ModelProfileSpec spec = Gpt3Xl();
  spec.gpu.power_limit_w = 1e4;
  spec.kinds = {ModelProfileKind::kForward, ModelProfileKind::kBackward,
                ModelProfileKind::kBackwardInput, ModelProfileKind::kBackwardWeight,
                ModelProfileKind::kRecompute};
  const auto profile = SynthesizeModelProfile(spec);
  ASSERT_TRUE(profile) << profile.error().Message();
  EXPECT_NEAR(TimeS(*profile, 3, ModelProfileKind::kBackward),
              TimeS(*profile, 3, ModelProfileKind::kBackwardInput) +
                  TimeS(*profile, 3, ModelProfileKind::kBackwardWeight),
              3e-9);
  EXPECT_EQ(TimeS(*profile, 3, ModelProfileKind::kRecompute),
            TimeS(*profile, 3, ModelProfileKind::kForward));
}

//             rank 0     rank 1
//   chunk 0   part 0 --> part 1
//   chunk 1   part 3 <-- part 2     a V; a loop has part 2 on rank 0 and part 3 on rank 1
TEST(ModelProfile, ChunksFollowTheModelAroundTheV) {
  ModelProfileSpec spec = Gpt3Xl();
  const auto stages = SynthesizeModelProfile(spec);
  spec.pp_ranks = 2;
  spec.chunks = 2;
  const auto loop = SynthesizeModelProfile(spec);
  spec.placement = ChunkPlacement::kV;
  const auto vee = SynthesizeModelProfile(spec);
  ASSERT_TRUE(stages && loop && vee);
  EXPECT_EQ(TimeS(*loop, 1, ModelProfileKind::kForward, 1),
            TimeS(*stages, 3, ModelProfileKind::kForward));
  EXPECT_EQ(TimeS(*vee, 0, ModelProfileKind::kForward, 1),
            TimeS(*stages, 3, ModelProfileKind::kForward));
  EXPECT_EQ(TimeS(*vee, 1, ModelProfileKind::kForward, 1),
            TimeS(*stages, 2, ModelProfileKind::kForward));
}

TEST(ModelProfile, FieldsOutOfRangeAreErrorsWithARemedy) {
  const auto message = [](const std::function<void(ModelProfileSpec&)>& change) {
    ModelProfileSpec spec = Gpt3Xl();
    change(spec);
    const auto profile = SynthesizeModelProfile(spec);
    return profile ? "no error" : profile.error().Message();
  };
  using Spec = ModelProfileSpec;
  EXPECT_THAT(message([](Spec& spec) { spec.pp_ranks = 0; }), HasSubstr("0 stages of 1 chunks"));
  EXPECT_THAT(message([](Spec& spec) { spec.pp_ranks = 3; }),
              HasSubstr("make 4 parts, but 3 parts"));
  EXPECT_THAT(message([](Spec& spec) {
                spec.boundaries = {};
                spec.pp_ranks = 28;
              }),
              HasSubstr("cannot fill 28 parts"));
  EXPECT_THAT(message([](Spec& spec) { spec.workload = {.model = "x"}; }), HasSubstr("is unknown"));
  EXPECT_THAT(message([](Spec& spec) { spec.kinds = {}; }), HasSubstr("no instruction kind"));
  EXPECT_THAT(message([](Spec& spec) { spec.gpu.power_limit_w = 50; }),
              HasSubstr("raise the limit"));
  EXPECT_THAT(message([](Spec& spec) {
                spec.gpu.power_limit_w = std::numeric_limits<double>::quiet_NaN();
              }),
              HasSubstr("power limit of nan"));
}

std::string MessageFor(std::vector<int> boundaries, int layers, int parts) {
  const auto checked = CheckBoundaries(boundaries, layers, parts);
  return checked ? "no error" : checked.error().Message();
}

TEST(LayerPartition, BoundariesGoFromTheFirstLayerToTheLast) {
  EXPECT_EQ(MessageFor({0, 8, 14, 21, 27}, 27, 4), "no error");
  EXPECT_THAT(MessageFor({0, 8, 27}, 27, 4), HasSubstr("make 2 parts, but 4 parts"));
  EXPECT_THAT(MessageFor({}, 27, 4), HasSubstr("make 0 parts"));
  EXPECT_THAT(MessageFor({0, 8, 8, 21, 27}, 27, 4), HasSubstr("8 is followed by 8"));
  EXPECT_THAT(MessageFor({0, 14, 8, 21, 27}, 27, 4), HasSubstr("14 is followed by 8"));
  EXPECT_THAT(MessageFor({0, 8, 14, 21, 26}, 27, 4), HasSubstr("use 0 to 27"));
  EXPECT_THAT(MessageFor({1, 8, 14, 21, 27}, 27, 4), HasSubstr("use 0 to 27"));
}

TEST(LayerPartition, UniformGivesTheRemainderToTheFirst) {
  EXPECT_THAT(*UniformBoundaries(27, 4), ElementsAre(0, 7, 14, 21, 27));
  EXPECT_THAT(*UniformBoundaries(3, 3), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(UniformBoundaries(3, 4).error().Message(), HasSubstr("cannot fill 4 parts"));
}

//   embedding  embedding  block  block  block  block  head
//   0          1          2      3      4      5      6
//   |---------- part 0 ---------------||------ part 1 ------|
TEST(LayerPartition, UniformBlocksCountOnlyBlocks) {
  std::vector<LayerWork> layers(7);
  for (std::size_t i = 2; i < 6; ++i) layers[i].is_block = true;
  EXPECT_THAT(*UniformBlockBoundaries(layers, 2), ElementsAre(0, 4, 7));
  EXPECT_THAT(*UniformBlockBoundaries(layers, 1), ElementsAre(0, 7));
  EXPECT_FALSE(UniformBlockBoundaries(layers, 5));
}

}  // namespace
}  // namespace perseus::synthetic
