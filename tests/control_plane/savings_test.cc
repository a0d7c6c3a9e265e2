// From an online profile to energy savings, with a server. The server promises a saving for a job
// (`perseus job show`). The energy counters of the virtual GPUs must show the same saving.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <functional>
#include <iostream>

#include "tests/control_plane/network.h"
#include "tests/control_plane/served_jobs.h"

namespace perseus {
namespace {

using nlohmann::json;

class SavingsTest : public ServedJobs {
 protected:
  // `perseus tune` measures how long the instructions take, and how much power a waiting GPU draws.
  // It runs without --restore, because measurements under its own plan correct the profile.
  void ProfileOnline(const ServedJob& job) {
    const std::string directory = job.nodes[0].directory;
    const std::string tuned = job.key + ".tuned";
    const Outcome outcome =
        Run(fmt::format("tune {0} --job {1}.toml --blocking-power 0 --budget-steps 90 "
                        "--frequencies 6 --steps-per-round 9 --assignment-delay 0.4 -o {2}",
                        directory, job.key, tuned));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    std::cout << outcome.out;
    RunWell("tune " + directory + " --give-back");
    Register(job, "--profile " + tuned + "/options.csv");
  }
  void ExpectPromiseKept(const ServedJob& job) {
    const Steady window = AwaitSteady(job.key, 10);
    ASSERT_GT(window.steps.end, 0U);
    EndTrainer();
    Steps before{1, 0};
    for (const protocol::RanStep& step : StepsOf(job.nodes[0].directory, {0, 0, 0})) {
      if (step.assignment_version != 0) break;
      before.end = static_cast<std::size_t>(step.step) + 1;
    }
    ASSERT_GE(before.end, 8U);
    const json& assignment = window.job.at("assignment");
    const Promise promise{window.job.at("saving_percent").get<double>() / 100,
                          assignment.at("time_s").get<double>(),
                          assignment.at("baseline").at("time_s").get<double>()};
    perseus::ExpectPromiseKept(promise, TrueStepsOf(job.key + ".record.csv"), before, window.steps);
  }
  // Requires running servers. Registers two jobs at the start, and trains them one after the other.
  // Calls `in_the_middle` after the first job is profiled.
  void ProfileAndSave(const std::function<void()>& in_the_middle) {
    const ServedJob two{"two-pipelines", 2, 4, 6, {{"a", 4, "run-two"}, {"b", 4, "run-two"}}};
    const ServedJob one{"one-pipeline", 1, 8, 8, {{"c", 8, "run-one"}}};
    SetUp(two, "--work-scale 0.4");
    SetUp(one, "--work-scale 0.4");
    for (const ServedJob& job : {two, one}) {
      Register(job);
      StartNodes(job);
    }
    for (const ServedJob& job : {two, one}) {
      StartTrainer(job);
      AwaitStep(job.key, 10);
      ProfileOnline(job);
      if (HasFatalFailure()) return;
      if (job.key == two.key) in_the_middle();
      ExpectPromiseKept(job);
      if (HasFatalFailure()) return;
    }
  }
};

TEST_F(SavingsTest, TwoJobsSaveWhatTheServerPromises) {
  StartServer();
  ProfileAndSave([] {});
}

// The job is registered with a searched schedule, and its trainer runs this schedule.
TEST_F(SavingsTest, AJobWithASearchedScheduleSavesWhatTheServerPromises) {
  StartServer();
  const ServedJob job{"auto", 1, 4, 6, {{"a", 4, "run-auto"}}};
  SetUp(job, "--work-scale 0.4");
  Register(job,
           "--schedule auto --max-in-flight 5,4,3,1 --profile auto.csv --write-schedule found.csv");
  std::string file = Read("auto.toml");
  const std::string fixed = "schedule = \"1f1b\"";
  file.replace(file.find(fixed), fixed.size(), "schedule_file = \"found.csv\"");
  Write("auto.toml", file);
  StartTrainer(job);
  // Without a node daemon, the job gets no plan. So these are the steps at maximum frequency.
  EXPECT_TRUE(Comes([&] { return StepsOf("run-auto", {0, 0, 0}).size() >= 12; }));
  StartNodes(job);
  ExpectPromiseKept(job);
}

// The replica of the nodes is cut off immediately after it receives the profile.
TEST_F(SavingsTest, AlsoWithThreeReplicasWhenOneIsCutOff) {
  const std::string why_not = Network::WhyNot();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  const Network network(kReplicas);
  StartReplicasIn(network);
  ProfileAndSave([&] { network.Cut(0); });
}

}  // namespace
}  // namespace perseus
