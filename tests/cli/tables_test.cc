// Tests that the tables of all verbs fit a terminal. The verbs of a node and of a server have such
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

TEST_F(TablesTest, ThoseOfPlansFit80Columns) {
  ExpectNarrowTables(RunWell("plan --effort 0 --edp --price 0.12 2 -o out" + job_), 1);
  ExpectNarrowTables(RunWell("plan --effort 0 --noise 1 --switch-tradeoff" + job_), 3);
  ExpectNarrowTables(RunWell("show out"), 2);
  ExpectNarrowTables(RunWell("evaluate out/plans/least-energy-delay.json"), 1);
}

TEST_F(TablesTest, ThoseOfComparisonsFit80Columns) {
  ExpectNarrowTables(RunWell("compare --straggler 10 --straggler 20 --straggler 50" + job_), 3);
  ExpectNarrowTables(RunWell("compare --schedule gpipe" + job_), 1);
  ExpectNarrowTables(RunWell("schedule search profile.csv --microbatches 12 --blocking-power 84 "
                             "--more 0,1 --activation-memory 1024"),
                     1);
}

TEST_F(TablesTest, ThoseOfWholeJobsAndModelsFit80Columns) {
  const std::string examples = PERSEUS_SOURCE_DIR "/examples/";
  ExpectNarrowTables(RunWell("emulate --iterations 5 --pipelines 4" + job_), 1);
  ExpectNarrowTables(RunWell("replay " + examples + "two-pipelines.trace.json --steps"), 3);
  ExpectNarrowTables(RunWell("partition " + examples + "gpt-layers.csv --stages 4 " +
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
