// Tests of CheckPlausible: each likely mistake is named, and a plausible job has no warning.
#include "perseus/planning/job/plausibility.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "perseus/base/file.h"
#include "tests/support/temporary_directory.h"

namespace perseus::job {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr const char* kHeader = "stage,instruction,frequency,time,energy\n";
// At 1400 MHz, each draws 400 W.
constexpr const char* kForward = "0,forward,1400,0.010,4\n0,forward,1200,0.012,3.2\n";
constexpr const char* kBackward = "0,backward,1400,0.020,8\n0,backward,1200,0.024,6.4\n";

class Plausibility : public testing::Test {
 protected:
  Plausibility() {
    flags_.profile = "profile.csv";
    flags_.schedule = "1f1b";
    flags_.microbatches = 2;
    flags_.blocking_power_w = 80;
  }

  Result<std::vector<std::string>> Check(const std::string& csv) {
    flags_.profile_text = csv;
    auto job = LoadJob(flags_);
    if (!job) throw std::runtime_error(job.error().Message());
    return CheckPlausible(*job);
  }
  std::vector<std::string> Warnings(const std::string& csv) {
    const auto warnings = Check(csv);
    EXPECT_TRUE(warnings) << warnings.error().Message();
    return warnings.value_or(std::vector<std::string>());
  }
  std::string Refusal(const std::string& csv) {
    const auto warnings = Check(csv);
    EXPECT_FALSE(warnings);
    if (warnings) return "";
    EXPECT_EQ(warnings.error().kind, ErrorKind::kInput);
    return warnings.error().Message();
  }

