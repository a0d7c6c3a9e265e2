// A plan that was made from a false profile costs throughput. So the server withdraws the plan.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/control_plane/served_jobs.h"

namespace perseus {
namespace {

using nlohmann::json;

class GuardTest : public ServedJobs {
 protected:
  // Writes a profile in which lower clocks cost too little time: its times are too close to the
  // shortest time.
  void WriteFalseProfile() {
    std::string csv = "stage,instruction,frequency,time,energy\n";
    std::map<std::pair<std::string, std::string>, double> shortest;
    const auto rows = Rows(Read("run.csv"));
    for (const auto& row : rows) {
      auto& least = shortest.try_emplace({row[0], row[1]}, std::stod(row[3])).first->second;
      least = std::min(least, std::stod(row[3]));
    }
    for (const auto& row : rows) {
      const double least = shortest.at({row[0], row[1]});
      const double time = least + 0.4 * (std::stod(row[3]) - least);
      csv +=
          row[0] + "," + row[1] + "," + row[2] + "," + std::to_string(time) + "," + row[4] + "\n";
    }
    Write("false.csv", csv);
  }
  static std::vector<std::vector<std::string>> Rows(const std::string& csv) {
    std::vector<std::vector<std::string>> rows;
    std::istringstream lines(csv);
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line, "stage,instruction,frequency,time,energy");
    while (std::getline(lines, line)) {
      std::istringstream cells(line);
      auto& row = rows.emplace_back();
      for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
      EXPECT_EQ(row.size(), 5U) << line;
    }
    return rows;
  }
};

TEST_F(GuardTest, APlanFromAFalseProfileIsTakenBack) {
  const ServedJob job{"run", 2, 4, 6, {{"a", 4, "run-a"}, {"b", 4, "run-b"}}};
  StartServer();
  SetUp(job, "--work-scale 0.4");
  WriteFalseProfile();
  Register(job);
  StartNodes(job);
  StartTrainer(job);
  AwaitStep("run", 20);
  const std::int64_t planned_at = Show("run").at("last_step");
  Register(job, "--profile false.csv");
  ASSERT_TRUE(Comes([&] {
    const json shown = Show("run");
    return shown.contains("guard") && shown["guard"]["state"] == "withdrawn";
  })) << Show("run").dump(1);
  const json withdrawn = Show("run");
  EXPECT_GT(withdrawn["guard"]["with_plan"], withdrawn["guard"]["without_plan"]);
  EXPECT_TRUE(withdrawn["assignment"]["pipelines"].empty());
  EXPECT_THAT(Run("job show run --server " + urls()).out, testing::HasSubstr("plan taken back"));
  const std::int64_t step = Show("run").at("last_step");
  AwaitStep("run", step + 10);
  EndTrainer();

  // The job is as fast as before the plan, and was slower with the plan.
  const std::vector<TrueStep> steps = TrueStepsOf("run.record.csv");
  const TrueMean before = MeanOf(steps, 2, static_cast<std::size_t>(planned_at));
  const TrueMean after =
      MeanOf(steps, static_cast<std::size_t>(step) + 1, static_cast<std::size_t>(step) + 9);
  EXPECT_NEAR(after.time_s / before.time_s, 1, 0.01);
}

}  // namespace
}  // namespace perseus
