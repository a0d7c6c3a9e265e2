#include "perseus/planning/profile/stage_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(ParseStageMemory, TakesTheGreatestValueOfAStage) {
  const auto memory = ParseStageMemory(kWithMemory, "p.csv").value();
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->parts, (std::vector<StageMemory::Part>{{0, 0, 1200, 5000}, {1, 0, 800, 4000}}));
  EXPECT_EQ(memory->source, MemorySource::kMeasured);
}

TEST(ParseStageMemory, ItsColumnsAreNoKnobs) {
  const auto profile = ParseProfile(kWithMemory, "p.csv");
  ASSERT_TRUE(profile) << profile.error().Message();
  EXPECT_THAT(profile->other_knob_names(), IsEmpty());
  EXPECT_EQ(profile->entries().size(), 4U);
}

TEST(ParseStageMemory, IsEmptyWithoutValues) {
  EXPECT_EQ(ParseStageMemory("stage,instruction,frequency,time,energy\n0,forward,1410,x,24\n", "p"),
            std::nullopt);
  EXPECT_EQ(ParseStageMemory("stage,instruction,frequency,time,energy,activation_bytes\n"
                             "0,forward,1410,0.05,24,\n",
                             "p"),
            std::nullopt);
}

TEST(ParseStageMemory, RefusesOtherValues) {
  const auto message = [](std::string_view values) {
    const std::string text =
        "stage,instruction,frequency,time,energy,activation_bytes,memory_source\n"
        "0,forward,1410,0.05,24," +
        std::string(values) + "\n";
    EXPECT_EQ(ParseProfile(text, "p.csv").error().Message(),
              ParseStageMemory(text, "p.csv").error().Message());
    return ParseStageMemory(text, "p.csv").error().Message();
  };
  EXPECT_THAT(message("-1,measured"),
              HasSubstr("p.csv:2: activation_bytes \"-1\" is out of range"));
  EXPECT_THAT(message("700 MiB,measured"), HasSubstr("\"700 MiB\" is not a number"));
  EXPECT_THAT(message("700,guessed"), HasSubstr("memory_source \"guessed\" is unknown"));
}

TEST(AddMemory, WritesWhatIsRead) {
  const Profile profile = *ParseProfile(kWithMemory, "p.csv");
  const StageMemory memory{.parts = {{0, 0, 1200, {}}, {1, 0, 800, 4000}},
                           .source = MemorySource::kModeled};
  const std::string text = AddMemory(profile, FormatProfile(profile), memory);
  EXPECT_THAT(text, HasSubstr("\n0,forward,1410,0.05,24,1200,,modeled\n"));
  EXPECT_EQ(*ParseStageMemory(text, "p.csv").value(), memory);
  EXPECT_EQ(FormatProfile(*ParseProfile(text, "p.csv")), FormatProfile(profile));
}

}  // namespace
}  // namespace perseus::profile
