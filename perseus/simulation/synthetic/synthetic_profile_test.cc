#include "perseus/simulation/synthetic/synthetic_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "perseus/base/file.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::synthetic {
namespace {

using ::testing::HasSubstr;
using Kind = InstructionKind;

// A spec without randomness.
SyntheticProfileSpec PlainSpec(std::string gpu) {
  SyntheticProfileSpec spec;
  spec.gpu = std::move(gpu);
  spec.imbalance = 0;
  spec.noise = 0;
  return spec;
}

TEST(GpuModel, StaysWithinItsPowerLimit) {
  for (const GpuModel& gpu : GpuModels()) {
    const double highest = gpu.highest_frequency_mhz;
    EXPECT_GT(gpu.UnlimitedPowerW(highest), gpu.power_limit_w) << gpu.name;
    EXPECT_LT(gpu.ActualFrequencyMhz(highest), highest) << gpu.name;
    EXPECT_NEAR(gpu.UnlimitedPowerW(gpu.ActualFrequencyMhz(highest)), gpu.power_limit_w, 1e-6);
    EXPECT_EQ(gpu.ActualFrequencyMhz(gpu.lowest_frequency_mhz), gpu.lowest_frequency_mhz);
    EXPECT_LT(gpu.blocking_power_w, gpu.UnlimitedPowerW(gpu.lowest_frequency_mhz)) << gpu.name;
  }
}

TEST(SynthesizeProfile, LowerClocksAreSlowerAndTheLeastEnergyLiesBetween) {
  for (const GpuModel& gpu : GpuModels()) {
    const Result<profile::Profile> profile = SynthesizeProfile(PlainSpec(std::string(gpu.name)));
    ASSERT_TRUE(profile) << profile.error().Message();
    for (const profile::ProfileEntry& entry : profile->entries()) {
      const auto& options = entry.options;
      EXPECT_EQ(options.front().frequency_mhz, gpu.highest_frequency_mhz);
      EXPECT_EQ(options.back().frequency_mhz, gpu.lowest_frequency_mhz);
      for (std::size_t i = 1; i < options.size(); ++i) {
        const bool is_limited =
            gpu.ActualFrequencyMhz(options[i].frequency_mhz) < options[i].frequency_mhz;
        if (is_limited) {
          EXPECT_EQ(options[i].time, options[0].time);
        } else {
          EXPECT_GT(options[i].time, options[i - 1].time);
        }
      }
      const auto least = std::min_element(options.begin(), options.end(),
                                          [](const profile::Option& a, const profile::Option& b) {
                                            return a.energy_j < b.energy_j;
                                          });
      EXPECT_GT(least->frequency_mhz, gpu.lowest_frequency_mhz + 100);
      EXPECT_LT(least->frequency_mhz, gpu.highest_frequency_mhz - 100);
      EXPECT_LT(least->energy_j, 0.85 * options.front().energy_j);
      EXPECT_GT(profile::ParetoFront(options, gpu.blocking_power_w).size(), 25u);
    }
  }
}

TEST(SynthesizeProfile, TheLastStageHasTheLanguageModelHead) {
  SyntheticProfileSpec spec = PlainSpec("a100");
  spec.chunks = 2;
  spec.language_model_head = 0.1;
  const Result<profile::Profile> profile = SynthesizeProfile(spec);
  ASSERT_TRUE(profile) << profile.error().Message();
  const auto time_s = [&](int stage, int chunk) {
    return ToSeconds(profile->Find(stage, chunk, Kind::kForward)->options.front().time);
  };
  EXPECT_EQ(time_s(7, 0), time_s(0, 0));
  EXPECT_NEAR(time_s(7, 1), 1.2 * time_s(0, 1),
              2e-9);  // A tenth of a stage is a fifth of its chunk.
}

//             rank 0   rank 1   rank 2
//   chunk 0     1  ----> 2  ----> 3
//   chunk 1     6  <---- 5  <---- 4
//   chunk 2     7  ----> 8  ----> 9
TEST(SynthesizeProfile, TheHeadOfAVIsWhereTheVEnds) {
  SyntheticProfileSpec spec = PlainSpec("a100");
  spec.pp_ranks = 3;
  spec.placement = ChunkPlacement::kV;
  for (const int chunks : {1, 2, 3}) {
    spec.chunks = chunks;
    const Result<profile::Profile> profile = SynthesizeProfile(spec);
    ASSERT_TRUE(profile) << profile.error().Message();
    const Nanoseconds plain = profile->Find(1, 0, Kind::kForward)->options.front().time;
    const int head_rank = chunks == 2 ? 0 : 2;
    for (const profile::ProfileEntry& entry : profile->entries()) {
      const bool has_head = entry.pp_rank == head_rank && entry.chunk == chunks - 1;
      if (entry.kind == Kind::kForward) {
        EXPECT_EQ(entry.options.front().time > plain, has_head)
            << "stage " << entry.pp_rank << " chunk " << entry.chunk << " of " << chunks;
      }
    }
  }
}

TEST(SynthesizeProfile, PartsOfTheBackwardPassAddUpAndRecomputeIsForward) {
  SyntheticProfileSpec spec = PlainSpec("a40");
  spec.kinds = {Kind::kForward, Kind::kBackward, Kind::kBackwardInput, Kind::kBackwardWeight,
                Kind::kRecompute};
  const Result<profile::Profile> profile = SynthesizeProfile(spec);
  ASSERT_TRUE(profile) << profile.error().Message();
  const auto& whole = profile->Find(0, 0, Kind::kBackward)->options;
  const auto& input = profile->Find(0, 0, Kind::kBackwardInput)->options;
  const auto& weight = profile->Find(0, 0, Kind::kBackwardWeight)->options;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(input[i].time + weight[i].time),
                static_cast<double>(whole[i].time), 1.5);
    EXPECT_NEAR(input[i].energy_j + weight[i].energy_j, whole[i].energy_j, 1.5e-6);
  }
  const auto& forward = profile->Find(0, 0, Kind::kForward)->options;
  const auto& recompute = profile->Find(0, 0, Kind::kRecompute)->options;
  EXPECT_EQ(forward.front().time, recompute.front().time);
}

