#include "perseus/runtime/tuner/run_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "perseus/base/file.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "tests/support/temporary_directory.h"

namespace perseus::tuner {
namespace {

using ::testing::HasSubstr;

constexpr Nanoseconds kMillisecond = 1'000'000;

class CompareRunsTest : public testing::Test {
 protected:
  // Two ranks that run `steps` steps at a constant power. The first steps have no plan.
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
  const auto compared = CompareWithSteps(1000);
  ASSERT_TRUE(compared) << compared.error().message;
  // 76 steps of the shorter run have the plan and a next step: 20 blocks of 3.
  EXPECT_EQ(compared->pairs.size(), 20u);
  EXPECT_EQ(compared->block_length, 3);
  EXPECT_EQ(compared->first_step, 79 - 60);
  EXPECT_EQ(compared->first_step_against, 99 - 60);
  EXPECT_NEAR(compared->comparison.slowdown.estimate, 0.01, 1e-6);
  EXPECT_NEAR(compared->comparison.saving.estimate, 1 - 360. / 400 * 1.01, 1e-3);
  EXPECT_EQ(compared->comparison.slows, profiler::Verdict::kGreater);
  EXPECT_EQ(compared->comparison.saves, profiler::Verdict::kGreater);
  EXPECT_EQ(CompareWithSteps(12)->pairs.size(), 12u);
}

TEST_F(CompareRunsTest, RefusesRunsThatDoNotCompare) {
  WriteRun("fixed", 100, 500 * kMillisecond, 400);
  EXPECT_THAT(CompareWithSteps(100).error().message, HasSubstr("more"));
  WriteRun("more", 8, 500 * kMillisecond, 400);
  EXPECT_THAT(CompareWithSteps(100).error().message, HasSubstr("let the jobs run longer"));
  std::filesystem::remove(directory_ / "fixed/ranks/dp0-pp1-tp0.jsonl");
  EXPECT_THAT(CompareWithSteps(100).error().message, HasSubstr("compare runs of the same job"));
}

}  // namespace
}  // namespace perseus::tuner
