// `perseus compare`: a policy that cannot be asked.
#include <gmock/gmock.h>

#include "program.h"

namespace perseus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CompareTest : public ProgramTest {};

// An instruction of 0.1 ms is shorter than the unit that is the default.
TEST_F(CompareTest, OnePolicyThatFailsLeavesTheOthers) {
  std::string rows = "stage,instruction,frequency,time,energy\n";
  for (const char* kind : {"0,forward", "0,backward", "1,forward", "1,backward"}) {
    for (const char* option : {"1400,0.0001,0.09", "1000,0.00012,0.06", "800,0.00015,0.05"}) {
      rows += std::string(kind) + "," + option + "\n";
    }
  }
  Write("short.csv", rows);
  const std::string job = "compare short.csv --schedule 1f1b --microbatches 4 --blocking-power 70 ";
  EXPECT_THAT(RunWell(job + "--straggler 1.2"),
              AllOf(HasSubstr("EnvPipe"), HasSubstr("PerseusPublished               failed"),
                    HasSubstr("takes less than the unit of 0.001 s")));
  const auto policies = RunJson(job + "--json")["policies"];
  ASSERT_EQ(policies.size(), 6U);
  EXPECT_TRUE(policies[4]["results"].empty());
  EXPECT_EQ(policies[5]["results"].size(), 1U);
  // Asked for, it is an error.
  ExpectComplaint(Run(job + "--unit 2"), 2, "takes less than the unit of 0.002 s");
}

TEST_F(CompareTest, AUnitThatIsTooSmallIsRefused) {
  MakeProfile();
  ExpectComplaint(Run("compare profile.csv --schedule 1f1b --microbatches 12 "
                      "--blocking-power 83.64 --unit 0.001"),
                  2, "or more)");
}

}  // namespace
}  // namespace perseus
