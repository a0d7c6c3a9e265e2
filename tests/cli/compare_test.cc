// Tests `perseus compare` with a policy that fails.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class CompareTest : public CommandTest {};

// An instruction of 0.1 ms is shorter than the default unit of the published planner.
TEST_F(CompareTest, AFailedPolicyDoesNotStopTheOthers) {
  std::string rows = "stage,instruction,frequency,time,energy\n";
  for (const char* kind : {"0,forward", "0,backward", "1,forward", "1,backward"}) {
    for (const char* option : {"1400,0.0001,0.09", "1000,0.00012,0.06", "800,0.00015,0.05"}) {
      rows += std::string(kind) + "," + option + "\n";
    }
  }
  Write("short.csv", rows);
  const std::string job = "compare short.csv --schedule 1f1b --microbatches 4 --blocking-power 70 ";
  EXPECT_THAT(RunWell(job + "--straggler 20"),
              AllOf(HasSubstr("EnvPipe"), ContainsRegex("PerseusPublished +failed"),
                    HasSubstr("takes less than the unit of 0.001 s")));
  const auto policies = RunJson(job + "--json")["policies"];
  ASSERT_EQ(policies.size(), 6U);
  EXPECT_TRUE(policies[4]["results"].empty());
  EXPECT_EQ(policies[5]["results"].size(), 1U);
  // With an explicit unit, the same failure is an error.
  ExpectComplaint(Run(job + "--unit 2"), 2, "takes less than the unit of 0.002 s");
}

// The published rule is min(T*, T'). So for any straggler, its slowest plan is the plan of least
// energy. The energies are measured, but T* comes from the fit, so the two differ a little.
TEST_F(CompareTest, PerseusPublishedIsNeverSlowerThanItsLeastEnergy) {
  const auto comparison =
      RunJson("compare '" PERSEUS_SOURCE_DIR
              "/examples/gpt3-like_a100_pp8.csv' --schedule 1f1b "
              "--microbatches 8 --blocking-power 83.64 --straggler 30% --straggler 1.6x");
  EXPECT_EQ(comparison["format"], "perseus-comparison");
  EXPECT_EQ(comparison["version"], 1);
  const auto& published = comparison["policies"][4];
  ASSERT_EQ(published["policy"], "PerseusPublished");
  double least_j = published["points"][0]["energy_j"];
  for (const auto& point : published["points"]) {
    least_j = std::min(least_j, point["energy_j"].get<double>());
  }
  EXPECT_LT(published["points"].back()["energy_j"].get<double>(), 1.001 * least_j);
  EXPECT_EQ(published["results"][1]["straggler"].dump(), "1.3");
  EXPECT_EQ(published["results"][1]["setting"], published["points"].back()["setting"]);
  EXPECT_EQ(published["results"][2]["setting"], published["points"].back()["setting"]);
}

class CompareSchedulesTest : public CommandTest {
 protected:
  CompareSchedulesTest() { MakeProfile(); }
  const std::string job_ = "compare profile.csv --microbatches 8 --blocking-power 84 ";
};

TEST_F(CompareSchedulesTest, HasOneBaselineAndTheMemory) {
  const auto comparison = RunJson(job_ + "--schedule 1f1b --schedule gpipe --json");
  EXPECT_EQ(comparison["format"], "perseus-schedule-comparison");
  const auto& schedules = comparison["schedules"];
  ASSERT_EQ(schedules.size(), 2U);
  EXPECT_EQ(comparison["baseline"]["energy_j"], schedules[0]["energy_at_maximum_j"]);
  EXPECT_EQ(schedules[0]["in_flight"].dump(), "[4,3,2,1]");
  EXPECT_EQ(schedules[1]["in_flight"].dump(), "[8,8,8,8]");
  for (const auto& one : schedules) {
    const double energy_j = one["energy_j"];
    EXPECT_DOUBLE_EQ(one["saving"],
                     1 - energy_j / comparison["baseline"]["energy_j"].get<double>());
    EXPECT_LE(one["time_s"].get<double>(), std::max(comparison["baseline"]["time_s"].get<double>(),
                                                    one["time_at_maximum_s"].get<double>()));
  }
  EXPECT_THAT(RunWell(job_ + "--schedule 1f1b --schedule gpipe"), HasSubstr("  8 8 8 8\n"));
}

TEST_F(CompareSchedulesTest, TheSchedulesMayBeAList) {
  EXPECT_EQ(RunWell(job_ + "--schedule 1f1b,gpipe"),
            RunWell(job_ + "--schedule 1f1b --schedule gpipe"));
}

TEST_F(CompareSchedulesTest, ShowsTheBytesOfActivations) {
  const std::string compare = job_ + "--schedule 1f1b --schedule gpipe ";
  EXPECT_THAT(RunWell(compare), Not(HasSubstr("GiB")));
  const std::string given = compare + "--activation-memory 512 ";
  EXPECT_THAT(RunWell(given),
              AllOf(HasSubstr(" 4 3 2 1  2.00 GiB\n"), HasSubstr(" 8 8 8 8  4.00 GiB\n")));
  const auto comparison = RunJson(given + "--json");
  EXPECT_EQ(comparison["schedules"][0]["activation_bytes"].dump(),
            "[2147483648,1610612736,1073741824,536870912]");
  ExpectComplaint(Run(compare + "--activation-memory 512,512"), 2, "--activation-memory");

  RunWell("synth --model gpt3-xl --gpu a100-pcie --stages 4 -o model.csv");
  EXPECT_THAT(RunWell("compare model.csv --microbatches 8 --blocking-power 60 --schedule 1f1b "
                      "--schedule gpipe"),
              HasSubstr("most: activations on the GPU that holds most"));
}

TEST_F(CompareSchedulesTest, PlansTheFirstScheduleAsThePlanVerbDoes) {
  const auto comparison = RunJson(job_ + "--schedule 1f1b --schedule gpipe --json");
  const auto plan =
      RunJson("plan profile.csv --schedule 1f1b --microbatches 8 --blocking-power 84 --json");
  EXPECT_EQ(comparison["schedules"][0]["energy_j"], plan["plans"][0]["energy_j"]);
}

TEST_F(CompareSchedulesTest, DrawsOneFrontierAndAllTimelines) {
  const Outcome drawn = Run(job_ +
                            "--schedule 1f1b --schedule gpipe --figure frontier.svg "
                            "--figure schedules.svg --figure orders.svg");
  if (drawn.err.find("no figures") != std::string::npos) GTEST_SKIP() << drawn.err;
  ASSERT_EQ(drawn.status, 0) << drawn.err;
  EXPECT_THAT(Read("frontier.svg"),
              AllOf(HasSubstr("1f1b at maximum frequency"), HasSubstr("gpipe, plan")));
  EXPECT_THAT(Read("schedules.svg"), AllOf(HasSubstr("1f1b, planned"), HasSubstr("gpipe, planned"),
                                           HasSubstr("in flight 4 3 2 1")));
  ExpectComplaint(Run(job_ + "--schedule 1f1b --schedule gpipe --figure memory.svg"), 2,
                  "schedules that were searched for");
}

TEST_F(CompareSchedulesTest, RefusesToInterleaveOneChunk) {
  ExpectComplaint(Run(job_ + "--schedule 1f1b --schedule interleaved-1f1b"), 2,
                  "needs several chunks on each pp_rank");
  ExpectComplaint(Run(job_ + "--schedule 1f1b --schedule gpipe --straggler 20"), 2,
                  "--straggler and --unit compare policies");
}

}  // namespace
}  // namespace perseus
