// Tests of the profile of layers, and of the sums that make a stage.
#include "perseus/planning/profile/layer_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

namespace perseus::profile {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kLayerProfileHeader = "layer,instruction,frequency,time,energy\n";
// Three layers at two clocks. The clocks of layer 1 are in the other order.
const std::string kRows =
    "0,forward,1400,0.001,1\n0,forward,1000,0.002,0.5\n"
    "0,backward,1400,0.010,10\n0,backward,1000,0.020,5\n"
    "1,forward,1000,0.005,2\n1,forward,1400,0.004,4\n"
    "1,backward,1000,0.050,20\n1,backward,1400,0.040,40\n"
    "2,forward,1400,0.007,7\n2,forward,1000,0.008,6\n"
    "2,backward,1400,0.070,70\n2,backward,1000,0.080,60\n";

TEST(LayerProfile, AStageIsTheSumOfItsLayers) {
  const auto layers = ParseLayers(kLayerProfileHeader + kRows, "l.csv");
  ASSERT_TRUE(layers) << layers.error().Message();
  EXPECT_EQ(LayerCount(*layers), 3);
  const int boundaries[] = {0, 1, 3};
  const Profile stages = StageProfile(*layers, boundaries);
  EXPECT_EQ(stages.pp_ranks(), 2);
  const ProfileEntry* entry = stages.Find(1, 0, InstructionKind::kForward);
  ASSERT_NE(entry, nullptr);
  ASSERT_EQ(entry->options.size(), 2U);
  EXPECT_EQ(entry->options[0].frequency_mhz, 1400);
  EXPECT_EQ(entry->options[0].time, 11'000'000);
  EXPECT_EQ(entry->options[0].energy_j, 11);
  EXPECT_EQ(entry->options[1].time, 13'000'000);
  EXPECT_EQ(entry->options[1].energy_j, 8);
  EXPECT_TRUE(ParseProfile(FormatProfile(stages), "stages.csv"));
}

TEST(LayerProfile, TheTimeOfALayerIsTheTimeOfItsInstructionsAtTheHighestClock) {
  const auto layers = ParseLayers(kLayerProfileHeader + kRows, "l.csv");
  ASSERT_TRUE(layers);
  const InstructionKind both[] = {InstructionKind::kForward, InstructionKind::kBackward};
  const auto times = LayerTimes(*layers, both);
  ASSERT_TRUE(times);
  EXPECT_THAT(*times, ElementsAre(11'000'000, 44'000'000, 77'000'000));
  const InstructionKind recompute[] = {InstructionKind::kRecompute};
  EXPECT_THAT(LayerTimes(*layers, recompute).error().Message(),
              HasSubstr("l.csv: layer 0 has no recompute"));
}

TEST(LayerProfile, RefusesAProfileOfStagesAndParseProfileRefusesLayers) {
  EXPECT_THAT(ParseProfile(kLayerProfileHeader + kRows, "l.csv").error().Message(),
              HasSubstr("perseus partition"));
  EXPECT_THAT(ParseLayers("stage,instruction,frequency,time,energy\n", "p.csv").error().Message(),
              HasSubstr("p.csv:1: a profile of layers has no column \"stage\""));
}

struct BadLayers {
  std::string name;
  std::string text;
  std::string message;
};

void PrintTo(const BadLayers& bad, std::ostream* out) { *out << bad.name; }

class BadLayersTest : public testing::TestWithParam<BadLayers> {};

TEST_P(BadLayersTest, SaysWhereAndWhatToDo) {
  const auto layers = ParseLayers(GetParam().text, "l.csv");
  ASSERT_FALSE(layers);
  EXPECT_THAT(layers.error().Message(), HasSubstr(GetParam().message));
  EXPECT_EQ(layers.error().Message().find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadLayersTest,
    testing::Values(
        BadLayers{"Gap", kLayerProfileHeader + kRows + "4,forward,1400,0.1,1\n",
                  "l.csv: layer 3 is missing, but layer 4 exists (add its rows, or number the "
                  "layers 0, 1, ..."},
        BadLayers{"MissingClock", kLayerProfileHeader + kRows + "2,forward,1200,0.0075,6.5\n",
                  "l.csv: layer 0 lacks forward at 1200 MHz, which layer 2 has"},
        BadLayers{"MissingClockOfALaterLayer",
                  kLayerProfileHeader + kRows.substr(0, kRows.find("2,backward,1000")),
                  "layer 2 lacks backward at 1000 MHz, which layer 0 has"},
        BadLayers{"MissingInstruction",
                  kLayerProfileHeader + kRows.substr(0, kRows.find("2,backward,1400")),
                  "layer 2 lacks backward, which layer 0 has"},
        BadLayers{"InstructionOfALaterLayer",
                  kLayerProfileHeader + kRows + "1,recompute,1400,0.1,1\n",
                  "layer 0 lacks recompute, which layer 1 has"},
        BadLayers{"TruncatedRow", kLayerProfileHeader + kRows + "3,forward,14",
                  "l.csv:14: the row has 3 fields, but the header has 5"},
        BadLayers{"NotALayer", kLayerProfileHeader + "one,forward,1400,0.1,1\n",
                  "l.csv:2: layer \"one\" is not a number"},
        BadLayers{"RepeatsDiffer", kLayerProfileHeader + kRows + "2,forward,1400,0.1,7\n",
                  "l.csv:14: the time of layer 2 forward at 1400 MHz"},
        BadLayers{"Knob", "layer,instruction,frequency,time,energy,sm_count\n",
                  "a profile of layers has no column \"sm_count\""},
        BadLayers{"MissingColumn", "layer,instruction,frequency,time\n",
                  "column \"energy\" is missing (expected the header layer,"},
        BadLayers{"TooMany", kLayerProfileHeader + "999999,forward,1400,0.1,1\n",
                  "layer 0 is missing"},
        BadLayers{"Empty", "", "with the header layer,instruction"}),
    [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace perseus::profile
