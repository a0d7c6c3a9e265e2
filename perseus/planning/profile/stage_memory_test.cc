#include "perseus/planning/profile/stage_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "perseus/planning/profile/profile.h"

namespace perseus::profile {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view kWithMemory =
    "stage,instruction,frequency,time,energy,activation_bytes,model_bytes,memory_source\n"
    "0,forward,1410,0.05,24,1000,5000,measured\n"
    "0,backward,1410,0.1,45,1200,,measured\n"
    "1,forward,1410,0.05,24,800,4000,measured\n"
    "1,backward,1410,0.1,45,,,\n";

std::optional<StageMemory> MemoryIn(std::string_view text) {
  return ParseProfile(text, "p.csv").value().memory();
}

TEST(StageMemory, TakesTheGreatestValueOfAStage) {
  const auto memory = MemoryIn(kWithMemory);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->parts, (std::vector<StageMemory::Part>{{0, 0, 1200, 5000}, {1, 0, 800, 4000}}));
  EXPECT_EQ(memory->source, MemorySource::kMeasured);
}

TEST(StageMemory, ItsColumnsAreNoKnobs) {
  const auto profile = ParseProfile(kWithMemory, "p.csv");
  ASSERT_TRUE(profile) << profile.error().Message();
  EXPECT_THAT(profile->other_knob_names(), IsEmpty());
  EXPECT_EQ(profile->entries().size(), 4U);
}

TEST(StageMemory, IsEmptyWithoutValues) {
  EXPECT_EQ(MemoryIn("stage,instruction,frequency,time,energy\n0,forward,1410,0.05,24\n"),
            std::nullopt);
  EXPECT_EQ(MemoryIn("stage,instruction,frequency,time,energy,activation_bytes\n"
                     "0,forward,1410,0.05,24,\n"),
            std::nullopt);
}

TEST(StageMemory, RefusesOtherValues) {
  const auto message = [](std::string_view values) {
    const std::string text =
        "stage,instruction,frequency,time,energy,activation_bytes,memory_source\n"
        "0,forward,1410,0.05,24," +
        std::string(values) + "\n";
    return ParseProfile(text, "p.csv").error().Message();
  };
  EXPECT_THAT(message("-1,measured"),
              HasSubstr("p.csv:2: activation_bytes \"-1\" is out of range"));
  EXPECT_THAT(message("700 MiB,measured"), HasSubstr("\"700 MiB\" is not a number"));
  EXPECT_THAT(message("700,guessed"), HasSubstr("memory_source \"guessed\" is unknown"));
}

// One pass reads the options, the noise and the memory, whichever columns are between them.
TEST(StageMemory, IsReadWithTheNoiseAndTheOptions) {
  const auto profile =
      ParseProfile(
          "memory_source,noise,stage,instruction,model_bytes,frequency,time,energy,common_noise\n"
          "modeled,0.03,0,forward,5000,1410,0.05,24,0.01\n"
          "measured,0.04,0,forward,4000,1200,0.06,20,\n",
          "p.csv")
          .value();
  ASSERT_EQ(profile.entries().size(), 1U);
  ASSERT_EQ(profile.entries()[0].options.size(), 2U);
  EXPECT_EQ(profile.entries()[0].options[1].energy_j, 20);
  ASSERT_TRUE(profile.noise());
  EXPECT_DOUBLE_EQ(profile.noise()->independent, std::sqrt((0.03 * 0.03 + 0.04 * 0.04) / 2));
  EXPECT_DOUBLE_EQ(profile.noise()->common, 0.01);
  EXPECT_EQ(profile.memory(),
            (StageMemory{.parts = {{0, 0, {}, 5000}}, .source = MemorySource::kModeled}));
}

TEST(AddMemory, WritesWhatIsRead) {
  const Profile profile = *ParseProfile(kWithMemory, "p.csv");
  const StageMemory memory{.parts = {{0, 0, 1200, {}}, {1, 0, 800, 4000}},
                           .source = MemorySource::kModeled};
  const std::string text = AddMemory(profile, FormatProfile(profile), memory);
  EXPECT_THAT(text, HasSubstr("\n0,forward,1410,0.05,24,1200,,modeled\n"));
  EXPECT_EQ(MemoryIn(text), memory);
  EXPECT_EQ(FormatProfile(*ParseProfile(text, "p.csv")), FormatProfile(profile));
}

}  // namespace
}  // namespace perseus::profile
