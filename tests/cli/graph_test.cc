// Tests work that is not a pipeline, from `plan` to `evaluate`.
#include <gmock/gmock.h>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class GraphTest : public CommandTest {
 protected:
  //  gpu0: a ---- c        gpu1 waits for a, and c waits for b.
  //          \  /
  //  gpu1:    b
  GraphTest() {
    const std::string options =
        R"("options": [{"frequency": 2000, "time": 0.010, "energy": 4},
                       {"frequency": 1500, "time": 0.012, "energy": 3},
                       {"frequency": 1000, "time": 0.020, "energy": 2.5}]})";
    Write("work.json", R"({"instructions": [
        {"name": "a", "resource": "gpu0", )" +
                           options + R"(,
        {"name": "b", "resource": "gpu1", )" +
                           options + R"(,
        {"name": "c", "resource": "gpu0", )" +
                           options + R"(],
        "dependencies": [{"from": "a", "to": "b"}, {"from": "b", "to": "c", "delay": 0.001}],
        "blocking_power": 50})");
  }
};

TEST_F(GraphTest, IsPlannedAndEvaluated) {
  const json summary = RunJson("plan --graph work.json --slowdown 30 -o out");
  EXPECT_EQ(summary["job"]["instructions"], 3);
  EXPECT_DOUBLE_EQ(summary["baseline"]["time_s"], 0.031);

  const json of_plan = RunJson("evaluate out/plans/slowdown-30.json --graph work.json");
  EXPECT_EQ(of_plan["claimed"]["holds"], true);
  EXPECT_THAT(Read("out/plans/slowdown-30.json"), HasSubstr("\"kind\":\"generic\",\"name\":\"a\""));
}

TEST_F(GraphTest, TheJobFileMayNameTheGraphAndTheBlockingPower) {
  Write("job.toml", "[pipeline]\ngraph = \"work.json\"\n[gpu]\nblocking_power_w = 70\n");
  const json of_file = RunJson("plan --job job.toml");
  EXPECT_EQ(of_file["plans"], RunJson("plan --graph work.json --blocking-power 70")["plans"]);
  EXPECT_NE(of_file["plans"], RunJson("plan --graph work.json")["plans"]);
}

TEST_F(GraphTest, APlanKeepsItsBlockingPower) {
  RunWell("plan --graph work.json --blocking-power 70 -o out");
  const json of_plan = RunJson("evaluate out/plans/no-slowdown.json");
  EXPECT_EQ(of_plan["claimed"]["holds"], true);
  EXPECT_NE(of_plan["energy_j"],
            RunJson("evaluate out/plans/no-slowdown.json --blocking-power 50")["energy_j"]);
}

TEST_F(GraphTest, ABlockingPowerNeedsResources) {
  Write("alone.json",
        R"({"instructions": [{"name": "a", "options": [{"time": 1, "energy": 1}]}]})");
  ExpectComplaint(Run("plan --graph alone.json --blocking-power 84"), 2, "has no resource");
}

}  // namespace
}  // namespace perseus
