// Where the blocking power, the switch latency and the switch cost of a job come from. (tests/cli
// tests the rest.)
#include "perseus/planning/job/job_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>
#include <tuple>

#include "perseus/base/file.h"
#include "perseus/planning/hardware_facts/assumed.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"
#include "tests/support/temporary_directory.h"

namespace perseus::job {
namespace {

using ::testing::HasSubstr;

class FactsOfAJob : public testing::Test {
 protected:
  FactsOfAJob() {
    facts_.gpu_name = "G";
    facts_.host = facts_.driver_version = facts_.perseus_version = "x";
    facts_.measured_at = "2026-02-22T17:05:00Z";
    facts_.switches = {
        {hardware_facts::Direction::kUp, true, true, {12, 11, 13, 5}, 20, {1, 1, 1, 5}}};
    facts_.switches[0].stall_ms = {0.5, 0.4, 0.6, 5};
    facts_.power = {{1410, {}, hardware_facts::Estimate{90, 89, 91, 5}, {}}};
    WriteFacts("facts.toml");
    flags_.profile = std::string(PERSEUS_SOURCE_DIR) + "/examples/gpt3-like_a100_pp8.csv";
    flags_.schedule = "1f1b";
    flags_.pp_ranks = 8;
    flags_.microbatches = 2;
  }

  std::string WriteFacts(const std::string& name) const {
    const auto path = directory_ / name;
    EXPECT_TRUE(hardware_facts::Write(path, facts_));
    return path.string();
  }
  void WriteJobFile(const std::string& gpu) {
    flags_.job_file = (directory_ / "job.toml").string();
    ASSERT_TRUE(WriteFileAtomically(flags_.job_file, "[gpu]\n" + gpu));
  }
  LoadedJob Load() const {
    auto job = LoadJob(flags_);
    if (!job) throw std::runtime_error(job.error().Message());
    return *std::move(job);
  }

