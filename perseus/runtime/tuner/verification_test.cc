#include "perseus/runtime/tuner/verification.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "perseus/base/file.h"
#include "perseus/base/random.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "tests/support/results.h"
#include "tests/support/simulated_job.h"
#include "tests/support/temporary_directory.h"

namespace perseus::tuner {
namespace {

using ::testing::HasSubstr;

class VerificationTest : public testing::Test {
 protected:
  VerificationTest() : job_({{0, 0, 0}, {0, 1, 0}, {1, 0, 0}}) {
    job_.cost = [](const protocol::Assignment& assignment) {
      return assignment.plan.empty() ? SimulatedJob::Cost{0.5, 100} : SimulatedJob::Cost{0.505, 90};
    };
    options_.job_directory = job_.directory();
    options_.plan = "a plan";
    options_.ranks = job_.ranks();
    options_.steps = 120;
    options_.timeout = 1'000'000'000;
    // The verifier calls this function whenever it waits.
    options_.should_end = [this] {
      if (job_.steps() < last_step_) job_.RunStep();
      return false;
    };
  }
  Result<Verification> Run() { return Verify(options_, clock_); }

  SimulatedJob job_;
  VerificationOptions options_;
  std::int64_t last_step_ = 1'000'000;
  FakeClock clock_;
};

TEST_F(VerificationTest, FindsTheTruth) {
  const auto verified = ValueOf(Run());
  const profiler::Comparison& comparison = verified.comparison;
  // In 15 pairs of blocks of four steps, three steps of each block count for the time, and two for
  // the energy. The standard error of a mean energy is 0.001 / sqrt(30) each for time and power.
  // The standard error of the ratio of two means is sqrt(2) times as large, 0.00037. The tolerance
  // is four standard errors.
  EXPECT_EQ(verified.layout.pairs, 15);
  EXPECT_NEAR(comparison.slowdown.estimate, 0.01, 0.0011);
  EXPECT_NEAR(comparison.saving.estimate, 0.1, 0.0015);
  EXPECT_LT(comparison.slowdown.upper - comparison.slowdown.lower, 0.004);
  EXPECT_EQ(comparison.saves, profiler::Verdict::kGreater);
  EXPECT_EQ(verified.left_out, 0);
  // The energies are sums over all three ranks.
  EXPECT_NEAR(verified.pairs.front().baseline_energy_j, 300, 3);
}

// Without the plan, the power limit regulates, and the times of steps vary more.
TEST_F(VerificationTest, ShowsWhichStepsAreSteadier) {
  options_.steps = 200;
  std::mt19937_64 random(5);
  job_.cost = [&](const protocol::Assignment& assignment) {
    if (!assignment.plan.empty()) return SimulatedJob::Cost{0.5, 90};
    return SimulatedJob::Cost{0.5 * (1 + 0.02 * Normal(random)), 100};
  };
  const auto verified = ValueOf(Run());
  // The steps of the job vary by 0.1 % on their own. The standard error of a median distance of 50
  // differences is 17 %.
  EXPECT_NEAR(verified.baseline_step_noise, 0.02, 0.01);
  EXPECT_NEAR(verified.planned_step_noise, 0.001, 0.0005);
}

TEST_F(VerificationTest, TheFormerAssignmentIsRestored) {
  protocol::Assignment before;
  before.version = 5;
  before.plan = "plans/5.json";
  ASSERT_TRUE(protocol::WriteAssignment(job_.directory(), before));
  ASSERT_TRUE(Run());
  const auto after = protocol::ReadAssignment(job_.directory());
  EXPECT_EQ((*after)->plan, "plans/5.json");
  EXPECT_GT((*after)->version, 5);
}

// One step of one planned block takes five seconds instead of half a second.
TEST_F(VerificationTest, AStalledStepIsNamedAndDoesNotDecideASmallSample) {
  options_.steps = 40;
  std::int64_t stalled = -1;
  job_.cost = [&](const protocol::Assignment& assignment) {
    if (assignment.plan.empty()) return SimulatedJob::Cost{0.5, 100};
    const bool stalls =
        stalled < 0 && job_.steps() > 20 && job_.steps() == assignment.from_step + 1;
    if (stalls) stalled = job_.steps();
    return stalls ? SimulatedJob::Cost{5, 900} : SimulatedJob::Cost{0.5, 90};
  };
  const auto verified = ValueOf(Run());
  ASSERT_EQ(verified.outliers.size(), 1U);
  const OutlyingBlock& outlier = verified.outliers.front();
  EXPECT_TRUE(outlier.is_planned);
  EXPECT_EQ(outlier.longest_step, stalled);
  EXPECT_NEAR(outlier.longest_step_s, 5, 0.1);
  EXPECT_EQ(outlier.steps.first, stalled - 1);
  // One of the two or three counted steps takes ten times as long as usual.
  EXPECT_GT(outlier.change, 2.9);
  const profiler::Comparison& comparison = verified.comparison;
  // The mean of the stalled pair is 300 % or more. The other pairs have the noise 0.001 of two
  // steps on both sides. The outlier counts as five times their spread.
  EXPECT_NEAR(comparison.slowdown.estimate, 0, 0.004);
  EXPECT_LT(comparison.slowdown.upper, 0.03);
  EXPECT_GT(comparison.slowdown.lower, -0.01);
  EXPECT_EQ(comparison.saves, profiler::Verdict::kGreater);
}

TEST_F(VerificationTest, SaysBeforehandHowManyStepsDecide) {
  job_.noise = 0.01;
  for (int i = 0; i < 70; ++i) job_.RunStep();
  options_.steps = 40;
  std::vector<std::string> said;
  std::vector<std::int64_t> at;
  options_.say = [&](std::string_view text) {
    said.emplace_back(text);
    at.push_back(job_.steps());
  };
  ASSERT_TRUE(Run());
  ASSERT_FALSE(said.empty());
  EXPECT_LT(at.front(), 80);
  EXPECT_THAT(said.front(), HasSubstr("40 steps show a slowdown to within about"));
  EXPECT_THAT(said.front(), HasSubstr("to decide whether it exceeds 0.2 % takes about"));
  EXPECT_TRUE(said.front().ends_with("(verify more steps)"));
}

TEST_F(VerificationTest, AllStepsBelongToBlocks) {
  options_.steps = 40;
  const auto verified = ValueOf(Run());
  EXPECT_EQ(verified.layout.steps(), 40);
  ASSERT_EQ(verified.steps.size(), 6U);
  std::int64_t steps = 0;
  for (const Verification::PairSteps& pair : verified.steps) {
    const std::int64_t planned = pair.planned.last - pair.planned.first;
    EXPECT_EQ(planned, pair.baseline.last - pair.baseline.first);
    steps += 2 * (planned + 1);
  }
  EXPECT_EQ(steps, 40);
}

// Blocks have four steps and begin at step 11. So the thirteenth block begins at step 59.
TEST_F(VerificationTest, AJobThatEndsAfterEnoughPairsIsJudgedByThem) {
  last_step_ = 60;
  const auto verified = ValueOf(Run());
  EXPECT_THAT(verified.ended_early, HasSubstr("has the job ended?"));
  EXPECT_EQ(verified.pairs.size(), 6U);
  EXPECT_EQ(verified.left_out, 0);
  EXPECT_EQ(verified.comparison.saves, profiler::Verdict::kGreater);
  EXPECT_EQ((*protocol::ReadAssignment(job_.directory()))->plan, "");
}

// The second block of the seventh pair has three of its four steps.
TEST_F(VerificationTest, AnUnfinishedLastBlockCounts) {
  last_step_ = 66;
  const auto verified = ValueOf(Run());
  ASSERT_EQ(verified.pairs.size(), 7U);
  const Verification::PairSteps& last = verified.steps.back();
  EXPECT_EQ(std::max(last.planned.last, last.baseline.last), 65);
  EXPECT_NE(last.planned.last - last.planned.first, last.baseline.last - last.baseline.first);
  EXPECT_NEAR(verified.pairs.back().baseline_time_s, 0.5, 0.003);
  EXPECT_NEAR(verified.pairs.back().planned_time_s, 0.505, 0.003);
}

TEST_F(VerificationTest, AJobThatEndsMeanwhileIsAnErrorAndLeavesNoPlan) {
  last_step_ = 40;
  EXPECT_THAT(Run(), FailsWith(HasSubstr("has the job ended?")));
  EXPECT_EQ((*protocol::ReadAssignment(job_.directory()))->plan, "");
}

// A job that was started with PERSEUS_PLAN continues with its own plan. If the verifier were
// killed, the last assignment would also expire.
TEST_F(VerificationTest, LeavesRanksWithTheirOwnPlans) {
  bool all_temporary = true;
  options_.should_end = [&] {
    const auto assignment = protocol::ReadAssignment(job_.directory());
    all_temporary = all_temporary && (!*assignment || (*assignment)->until_step);
    job_.RunStep();
    return false;
  };
  ASSERT_TRUE(Run());
  EXPECT_TRUE(all_temporary);
  EXPECT_TRUE((*protocol::ReadAssignment(job_.directory()))->own);
}

// The blocks were laid out for steps of half a second. Steps may become shorter than the period of
// the counter. Then it is not enough to leave out one step at each end of a block: windows with
// parts of two blocks would make the saving too small.
TEST_F(VerificationTest, BlocksTooShortForTheCounterAreLeftOut) {
  job_.cost = [this](const protocol::Assignment& assignment) {
    const SimulatedJob::Cost cost =
        assignment.plan.empty() ? SimulatedJob::Cost{0.5, 100} : SimulatedJob::Cost{0.505, 90};
    const double part = job_.steps() > 10 ? 0.12 : 1;
    return SimulatedJob::Cost{cost.time_s * part, cost.energy_j * part};
  };
  EXPECT_THAT(Run(), FailsWith(::testing::AllOf(
                         HasSubstr("only 0 of 15 pairs"),
                         HasSubstr("too short for the period of the energy counter"))));
}

TEST_F(VerificationTest, RankThatDoesNotFollowIsNamed) {
  job_.ignoring = {{0, 1, 0}};
  EXPECT_THAT(Run(), FailsWith(HasSubstr("rank dp0-pp1-tp0 ran step")));
}

TEST_F(VerificationTest, ARankWithoutAGpuIsAnErrorAtOnce) {
  protocol::RankHeader header;
  header.name = {0, 1, 0};
  header.host = "n7";
  header.pid = 1;
  job_.Announce(header);
  EXPECT_THAT(Run(), FailsWith(HasSubstr("rank dp0-pp1-tp0 has no GPU that Perseus can find")));
}

TEST_F(VerificationTest, ARankThatMayNotSetClocksIsAnErrorAtOnce) {
  protocol::RankHeader header;
  header.gpu = "GPU-1";
  header.name = {0, 1, 0};
  header.host = "n7";
  header.pid = 1;
  job_.Announce(header);
  EXPECT_THAT(Run(), FailsWith(HasSubstr("rank dp0-pp1-tp0 may not set the clock of its GPU")));
  EXPECT_LT(job_.steps(), 10);
  EXPECT_FALSE(*protocol::ReadAssignment(job_.directory()));
}

TEST_F(VerificationTest, TooFewStepsAreAnErrorThatNamesTheNeededNumber) {
  options_.steps = 20;
  const auto verified = Run();
  ASSERT_THAT(verified, FailsAs(ErrorKind::kUnreachable));
  // Six pairs of blocks have three steps in each block, and only the middle step counts.
  EXPECT_THAT(verified.error().Message(), HasSubstr("at least 36 are needed"));
  EXPECT_FALSE(*protocol::ReadAssignment(job_.directory()));
}

TEST_F(VerificationTest, EndsOnRequestWithTheFormerAssignment) {
  options_.should_end = [this] {
    job_.RunStep();
    return job_.steps() > 40;
  };
  EXPECT_THAT(Run(), FailsWith(EndedByRequest().Message()));
  EXPECT_EQ((*protocol::ReadAssignment(job_.directory()))->plan, "");
}

TEST(BlockLayoutTest, BlocksAreLongEnoughForCounterAndAssignment) {
  // With steps of 20 ms, each side of a block leaves out 6 steps for the counter and its reading.
  // The block needs 50 steps until the assignment is read.
  const auto layout = ValueOf(LayOutBlocks(10'000, 0.02, 0.1, 0.95));
  EXPECT_EQ(layout.front, 6);
  EXPECT_EQ(layout.back, 6);
  EXPECT_GE(layout.length, 50);
  EXPECT_EQ(layout.steps(), 10'000);
}

TEST(StepNoiseTest, DriftAndStallsDoNotCount) {
  std::mt19937_64 random(3);
  std::vector<double> times;
  for (int i = 0; i < 400; ++i) {
    times.push_back(0.5 * (1 + 0.01 * Normal(random)) * (1 + 0.001 * i) + (i % 50 == 7 ? 3 : 0));
  }
  // The standard error of a median distance of 400 dependent values is 6 %.
  EXPECT_NEAR(StepNoise(times), 0.01, 0.0025);
  EXPECT_EQ(StepNoise(std::vector<double>{0.5, 0.5}), 0);
}

TEST(StepsToDecideTest, GrowWithTheSquareOfTheNoise) {
  const double least = StepsToDecide(1e-5, 0.5, 0.1, {});
  EXPECT_EQ(least, 36);  // Six pairs of blocks with three steps each.
  const double some = StepsToDecide(0.004, 0.5, 0.1, {});
  const double more = StepsToDecide(0.008, 0.5, 0.1, {});
  EXPECT_GT(some, least);
  EXPECT_NEAR(more / some, 4, 0.1);
}

class CompareRunsTest : public testing::Test {
 protected:
  // Writes the logs of two ranks that run `steps` steps at a constant power. The first steps have
  // no plan.
  void WriteRun(const std::string& name, int steps, Nanoseconds step_time, double power_w) const {
    for (int pp_rank = 0; pp_rank < 2; ++pp_rank) {
      protocol::RankHeader header;
      header.name.pp_rank = pp_rank;
      header.host = "n";
      header.pid = 1;
      header.epoch = 1;
      std::string text = protocol::FormatRecord(header);
      for (int i = 0; i < steps; ++i) {
        protocol::RanStep step;
        step.step = i;
        step.assignment_version = i < 3 ? 0 : 1;
        step.has_plan = step.on_plan = true;
        step.begin = i * step_time;
        step.end = step.begin + step_time - kMillisecond;
        // The counter is exact at the end of each step.
        const Nanoseconds at = step.end - step.begin;
        step.energy = {{at - 1000, at, power_w * ToSeconds(step.end)}};
        text += protocol::FormatRecord(step);
      }
      const auto path = protocol::RankLogPath(directory_ / name, header.name);
      std::filesystem::create_directories(path.parent_path());
      ASSERT_TRUE(WriteFileAtomically(path, text));
    }
  }
  Result<RunComparison> CompareWithSteps(int steps) const {
    return CompareRuns({.directory = directory_ / "more",
                        .against = directory_ / "fixed",
                        .steps = steps,
                        .counter_period_s = 0.1,
                        .comparison = {}});
  }
  TemporaryDirectory directory_;
};

TEST_F(CompareRunsTest, FindsTheSavingAndTheSlowdown) {
  WriteRun("fixed", 100, 500 * kMillisecond, 400);
  WriteRun("more", 80, 505 * kMillisecond, 360);
  const auto compared = ValueOf(CompareWithSteps(1000));
  // 76 steps of the shorter run have the plan and a next step. This is enough for 20 blocks of 3.
  EXPECT_EQ(compared.pairs.size(), 20u);
  EXPECT_EQ(compared.block_length, 3);
  EXPECT_EQ(compared.first_step, 79 - 60);
  EXPECT_EQ(compared.first_step_against, 99 - 60);
  EXPECT_NEAR(compared.comparison.slowdown.estimate, 0.01, 1e-6);
  EXPECT_NEAR(compared.comparison.saving.estimate, 1 - 360. / 400 * 1.01, 1e-3);
  EXPECT_EQ(compared.comparison.slows, profiler::Verdict::kGreater);
  EXPECT_EQ(compared.comparison.saves, profiler::Verdict::kGreater);
  EXPECT_EQ(CompareWithSteps(12)->pairs.size(), 12u);
}

// Sixteen steps of one H100: when step_begin was called, and when the GPU began the first
// instruction, in microseconds. From step 2 on, the launches are ahead of the GPU.
struct H100Step {
  Nanoseconds call = 0;
  Nanoseconds first = 0;
};
constexpr H100Step kH100Steps[] = {
    {0, 4244},          {264021, 265394},   {483074, 525066},   {780098, 786604},
    {1065799, 1082145}, {1298717, 1340951}, {1558602, 1600522}, {1827461, 1870805},
    {2091877, 2134509}, {2374119, 2393989}, {2639736, 2667344}, {2891629, 2934700},
    {3154619, 3197165}, {3417498, 3460180}, {3677051, 3720008}, {3962536, 3983562}};

// The interval of the slowdown is as narrow as the GPU's own times allow, also from the log of an
// older client, whose steps begin with the call.
TEST_F(CompareRunsTest, TimesAreThoseOfTheGpu) {
  const auto write = [&](const std::string& name, Nanoseconds H100Step::*begin) {
    protocol::RankHeader header;
    header.pid = 1;
    std::string text = protocol::FormatRecord(header);
    for (const H100Step& one : kH100Steps) {
      protocol::RanStep step;
      step.step = &one - kH100Steps;
      step.begin = one.*begin * kMicrosecond;
      const Nanoseconds lag = one.first * kMicrosecond - step.begin;
      const Nanoseconds work = 255 * kMillisecond;
      step.end = step.begin + lag + work;
      step.on_plan = true;
      step.instructions = {{InstructionKind::kForward, 0, 0, lag, work, 0}};
      step.energy = {{lag + work - 1000, lag + work, 690 * ToSeconds(step.end)}};
      text += protocol::FormatRecord(step);
    }
    const auto path = protocol::RankLogPath(directory_ / name, header.name);
    std::filesystem::create_directories(path.parent_path());
    ASSERT_TRUE(WriteFileAtomically(path, text));
  };
  const auto slowdown = [&] { return ValueOf(CompareWithSteps(12)).comparison.slowdown; };
  const auto width = [](const profiler::Interval& interval) {
    return interval.upper - interval.lower;
  };
  WriteRun("fixed", 16, 260 * kMillisecond, 690);
  std::filesystem::remove(directory_ / "fixed/ranks/dp0-pp1-tp0.jsonl");
  write("more", &H100Step::first);
  const profiler::Interval of_gpu = slowdown();
  write("more", &H100Step::call);
  const profiler::Interval of_calls = slowdown();
  EXPECT_EQ(of_calls.estimate, of_gpu.estimate);
  EXPECT_EQ(width(of_calls), width(of_gpu));
}

TEST_F(CompareRunsTest, RefusesRunsThatDoNotCompare) {
  WriteRun("fixed", 100, 500 * kMillisecond, 400);
  EXPECT_THAT(CompareWithSteps(100).error().Message(), HasSubstr("more"));
  WriteRun("more", 8, 500 * kMillisecond, 400);
  EXPECT_THAT(CompareWithSteps(100).error().Message(), HasSubstr("let the jobs run longer"));
  std::filesystem::remove(directory_ / "fixed/ranks/dp0-pp1-tp0.jsonl");
  EXPECT_THAT(CompareWithSteps(100).error().Message(), HasSubstr("compare runs of the same job"));
}

}  // namespace
}  // namespace perseus::tuner