  JobSettings flags_;
};

TEST_F(Plausibility, APlausibleJobHasNoWarning) {
  EXPECT_THAT(Warnings(std::string(kHeader) + kForward + kBackward), IsEmpty());
  flags_.gpus_per_stage = 8;
  EXPECT_THAT(Warnings(std::string(kHeader) + kForward + kBackward), IsEmpty());
  flags_.profile_text.reset();
  flags_.profile = std::string(PERSEUS_SOURCE_DIR) + "/examples/gpt3-like_a100_pp8.csv";
  const auto job = LoadJob(flags_);
  ASSERT_TRUE(job) << job.error().Message();
  EXPECT_THAT(*CheckPlausible(*job), IsEmpty());
}

TEST_F(Plausibility, UnitsThatAreMixedUpAreRefused) {
  EXPECT_THAT(Refusal(std::string(kHeader) + "0,forward,1400,10,4\n0,forward,1200,12,3.2\n"
                                             "0,backward,1400,20,8\n0,backward,1200,24,6.4\n"),
              AllOf(HasSubstr("stage 0 forward: draws 0.4 W at 1400 MHz"),
                    HasSubstr("the times are probably in milliseconds")));
  EXPECT_THAT(Refusal(std::string(kHeader) + kForward +
                      "0,backward,1400,0.020,8000\n0,backward,1200,0.024,6400\n"),
              AllOf(HasSubstr("stage 0 backward: draws 4e+05 W"),
                    HasSubstr("the energies are probably in millijoules")));
}

TEST_F(Plausibility, TimesInMicrosecondsAreRefused) {
  EXPECT_THAT(
      Refusal(std::string(kHeader) + "0,forward,1400,10000,4\n0,forward,1200,12000,3.2\n"
                                     "0,backward,1400,20000,8\n0,backward,1200,24000,6.4\n"),
      HasSubstr("the times are probably in microseconds"));
}

TEST_F(Plausibility, ARowInAnotherUnitIsRefusedWithItsLine) {
  const TemporaryDirectory directory;
  const auto path = directory / "row.csv";
  flags_.profile = path.string();
  const auto with_row = [&](std::string_view row) {
    std::string csv = std::string(kHeader) + kBackward + kForward + std::string(row) + "\n";
    EXPECT_TRUE(WriteFileAtomically(path, csv));
    return csv;
  };
  EXPECT_THAT(Warnings(with_row("0,forward,1000,0.014,2.9")), IsEmpty());
  // In milliseconds, a thousandth of the time, and in millijoules.
  EXPECT_THAT(Refusal(with_row("0,forward,1000.0,14,2.9")),
              StartsWith(path.string() + ":6: stage 0 forward: at 1000 MHz, 14 s and 0.207143 W do "
                                         "not fit the next clocks: a lower clock takes longer"));
  for (const char* row :
       {"0,forward,1000,0.000014,2.9", "0,forward,1000,0.014,2900", "0,forward,1000,0.14,2.9",
        "0,forward,1000,0.014,0.29", "0,forward,1000,0.0014,0.29", "0,forward,1300,0.11,3.6",
        // Those at maximum frequency are no exception.
        "0,forward,1500,9,4.4", "0,forward,1500,0.09,4.4"}) {
    EXPECT_THAT(Refusal(with_row(row)), StartsWith(path.string() + ":6: stage 0 forward: at 1"))
        << row;
  }
  EXPECT_THAT(Refusal(with_row("0,forward,11,0.013,3")), HasSubstr(":6: stage 0 forward: has a"));
  // Off by 40 %.
  EXPECT_THAT(Warnings(with_row("0,forward,1300,0.0154,3.6")),
              ElementsAre(StartsWith(path.string() + ":6: stage 0 forward: at 1300 MHz")));
}

TEST_F(Plausibility, ForwardAndBackwardOfOneStageThatAreSwapped) {
  const auto csv = [](double first_forward, double first_backward) {
    std::string text = kHeader;
    for (int stage = 0; stage < 4; ++stage) {
      const double times[] = {stage == 0 ? first_forward : 0.010,
                              stage == 0 ? first_backward : 0.020};
      for (int kind = 0; kind < 2; ++kind) {
        for (const double slower : {1.0, 1.2}) {
          text += fmt::format("{},{},{},{},{}\n", stage, kind == 0 ? "forward" : "backward",
                              slower == 1 ? 1400 : 1200, times[kind] * slower,
                              times[kind] * 400 / slower);
        }
      }
    }
    return text;
  };
  EXPECT_THAT(Warnings(csv(0.010, 0.020)), IsEmpty());
  EXPECT_THAT(Warnings(csv(0.020, 0.010)),
              ElementsAre(AllOf(HasSubstr("stage 0 forward: takes longer than the backward"),
                                HasSubstr("are forward and backward swapped?"))));
  EXPECT_THAT(Warnings(csv(0.011, 0.010)), IsEmpty());
}

// The row of a further knob is that with its value.
TEST_F(Plausibility, TheLineOfARowIsThatOfItsKnobs) {
  const TemporaryDirectory directory;
  const auto path = directory / "knobs.csv";
  flags_.profile = path.string();
  const std::string csv =
      "stage,instruction,frequency,time,energy,sm_count\n"
      "0,forward,1400,0.010,4,108\n0,forward,1200,0.012,3.2,108\n0,forward,1000,0.014,2.9,108\n"
      "0,forward,1400,0.020,4,40\n0,forward,1200,0.024,3.2,40\n0,forward,1000,0.28,2.9,40\n"
      "0,backward,1400,0.020,8,108\n0,backward,1200,0.024,6.4,108\n";
  ASSERT_TRUE(WriteFileAtomically(path, csv));
  EXPECT_THAT(Refusal(csv), StartsWith(path.string() + ":7: stage 0 forward: at 1000 MHz"));
}

TEST_F(Plausibility, TheLineIsFoundInAFileOfASpreadsheet) {
  const TemporaryDirectory directory;
  const auto path = directory / "sheet.csv";
  flags_.profile = path.string();
  const std::string csv =
      "# measured\nStage;Pass;Clock_MHz;Time_ms;Energy\n;;;;\n"
      "0;F;1400,0;10;4\n0;F;1200;12;3,2\n0;F;1000;280;2,9\n0;B;1400;20;8\n0;B;1200;24;6,4\n";
  ASSERT_TRUE(WriteFileAtomically(path, csv));
  EXPECT_THAT(Refusal(csv), StartsWith(path.string() + ":6: stage 0 forward: at 1000 MHz"));
}

// The stages of the profile are those of the model, two on each pp_rank.
TEST_F(Plausibility, TheLineOfAStageOfTheModelIsThatOfItsNumber) {
  const TemporaryDirectory directory;
  const auto path = directory / "stages.csv";
  flags_.profile = path.string();
  flags_.schedule = "interleaved-1f1b";
  flags_.pp_ranks = 2;
  flags_.chunks = 2;
  std::string csv = kHeader;
  for (int stage = 0; stage < 4; ++stage) {
    for (const char* kind : {"forward", "backward"}) {
      csv += fmt::format("{0},{1},1400,0.010,4\n{0},{1},1200,0.012,3.2\n", stage, kind);
      csv += fmt::format("{},{},1000,{},2.9\n", stage, kind, stage == 3 ? 0.28 : 0.014);
    }
  }
  ASSERT_TRUE(WriteFileAtomically(path, csv));
  // Stage 3 begins in line 20.
  EXPECT_THAT(Refusal(csv), StartsWith(path.string() + ":22: "));
}

TEST_F(Plausibility, InstructionsOfOneJobAreAlike) {
  // Energies of eight GPUs.
  EXPECT_THAT(
      Warnings(std::string(kHeader) + "0,forward,1400,0.010,32\n0,forward,1200,0.012,25.6\n"
                                      "0,backward,1400,0.020,64\n0,backward,1200,0.024,51.2\n"),
      ElementsAre(HasSubstr("3200 W is much for one GPU")));
  const std::string second =
      "1,forward,1400,0.010,32\n1,forward,1200,0.012,25.6\n"
      "1,backward,1400,0.020,8\n1,backward,1200,0.024,6.4\n";
  EXPECT_THAT(Warnings(std::string(kHeader) + kForward + kBackward + second),
              ElementsAre(HasSubstr("stage 1 forward: draws 3.2e+03 W at 1400 MHz, but most "
                                    "instructions draw about 400 W")));
  EXPECT_THAT(Warnings(std::string(kHeader) + kForward +
                       "0,backward,1300,0.021,7.5\n0,backward,1200,0.024,6.4\n"),
              ElementsAre(HasSubstr("stage 0 backward: was measured up to 1300 MHz, but stage 0 "
                                    "forward up to 1400 MHz")));
  // At a power limit of 400 W, the backward reaches a lower clock.
  EXPECT_THAT(Warnings(std::string(kHeader) + kForward +
                       "0,backward,1300,0.021,8.3\n0,backward,1200,0.024,6.4\n"),
              IsEmpty());
}

TEST_F(Plausibility, TimesAndEnergiesThatAreBothTooLargeGiveAWarning) {
  EXPECT_THAT(Warnings(std::string(kHeader) + "0,forward,1400,10,4000\n0,forward,1200,12,3200\n"
                                              "0,backward,1400,20,8000\n0,backward,1200,24,6400\n"),
              ElementsAre(HasSubstr("stage 0 backward: 20 s is long for a microbatch")));
}

TEST_F(Plausibility, TimesBesideTheProfileAreSeconds) {
  const std::string csv = std::string(kHeader) + kForward + kBackward;
  flags_.p2p_s = 0.4;
  flags_.all_reduce_s = 50;
  flags_.switch_cost = schedule::SwitchCost{.stall = 5'000'000'000, .energy_j = 0};
  EXPECT_THAT(Warnings(csv),
              ElementsAre(StartsWith("a transfer (p2p) takes 0.4 s, longer than the longest "
                                     "computation (0.02 s)"),
                          StartsWith("the all-reduce takes 50 s, longer than all computations"),
                          StartsWith("the stall of a clock change (switch cost) takes 5 s")));
}

TEST_F(Plausibility, ClocksInAnotherUnitAreRefused) {
  EXPECT_THAT(Refusal(std::string(kHeader) + "0,forward,2,0.010,4\n0,forward,1,0.012,3.2\n"
                                             "0,backward,2,0.020,8\n0,backward,1,0.024,6.4\n"),
              AllOf(HasSubstr("stage 0 forward: has a frequency of 2 MHz"),
                    HasSubstr("the frequencies are probably in GHz")));
}

TEST_F(Plausibility, BlockingPowerIsLessThanBusyPower) {
  const std::string csv = std::string(kHeader) + kForward + kBackward;
  flags_.blocking_power_w = 400;
  EXPECT_THAT(Refusal(csv), HasSubstr("the blocking power of 400 W is not below"));
  flags_.blocking_power_w = 330;
  EXPECT_THAT(Warnings(csv),
              testing::Contains(StartsWith("the blocking power of 330 W is 82 % of the power")));
  flags_.blocking_power_w = 0;
  EXPECT_THAT(Warnings(csv), IsEmpty());
  flags_.blocking_power_w = 0.075;
  EXPECT_THAT(
      Warnings(csv),
      testing::Contains(StartsWith("a blocking power of 0.075 W is less than any GPU draws")));
}

// At 1200 MHz, the instructions draw 267 W.
TEST_F(Plausibility, BlockingPowerIsLessThanThePowerAtTheLowestClock) {
  const std::string csv = std::string(kHeader) + kForward + kBackward;
  flags_.blocking_power_w = 260;
  EXPECT_THAT(Warnings(csv), IsEmpty());
  flags_.blocking_power_w = 270;
  EXPECT_THAT(Warnings(csv),
              ElementsAre(HasSubstr("stage 0 forward: draws 266.7 W at 1200 MHz, less than the "
                                    "blocking power of 270 W")));
}

TEST_F(Plausibility, RepeatsThatDifferMuchAreNamed) {
  const std::string csv = std::string(kHeader) + kForward + kBackward;
  EXPECT_THAT(Warnings(csv + "0,forward,1400,0.0115,4\n"), IsEmpty());
  EXPECT_THAT(Warnings(csv + "0,forward,1400,0.0136,4\n"),
              ElementsAre("profile.csv:6: the time of stage 0 forward at 1400 MHz is 0.0136 s here "
                          "and 0.01 s on line 2, 36 % more or less; plans use the mean (measure it "
                          "again, or remove the wrong row)"));
}

TEST_F(Plausibility, AMeasuredColumnIsNotASetting) {
  const auto csv = [&](const char* name, double fast, double slow) {
    return fmt::format(
        "stage,instruction,frequency,time,energy,{}\n0,forward,1400,0.010,4,{}\n"
        "0,forward,1200,0.012,3.2,{}\n0,backward,1400,0.020,8,{}\n0,backward,1200,0.024,6.4,{}\n",
        name, fast, slow, fast, slow);
  };
  EXPECT_THAT(Refusal(csv("drawn", 398, 270)),
              HasSubstr("column \"drawn\" is a measurement, not a setting: it has one value for "
                        "each frequency, about energy / time"));
  EXPECT_THAT(Refusal(csv("temperature_c", 61, 58)), HasSubstr("\"temperature_c\""));
  // A limit of the power is a setting.
  EXPECT_THAT(Warnings(csv("power_limit_w", 400, 300)),
              ElementsAre(HasSubstr("column \"power_limit_w\" is taken for a setting")));
  EXPECT_THAT(Warnings(csv("sm_count", 8, 4)),
              ElementsAre(HasSubstr("column \"sm_count\" is taken for a setting")));
  EXPECT_THAT(Warnings(csv("sm_count", 8, 8)), IsEmpty());
  // A sweep of a setting has several values at the same clock.
  EXPECT_THAT(Warnings("stage,instruction,frequency,time,energy,sm_count\n"
                       "0,forward,1400,0.010,4,8\n0,forward,1400,0.012,3.2,4\n"
                       "0,backward,1400,0.020,8,8\n0,backward,1400,0.024,6.4,4\n"),
              IsEmpty());
}

TEST_F(Plausibility, InterleavingNeedsChunks) {
  flags_.schedule = "interleaved-1f1b";
  EXPECT_THAT(Warnings(std::string(kHeader) + kForward + kBackward),
              ElementsAre(HasSubstr("interleaved-1f1b has one chunk on each pp_rank")));
}

TEST_F(Plausibility, AnInstructionWithoutAChoiceIsNamedOnceWithItsLine) {
  const TemporaryDirectory directory;
  const auto path = directory / "flat.csv";
  const std::string csv = std::string(kHeader) + kBackward +
                          "0,forward,1400,0.010,4\n0,forward,1200,0.010,3.2\n"
                          "1,forward,1400,0.010,4\n"
                          "1,backward,1400,0.010,4\n1,backward,1200,0.012,4.9\n";
  ASSERT_TRUE(WriteFileAtomically(path, csv));
  flags_.profile = path.string();
  EXPECT_THAT(
      Warnings(csv),
      ElementsAre(path.string() +
                  ":4: stage 0 forward: all measured options take the same time, so every "
                  "plan runs it at 1200 MHz; 2 further instructions have one useful option: "
                  "stage 1 forward, stage 1 backward"));
  // Without the file, the line is unknown.
  flags_.profile = "pipe.csv";
  EXPECT_THAT(Warnings(csv), ElementsAre(StartsWith("pipe.csv: stage 0 forward: all measured")));
}

}  // namespace
}  // namespace perseus::job