  TemporaryDirectory directory_;
  hardware_facts::HardwareFacts facts_;
  JobSettings flags_;
};

TEST_F(FactsOfAJob, TheyGiveTheBlockingPowerAndTheSwitchLatency) {
  flags_.facts = WriteFacts("facts.toml");
  flags_.gpus_per_stage = 2;
  const LoadedJob job = Load();
  EXPECT_EQ(job.planned.model.blocking_power_w, 90);
  EXPECT_EQ(job.model.blocking_power_w, 180);
  EXPECT_EQ(job.planned.switch_latency, 12'000'000);
  EXPECT_EQ(job.model.switch_latency, 12'000'000);
  EXPECT_EQ(job.model.switch_cost.stall, 500'000);
  EXPECT_EQ(job.model.switch_cost.energy_j, 0);
}

// Facts of earlier versions have no stall.
TEST_F(FactsOfAJob, ASwitchCostThatIsGivenReplacesTheirs) {
  flags_.facts = WriteFacts("facts.toml");
  for (const auto& [keys, stall, energy_j] :
       {std::tuple("switch_stall_s = 0.001\n", 1'000'000, 0.0),
        std::tuple("switch_stall_s = 0\n", 0, 0.0), std::tuple("switch_energy_j = 2\n", 0, 2.0)}) {
    WriteJobFile(keys);
    EXPECT_EQ(Load().planned.switch_cost.stall, stall) << keys;
    EXPECT_EQ(Load().planned.switch_cost.energy_j, energy_j) << keys;
  }
  flags_.switch_cost = {.stall = 3, .energy_j = 4};
  EXPECT_EQ(Load().planned.switch_cost.stall, 3);
  flags_.switch_cost.reset();
  facts_.switches[0].stall_ms.reset();
  WriteFacts("facts.toml");
  WriteJobFile("switch_stall_s = 0.001\n");
  EXPECT_EQ(Load().planned.switch_cost.stall, 1'000'000);
}

TEST_F(FactsOfAJob, AFlagAndTheJobFileCountBeforeThem) {
  flags_.facts = WriteFacts("facts.toml");
  WriteJobFile("switch_latency_ms = 3\n");
  EXPECT_EQ(Load().planned.switch_latency, 3'000'000);
  EXPECT_EQ(Load().planned.model.blocking_power_w, 90);

  flags_.switch_latency_ms = 4;
  EXPECT_EQ(Load().planned.switch_latency, 4'000'000);
  flags_.switch_latency_ms = 0;
  EXPECT_EQ(Load().planned.switch_latency, 0);

  WriteJobFile("blocking_power_w = 70\n");
  EXPECT_EQ(Load().planned.model.blocking_power_w, 70);
  flags_.blocking_power_w = 60;
  EXPECT_EQ(Load().planned.model.blocking_power_w, 60);
}

// The job file names the facts relative to itself. A flag names other facts.
TEST_F(FactsOfAJob, TheJobFileMayNameThem) {
  WriteJobFile("facts = \"facts.toml\"\n");
  EXPECT_EQ(Load().planned.model.blocking_power_w, 90);
  facts_.power[0].blocked_w = {75, 74, 76, 5};
  flags_.facts = WriteFacts("other.toml");
  EXPECT_EQ(Load().planned.model.blocking_power_w, 75);
}

TEST_F(FactsOfAJob, AValueThatTheyLackIsStillMissing) {
  facts_.power.clear();
  flags_.facts = WriteFacts("facts.toml");
  const auto job = LoadJob(flags_);
  ASSERT_FALSE(job);
  EXPECT_THAT(job.error().Message(), HasSubstr("the blocking power is missing (add"));
  flags_.blocking_power_w = 50;
  EXPECT_EQ(Load().planned.switch_latency, 12'000'000);
}

TEST_F(FactsOfAJob, AJobFileIsNoProfile) {
  flags_.profile = "jobs/job.toml";
  EXPECT_THAT(LoadJob(flags_).error().Message(),
              HasSubstr("jobs/job.toml: is a job file, not a profile (give it as `job = jobs/job"));
}

// For example, facts that were measured with --no-clocks. A flag gives what they lack.
TEST_F(FactsOfAJob, TheyMayHaveNeitherValue) {
  facts_.power.clear();
  facts_.switches.clear();
  flags_.facts = WriteFacts("facts.toml");
  EXPECT_THAT(LoadJob(flags_).error().Message(), HasSubstr("the blocking power is missing (add"));
  flags_.blocking_power_w = 50;
  EXPECT_EQ(Load().planned.model.blocking_power_w, 50);
  EXPECT_THAT(Describe(Load().facts),
              HasSubstr("hardware facts: " + flags_.facts +
                        " gives no blocking power, switch latency or switch cost\n"));
  flags_.facts = (directory_ / "none").string();
  EXPECT_EQ(LoadJob(flags_).error().kind, ErrorKind::kFile);
}

TEST_F(FactsOfAJob, WhatNothingGivesIsAssumed) {
  flags_.blocking_power_w = 50;
  EXPECT_EQ(Load().planned.switch_latency, hardware_facts::kAssumedSwitchLatency);
  EXPECT_EQ(Load().planned.switch_cost.stall, hardware_facts::kAssumedSwitchStall);
  EXPECT_EQ(Describe(Load().facts),
            "assumed without facts: the switch latency (15 ms), the switch cost (0.11 ms)\n");
  flags_.switch_latency_ms = 0;
  EXPECT_EQ(Load().planned.switch_latency, 0);
  WriteJobFile("switch_energy_j = 2\n");
  EXPECT_EQ(Load().planned.switch_cost.stall, 0);
  EXPECT_EQ(Describe(Load().facts), "");
}

// No GPU follows such a plan, whatever a change takes. It shows what the schedule allows.
TEST_F(FactsOfAJob, NothingIsAssumedForAClockForEachInstruction) {
  flags_.blocking_power_w = 50;
  flags_.changes.limit = recipe::ChangeRules::Limit::kNone;
  EXPECT_TRUE(Load().model.SwitchesAreFree());
  flags_.facts = WriteFacts("facts.toml");
  EXPECT_EQ(Load().planned.switch_latency, 12'000'000);
}

// The rate of the node is shared by its GPUs.
TEST_F(FactsOfAJob, TheyGiveTheRateOfClockChangesOfAGpu) {
  flags_.facts = WriteFacts("facts.toml");
  EXPECT_FALSE(Load().facts.most_changes_per_s);
  facts_.gpu_count = 8;
  facts_.max_changes_per_s = {80, 80, 160, 5};
  flags_.facts = WriteFacts("facts.toml");
  EXPECT_EQ(Load().facts.most_changes_per_s, 10);
  EXPECT_EQ(LoadUnprofiledJob(flags_)->facts.most_changes_per_s, 10);
}

TEST_F(FactsOfAJob, AJobWithoutProfileKnowsTheirGpu) {
  flags_.facts = WriteFacts("facts.toml");
  const auto job = LoadUnprofiledJob(flags_);
  ASSERT_TRUE(job) << job.error().Message();
  EXPECT_EQ(job->planned.model.blocking_power_w, 90);
  EXPECT_EQ(job->planned.switch_latency, 12'000'000);
  EXPECT_EQ(job->facts.gpu_name, "G");
  // 0 in the job file asks `tune` to measure.
  WriteJobFile("blocking_power_w = 0\n");
  EXPECT_EQ(LoadUnprofiledJob(flags_)->planned.model.blocking_power_w, 0);
  flags_.facts.clear();
  EXPECT_EQ(LoadUnprofiledJob(flags_)->facts.gpu_name, "");
}

// `tune` measures whole steps, so it needs no assumption about the cost.
TEST_F(FactsOfAJob, TheAssumedCostOfAChangeMayBeLeftOut) {
  const auto stall = [&] { return LoadUnprofiledJob(flags_)->planned.switch_cost.stall; };
  EXPECT_EQ(stall(), hardware_facts::kAssumedSwitchStall);
  flags_.assumes_switch_cost = false;
  EXPECT_EQ(stall(), 0);
  flags_.switch_cost = schedule::SwitchCost{.stall = kMillisecond};
  EXPECT_EQ(stall(), kMillisecond);
}

TEST_F(FactsOfAJob, ItsProfileGivesTheNumberOfPpRanks) {
  flags_.pp_ranks.reset();
  EXPECT_EQ(LoadUnprofiledJob(flags_)->planned.schedule.pp_ranks.size(), 8U);
  flags_.profile.clear();
  EXPECT_THAT(LoadUnprofiledJob(flags_).error().Message(),
              HasSubstr("the number of pp_ranks is missing"));
}

// The file of a graph has the power of its resources. Here it has none.
TEST_F(FactsOfAJob, OfAGraphTheyDoNotGiveTheBlockingPower) {
  JobSettings flags;
  flags.graph = (directory_ / "graph.json").string();
  flags.facts = WriteFacts("facts.toml");
  ASSERT_TRUE(WriteFileAtomically(
      flags.graph, R"({"instructions": [{"name": "a", "options": [{"time": 1, "energy": 10}]}]})"));
  const auto job = LoadJob(flags);
  ASSERT_TRUE(job) << job.error().Message();
  EXPECT_EQ(job->model.blocking_power_w, 0);
  EXPECT_EQ(job->model.switch_latency, 12'000'000);
}

TEST_F(FactsOfAJob, TheyOverrideAPlan) {
  flags_.blocking_power_w = 50;
  plan_file::PlanFile plan;
  plan.job = Load().planned;
  JobSettings flags;
  EXPECT_EQ(LoadPlannedJob(plan, "plan.json", flags)->planned.model.blocking_power_w, 50);
  flags.facts = WriteFacts("facts.toml");
  EXPECT_EQ(LoadPlannedJob(plan, "plan.json", flags)->planned.model.blocking_power_w, 90);
  EXPECT_EQ(LoadPlannedJob(plan, "plan.json", flags)->planned.switch_latency, 12'000'000);
  EXPECT_EQ(LoadPlannedJob(plan, "plan.json", flags)->planned.switch_cost.stall, 500'000);
  flags.switch_cost = {.stall = 3, .energy_j = 4};
  EXPECT_EQ(LoadPlannedJob(plan, "plan.json", flags)->planned.switch_cost.stall, 3);
  flags.blocking_power_w = 60;
  EXPECT_EQ(LoadPlannedJob(plan, "plan.json", flags)->planned.model.blocking_power_w, 60);
}

// Two GPUs of different models wait at 50 and 90 W. Both pp_ranks compute for 3 s of the 4.5 s of
// the iteration at maximum frequency.
TEST(BlockingPowerOfStages, EachGpuWaitsAtItsOwn) {
  JobSettings settings;
  settings.profile = "mixed.csv";
  settings.profile_text =
      "stage,instruction,frequency,time,energy,blocking_power\n"
      "0,forward,1400,0.5,100,50\n0,forward,1200,0.6,90,50\n0,backward,1400,1,200,\n"
      "0,backward,1200,1.2,180,\n1,forward,1400,0.5,150,90\n1,forward,1200,0.6,120,90\n"
      "1,backward,1400,1,300,90\n1,backward,1200,1.2,250,90\n";
  settings.schedule = "1f1b";
  settings.microbatches = 2;
  const auto job = LoadJob(settings);
  ASSERT_TRUE(job) << job.error().Message();
  EXPECT_EQ(job->planned.model.blocking_power_w, 70);
  const plan::Evaluation baseline =
      plan::Evaluator(job->graph, job->model).Evaluate(schedule::BaselineOptions(job->graph));
  EXPECT_EQ(ToSeconds(baseline.time), 4.5);
  EXPECT_NEAR(baseline.energy_j, 2 * (100 + 200 + 150 + 300) + 1.5 * (50 + 90), 1e-9);

  // A power that is given is that of all stages, also if it is their mean.
  settings.blocking_power_w = 70;
  const auto with_one = LoadJob(settings);
  ASSERT_TRUE(with_one) << with_one.error().Message();
  const double others_j = baseline.energy_j - 1.5 * (50 + 90);
  const auto energy_of = [](const LoadedJob& loaded) {
    return plan::Evaluator(loaded.graph, loaded.model)
        .Evaluate(schedule::BaselineOptions(loaded.graph))
        .energy_j;
  };
  EXPECT_NEAR(energy_of(*with_one), others_j + 1.5 * 2 * 70, 1e-9);

  // A plan has the powers of the profile on which it is evaluated.
  plan_file::PlanFile plan;
  plan.job = job->planned;
  JobSettings evaluated;
  evaluated.profile_text = settings.profile_text;
  for (std::size_t at = 0; (at = evaluated.profile_text->find(",50\n", at)) != std::string::npos;) {
    evaluated.profile_text->replace(at, 4, ",30\n");
  }
  const auto other = LoadPlannedJob(plan, "plan.json", evaluated);
  ASSERT_TRUE(other) << other.error().Message();
  EXPECT_NEAR(energy_of(*other), others_j + 1.5 * (30 + 90), 1e-9);
  evaluated.blocking_power_w = 70;
  EXPECT_NEAR(energy_of(*LoadPlannedJob(plan, "plan.json", evaluated)), others_j + 1.5 * 2 * 70,
              1e-9);

  settings.blocking_power_w.reset();
  settings.profile_text->replace(settings.profile_text->rfind("90"), 2, "91");
  EXPECT_THAT(LoadJob(settings).error().Message(),
              testing::HasSubstr("mixed.csv:9: the blocking power of stage 1 is 91 W here and 90 W "
                                 "on line 6 (write one value for each stage)"));
}

}  // namespace
}  // namespace perseus::job
