// Tests `perseus synth`, especially --model, which makes profiles of published architectures.
#include <gmock/gmock.h>

#include <utility>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kGpt =
    "synth --model gpt3-xl --gpu a100-pcie --stages 4 --microbatch-size 8 --sequence-length 1024 "
    "--boundaries 0,8,14,21,27";

class SynthModelTest : public CommandTest {};

TEST_F(SynthModelTest, MakesAProfileThatCanBePlanned) {
  RunWell(std::string(kGpt) + " -o gpt.csv");
  EXPECT_EQ(RunWell(kGpt), Read("gpt.csv"));
  const auto summary =
      RunJson("plan gpt.csv --schedule 1f1b --microbatches 8 --blocking-power 83.64 --json");
  EXPECT_FALSE(summary.empty());
}

TEST_F(SynthModelTest, EveryFlagChangesTheProfile) {
  const std::string base = "synth --model gpt3-xl --stages 4";
  const std::string profile = RunWell(base);
  EXPECT_EQ(RunWell(base + " --gpu a100-sxm --microbatch-size 1 --sequence-length 2048"), profile);
  for (const char* flag :
       {"--gpu h100-sxm", "--microbatch-size 2", "--sequence-length 1024", "--tensor-parallel 2",
        "--boundaries blocks", "--power-limit 300", "--recompute-activations"}) {
    EXPECT_TRUE(RunWell(base + " " + flag) != profile)
        << flag;  // EXPECT_NE would print thousands of rows.
  }
  EXPECT_EQ(RunWell(base + " --boundaries layers"), profile);
  // These flags are only for a profile without an architecture.
  const std::string synthetic = RunWell("synth --stages 2 --chunks 2");
  for (const char* flag : {"--gpu a40", "--seed 8", "--noise 0", "--imbalance 0", "--head 0.2",
                           "--fold", "--instructions forward,backward,recompute"}) {
    EXPECT_TRUE(RunWell(std::string("synth --stages 2 --chunks 2 ") + flag) != synthetic) << flag;
  }
}

TEST_F(SynthModelTest, MakesProfilesForVShapedSchedules) {
  RunWell(
      "synth --model llama3-8b --stages 2 --chunks 2 --fold --sequence-length 512 "
      "--instructions forward,backward_input,backward_weight -o v.csv");
  RunWell("plan v.csv --schedule zb-v --microbatches 4 --chunks 2 --blocking-power 84");
}

TEST_F(SynthModelTest, NamesMayHaveCapitalLetters) {
  const std::string rest = " --stages 4 -o ";
  RunWell("synth --model gpt3-xl --gpu a100-sxm" + rest + "small.csv");
  RunWell("synth --model GPT3-XL --gpu A100-SXM" + rest + "large.csv");
  EXPECT_TRUE(Read("small.csv") == Read("large.csv"));
  const std::string job = "plan small.csv --microbatches 4 --blocking-power 84 --no-frontier ";
  EXPECT_EQ(RunWell(job + "--schedule 1F1B"), RunWell(job + "--schedule 1f1b"));
}

// `script` runs the program in a terminal.
TEST_F(SynthModelTest, OnATerminalItSaysWhatTheRowsAre) {
  const auto on_terminal = [&](const std::string& flags) {
    return RunWell("--version && script -qec \"'" PERSEUS_PROGRAM "' synth " + flags +
                   "\" /dev/null");
  };
  EXPECT_THAT(on_terminal(""),
              HasSubstr("perseus: this profile has 8 stages of a synthetic model on a100 GPUs"));
  EXPECT_THAT(on_terminal("--model gpt3-xl --stages 4"),
              HasSubstr("perseus: this profile has 4 stages of gpt3-xl on a100-sxm GPUs"));
  EXPECT_THAT(RunWell("synth"), Not(HasSubstr("perseus")));  // RunWell expects no message, too.
}

TEST_F(SynthModelTest, ListsTheModels) {
  EXPECT_THAT(RunWell("synth --list-models"),
              AllOf(HasSubstr("gpt3-175b"), HasSubstr("Mixtral 8x7B"), HasSubstr("images")));
}

// The tests of simulation/synthetic have the values that a model refuses.
TEST_F(SynthModelTest, WhatIsNotForAModelIsOneLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"--model gpt3-xl --stages 28", "cannot fill 28 parts"},
      {"--model gpt3-xl --boundaries 0,x,27", "\"x\" is not a layer number"},
      {"--model gpt3-xl --boundaries 0,,27", "\"\" is not a layer number"},
      {"--model gpt3-xl --boundaries 0,99999999999", "is not a layer"},
      {"--model gpt3-xl --gpu a100",
       "a100 exists only without --model (choose one of a40, a100-pcie, a100-sxm, h100-sxm, or "
       "remove --model)"},
      {"--gpu h100-sxm",
       "h100-sxm exists only with --model (choose one of a100, a40, or add --model)"},
      {"--model gpt3-xl --noise 0", "remove it"},
      {"--microbatch-size 2", "--microbatch-size needs --model"},
      {"--recompute-activations", "needs --model"}};
  for (const auto& [arguments, complaint] : cases) {
    ExpectComplaint(Run(std::string("synth -o bad.csv ") + arguments), 2, complaint);
    EXPECT_THAT(Files("."), IsEmpty());
  }
}

// The names of examples are the names that people choose for their measurements. A script may write
// them in the very layout of this verb.
TEST_F(SynthModelTest, NoOtherFileIsOverwritten) {
  RunWell("synth --gpu a100 --stages 2 -o profile.csv");
  RunWell("synth --gpu a100 --stages 2 -o profile.csv");
  const std::string measured =
      "stage,instruction,frequency,time,energy\n0,forward,1410,0.049191747,24.123457\n"
      "0,forward,1200,0.057812345,21.123457\n0,backward,1410,0.123456789,48.123457\n"
      "0,backward,1200,0.143456789,44.123457\n";
  Write("profile.csv", measured);
  ExpectComplaint(Run("synth --gpu a100 --stages 2 -o profile.csv"), 2,
                  "profile.csv: exists with other contents");
  EXPECT_EQ(Read("profile.csv"), measured);
  Write("empty.csv", "\n");
  RunWell("synth --gpu a100 --stages 2 -o empty.csv");
  Write("mine/notes.txt", "mine");
  ExpectComplaint(Run("synth --gpu a100 -o mine"), 2,
                  "mine: is a directory (give a file, such as mine/profile.csv)");
  EXPECT_THAT(Files("mine"), testing::ElementsAre("notes.txt"));
}

}  // namespace
}  // namespace perseus
