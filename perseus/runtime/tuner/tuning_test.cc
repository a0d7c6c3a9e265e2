// Tests the state that a coordinator leaves when it fails. (tests/closed_loop tests complete runs.)
#include "perseus/runtime/tuner/tuning.h"

#include <gmock/gmock.h>

#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "tests/support/results.h"
#include "tests/support/simulated_job.h"

namespace perseus::tuner {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class TuningTest : public testing::Test {
 protected:
  TuningTest() : job_({{0, 0, 0}, {0, 1, 0}}) {
    options_.job_directory = job_.directory();
    schedule::ScheduleSpec spec;
    spec.name = "1f1b";
    spec.pp_ranks = 2;
    spec.microbatches = 4;
    options_.job.schedule = *schedule::GenerateSchedule(spec);
    job_.schedule = options_.job.schedule;
    options_.timeout = 1'000'000'000;
    options_.should_end = [this] {
      job_.RunStep();
      return false;
    };
  }
  protocol::Assignment InForce() const { return **protocol::ReadAssignment(job_.directory()); }

  SimulatedJob job_;
  TuningOptions options_;
  FakeClock clock_;
};

TEST_F(TuningTest, TheNextCoordinatorRemovesTheAssignmentOfAKilledOne) {
  protocol::Assignment before;
  before.plan = "plans/1.json";
  ASSERT_TRUE(protocol::WriteAssignment(job_.directory(), before));
  {
    auto killed = ValueOf(protocol::AssignmentWriter::Open(job_.directory()));
    protocol::Assignment sweep;
    sweep.clocks = {{0, 0, InstructionKind::kForward, 800}};
    sweep.until_step = 20;
    ASSERT_TRUE(killed.Write(sweep, 10));
  }
  options_.job.pipelines = 2;  // The ranks of the second pipeline never appear.
  ASSERT_FALSE(Tune(options_, clock_));
  EXPECT_EQ(InForce().plan, "plans/1.json");
  EXPECT_FALSE(InForce().until_step);
}

TEST_F(TuningTest, MissingEnergyIsAnErrorAfterOneRound) {
  job_.counter_period_s = 1e6;
  EXPECT_THAT(Tune(options_, clock_),
              FailsWith(::testing::AllOf(HasSubstr("rank dp0-pp0-tp0 recorded no useful energy"),
                                         HasSubstr("never changed twice"))));
  EXPECT_LT(job_.steps(), 30);
  EXPECT_TRUE(InForce().own);
}

// The counter changed, but none of its values counts.
TEST_F(TuningTest, StepsThatAllDoNotCountAreAnErrorThatSaysWhy) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"power", "temperature"}, "because heat held its clock down (cool the GPU)"},
      {{"power_brake"}, "because a power brake held its clock down (check the power supply"},
      {{"other"}, "because another program or a fault held its clock down (perseus doctor"},
      {{}, "its client library is older than this program: install the same version everywhere)"}};
  for (const auto& [causes, message] : cases) {
    job_.limited_by = causes;
    EXPECT_THAT(Tune(options_, clock_),
                FailsWith(AllOf(HasSubstr("rank dp0-pp0-tp0 measured nothing: "),
                                HasSubstr(message), Not(HasSubstr("never changed twice")))));
  }
  EXPECT_TRUE(InForce().own);
}

TEST_F(TuningTest, StepsOfARoundThatDoNotCountAreNamed) {
  std::vector<std::string> said;
  options_.say = [&](std::string_view text) { said.emplace_back(text); };
  options_.should_end = [this] {
    job_.limited_by.reset();
    if (job_.steps() % 5 == 0) job_.limited_by = {"temperature"};
    job_.RunStep();
    return false;
  };
  static_cast<void>(Tune(options_, clock_));
  EXPECT_THAT(said, Contains(AllOf(StartsWith("warning: 2 of "),
                                   HasSubstr(" steps of rank dp0-pp0-tp0 do not count, because "
                                             "heat held its clock down (cool the GPU); 2 ranks in "
                                             "all"))));
}

TEST_F(TuningTest, ABudgetForTheHighestClocksAloneIsAnErrorBeforeAnyStep) {
  options_.budget.steps = 12;
  EXPECT_THAT(Tune(options_, clock_), FailsWith(HasSubstr("raise `budget_steps` to at least 13")));
  EXPECT_EQ(job_.steps(), 0);
}

TEST_F(TuningTest, FactsOfAnotherGpuCauseOneWarning) {
  for (const protocol::RankId& rank : job_.ranks()) {
    protocol::RankHeader header;
    header.name = rank;
    header.host = "n7";
    header.pid = 1;
    header.may_set_clocks = true;
    header.sm_clocks_mhz = {800, 1000};
    header.gpu_name = "NVIDIA A40";
    job_.Announce(header);
  }
  // The schedule is wrong, so Tune() ends before the sweep.
  options_.job.schedule = *schedule::GenerateSchedule({"1f1b", 2, 6, 1});
  std::vector<std::string> said;
  options_.say = [&](std::string_view text) { said.emplace_back(text); };
  options_.facts_gpu_name = "NVIDIA A40";
  ASSERT_FALSE(Tune(options_, clock_));
  EXPECT_THAT(said, Not(Contains(StartsWith("warning"))));

  said.clear();
  options_.facts_gpu_name = "NVIDIA H200";
  ASSERT_FALSE(Tune(options_, clock_));
  EXPECT_THAT(said, Contains(StartsWith("warning")).Times(1));
  EXPECT_THAT(said, Contains("warning: the hardware facts are of the GPU NVIDIA H200, but rank "
                             "dp0-pp0-tp0 trains on the GPU NVIDIA A40 (give the facts of the "
                             "job's nodes)"));
}

// The error comes before the sweep uses a step.
TEST_F(TuningTest, AnotherScheduleIsAnErrorAtOnce) {
  options_.job.schedule = *schedule::GenerateSchedule({"1f1b", 2, 6, 1});
  EXPECT_THAT(Tune(options_, clock_),
              FailsWith(::testing::AllOf(HasSubstr("rank dp0-pp0-tp0 ran 4 microbatches in step"),
                                         HasSubstr("but the job file has 6"))));
  EXPECT_LT(job_.steps(), 10);
  EXPECT_FALSE(*protocol::ReadAssignment(job_.directory()));
}

}  // namespace
}  // namespace perseus::tuner
