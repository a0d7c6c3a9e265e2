// Tests that the output of all verbs fits a terminal. The verbs of a node and of a server have such
// tests beside theirs (agent_test.cc, operator_test.cc).
#include <gmock/gmock.h>

#include "tests/cli/program.h"

namespace perseus {
namespace {

class TablesTest : public CommandTest {
 protected:
  TablesTest() { RunWell("synth --gpu a100 --stages 8 -o profile.csv"); }

  const std::string job_ = " profile.csv --schedule 1f1b --microbatches 12 --blocking-power 84 ";
};

TEST_F(TablesTest, PlansFit80Columns) {
  ExpectNarrowOutput(RunWell("plan --effort 0 --edp --price 0.12 2 -o out" + job_), 1);
  ExpectNarrowOutput(RunWell("plan --effort 0 --noise 1 --switch-tradeoff" + job_), 3);
  ExpectNarrowOutput(RunWell("show out"), 2);
  ExpectNarrowOutput(RunWell("evaluate out/plans/least-energy-delay.json"), 1);
}

TEST_F(TablesTest, ComparisonsFit80Columns) {
  ExpectNarrowOutput(RunWell("compare --straggler 10 --straggler 20 --straggler 50" + job_), 3);
  ExpectNarrowOutput(RunWell("compare --schedule gpipe" + job_), 1);
  ExpectNarrowOutput(RunWell("schedule search profile.csv --microbatches 12 --blocking-power 84 "
                             "--more 0,1 --activation-memory 1024"),
                     1);
}

TEST_F(TablesTest, WholeJobsAndModelsFit80Columns) {
  const std::string examples = PERSEUS_SOURCE_DIR "/examples/";
  ExpectNarrowOutput(RunWell("emulate --iterations 5 --pipelines 4" + job_), 1);
  ExpectNarrowOutput(RunWell("replay " + examples + "two-pipelines.trace.json --steps"), 3);
  ExpectNarrowOutput(RunWell("partition " + examples + "gpt-layers.csv --stages 4 " +
                             "--microbatches 8 --blocking-power 84"),
                     1);
}

// The limit is once above the table, and not in each row.
TEST_F(TablesTest, TheLimitIsAboveTheTable) {
  const std::string table = RunWell("plan --effort 0 --max-switches 4" + job_);
  EXPECT_THAT(table, testing::StartsWith("at most 4 switches per GPU and iteration:\n\nplan "));
  EXPECT_THAT(table, testing::HasSubstr("\n5 % slowdown  "));
  EXPECT_THAT(table, testing::ContainsRegex("\nno slowdown +[0-9.]+ s +[0-9.]+ J +[0-9.]+ % "));
}

}  // namespace
}  // namespace perseus
