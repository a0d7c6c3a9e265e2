// Tests `perseus partition`, from layers to a profile that can be planned.
#include <gmock/gmock.h>

#include <algorithm>
#include <utility>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kLayers = "'" PERSEUS_SOURCE_DIR "/examples/gpt-layers.csv'";
constexpr const char* kFlags = " --stages 4 --microbatches 8 --blocking-power 70 ";

class PartitionTest : public CommandTest {};

TEST_F(PartitionTest, ShowsTheSplitsAndHowManyItTried) {
  EXPECT_THAT(OneLine(RunWell("partition " + kLayers + kFlags)),
              AllOf(HasSubstr("imbalance"), HasSubstr("balanced   0,8,14,20,27"),
                    HasSubstr("fastest    0,9,15,21,27"), HasSubstr("energy     0,9,15,21,27"),
                    HasSubstr("All 30 splits that may be as fast were tried")));
}

TEST_F(PartitionTest, ThePrintedCommandGivesThePredictedPlan) {
  for (const char* split : {"balanced", "fastest", "energy"}) {
    SCOPED_TRACE(split);
    const std::string arguments =
        "partition " + kLayers + kFlags + "--gpus-per-stage 2 -o 'my profile.csv' --split " + split;
    const auto partition = RunJson(arguments);
    const auto& predicted = partition[split]["plan"];
    const std::string command = partition["plan_command"];
    EXPECT_THAT(RunWell(arguments), HasSubstr("To plan them as above:\n  " + command + "\n"));
    ASSERT_THAT(command, StartsWith("perseus plan 'my profile.csv' "));
    const auto summary = RunJson(command.substr(std::string("perseus ").size()));
    for (const char* key : {"time_s", "energy_j"}) {
      EXPECT_EQ(summary["baseline"][key], partition[split]["baseline"][key]);
    }
    const auto& planned = summary["plans"].back();
    EXPECT_EQ(planned["deadline_s"], predicted["deadline_s"]);
    EXPECT_EQ(planned["time_s"], predicted["time_s"]);
    EXPECT_EQ(planned["energy_j"], predicted["energy_j"]);
  }
}

// A stage of embeddings takes the same time at every clock.
TEST_F(PartitionTest, AStageThatNoClockSlowsIsPlannedAsItIs) {
  RunWell("partition " + kLayers + " --stages 27 --microbatches 8 --blocking-power 70 -o p.csv");
  const Outcome planned =
      Run("plan p.csv --schedule 1f1b --microbatches 8 --blocking-power 70 --no-frontier");
  EXPECT_EQ(planned.status, 0);
  EXPECT_THAT(planned.err, StartsWith("perseus: warning: p.csv:2: stage 0 forward: all measured "
                                      "options take the same time, so every plan runs it at "));
  EXPECT_EQ(std::ranges::count(planned.err, '\n'), 1) << planned.err;
}

TEST_F(PartitionTest, TheEnergySplitIsWrittenByDefault) {
  RunWell("partition " + kLayers + kFlags + "-o default.csv");
  RunWell("partition " + kLayers + kFlags + "-o energy.csv --split energy");
  RunWell("partition " + kLayers + kFlags + "-o balanced.csv --split balanced");
  EXPECT_TRUE(Read("default.csv") ==
              Read("energy.csv"));  // EXPECT_EQ would print hundreds of rows.
  EXPECT_FALSE(Read("default.csv") == Read("balanced.csv"));
}

TEST_F(PartitionTest, JsonHasTheWholeAnswer) {
  const auto partition = RunJson("partition " + kLayers + kFlags + "--gpus-per-stage 2");
  EXPECT_THAT(partition["balanced"]["boundaries"], ElementsAre(0, 8, 14, 20, 27));
  EXPECT_EQ(partition["balanced"]["stage_times_s"].size(), 4U);
  EXPECT_EQ(partition["tried_all"], true);
  EXPECT_LE(partition["energy"]["plan"]["time_s"], partition["fastest"]["baseline"]["time_s"]);
  EXPECT_LE(partition["lower_bound_j"], partition["energy"]["plan"]["energy_j"]);
}

// The tests of the readers have the layers and splits that a reader refuses.
TEST_F(PartitionTest, BadInputIsOneLineAndWritesNothing) {
  std::string rows = "layer,instruction,frequency,time,energy\n";
  for (const char* layer : {"0", "1", "2"}) {
    for (const char* kind : {"forward", "backward"}) {
      rows += std::string(layer) + "," + kind + ",1400,0.010,4\n";
      rows += std::string(layer) + "," + kind + ",1200,0.012,3.2\n";
    }
  }
  Write("good.csv", rows);
  Write("gap.csv", rows + "4,forward,1400,0.01,4\n");
  const std::string job = " --stages 2 --microbatches 8 --blocking-power 70 ";
  const std::pair<std::string, const char*> cases[] = {
      {"gap.csv" + job + "-o p.csv", "gap.csv: layer 3 is missing"},
      {"good.csv --stages 4 --microbatches 8 --blocking-power 70 -o p.csv",
       "good.csv: 3 layers cannot fill 4 stages (choose 1 to 3 stages)"},
      {"good.csv" + job + "--split energy", "add -o PROFILE.csv"},
      {"good.csv" + job + "--split even", "even"},
      {"good.csv --microbatches 8 --blocking-power 70", "--stages"},
      {job, "layers"}};
  for (const auto& [arguments, complaint] : cases) {
    SCOPED_TRACE(arguments);
    ExpectComplaint(Run("partition " + arguments), 2, complaint);
    EXPECT_THAT(Files("."), ElementsAre("gap.csv", "good.csv"));
  }
}

}  // namespace
}  // namespace perseus