TEST(SynthesizeProfile, ImbalanceAndNoiseStayWithinTheirBounds) {
  SyntheticProfileSpec spec = PlainSpec("a100");
  const Result<profile::Profile> plain = SynthesizeProfile(spec);
  spec.imbalance = 0.1;
  spec.noise = 0.01;
  const Result<profile::Profile> noisy = SynthesizeProfile(spec);
  ASSERT_TRUE(plain && noisy);
  double sum = 0;
  double squares = 0;
  double count = 0;
  for (std::size_t e = 0; e < plain->entries().size(); ++e) {
    for (std::size_t i = 0; i < plain->entries()[e].options.size(); ++i) {
      const profile::Option& exact = plain->entries()[e].options[i];
      const profile::Option& option = noisy->entries()[e].options[i];
      const double time_ratio = static_cast<double>(option.time) / static_cast<double>(exact.time);
      EXPECT_GT(time_ratio, 0.9 * std::exp(-0.06));
      EXPECT_LT(time_ratio, 1.1 * std::exp(0.06));
      // The imbalance does not affect power, so its ratio shows only the noise.
      const double log_power = std::log(option.energy_j / exact.energy_j / time_ratio);
      sum += log_power;
      squares += log_power * log_power;
      ++count;
    }
  }
  // With 656 samples the standard error of the mean is 0.0004, and that of the deviation 0.0003.
  EXPECT_NEAR(sum / count, 0, 5 * 0.0004);
  EXPECT_NEAR(std::sqrt(squares / count), 0.01, 5 * 0.0003);
}

TEST(SynthesizeProfile, TheSeedDecidesEverything) {
  SyntheticProfileSpec spec;
  const std::string first = profile::FormatProfile(*SynthesizeProfile(spec));
  EXPECT_EQ(profile::FormatProfile(*SynthesizeProfile(spec)), first);
  spec.seed = 2;
  EXPECT_NE(profile::FormatProfile(*SynthesizeProfile(spec)), first);
}

TEST(SynthesizeProfile, ReproducesTheExample) {
  // A default spec gives the same bytes on this machine and on the one that wrote the example.
  const Result<std::string> example =
      ReadFile(std::filesystem::path(PERSEUS_SOURCE_DIR) / "examples" / "gpt3-like_a100_pp8.csv");
  ASSERT_TRUE(example) << example.error().Message();
  EXPECT_EQ(profile::FormatProfile(*SynthesizeProfile({})), *example);
}

TEST(SynthesizeProfile, FieldsOutOfRangeAreErrorsThatSayTheRange) {
  const auto message = [](auto change) {
    SyntheticProfileSpec spec;
    change(spec);
    const Result<profile::Profile> profile = SynthesizeProfile(spec);
    return profile ? "no error" : profile.error().Message();
  };
  using Spec = SyntheticProfileSpec;
  EXPECT_THAT(message([](Spec& spec) { spec.gpu = "h100"; }), HasSubstr("choose one of a100, a40"));
  EXPECT_THAT(message([](Spec& spec) { spec.pp_ranks = 0; }),
              HasSubstr("stages 0 is out of range"));
  EXPECT_THAT(message([](Spec& spec) { spec.chunks = -1; }), HasSubstr("chunks -1 is out of"));
  EXPECT_THAT(message([](Spec& spec) { spec.noise = 1; }), HasSubstr("(choose 0 to 0.3)"));
  EXPECT_THAT(message([](Spec& spec) { spec.imbalance = std::nan(""); }),
              HasSubstr("imbalance nan"));
  EXPECT_THAT(message([](Spec& spec) { spec.pp_ranks = spec.chunks = 1'000'000; }),
              HasSubstr("too many"));
  EXPECT_THAT(message([](Spec& spec) { spec.kinds = {}; }), HasSubstr("no instruction kind"));
  EXPECT_THAT(message([](Spec& spec) { spec.kinds = {Kind::kLoad}; }), HasSubstr("time of load"));
  EXPECT_THAT(message([](Spec& spec) {
                spec.kinds = {Kind::kForward, Kind::kForward};
              }),
              HasSubstr("forward is given twice"));
}

}  // namespace
}  // namespace perseus::synthetic
