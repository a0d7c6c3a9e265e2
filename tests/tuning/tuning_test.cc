// The whole of `perseus tune` on the shared measurements: virtual GPUs take and draw what these
// say, and the coordinator sees of them what ranks' logs hold.
#include "perseus/tuner/tuning.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <iostream>
#include <string>

#include "shared_job.h"
#include "temporary_directory.h"
#include "virtual_pipeline.h"

namespace perseus {
namespace {

class TunedSharedJob : public testing::TestWithParam<SharedJob> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(PathOf(GetParam()))) {
      GTEST_SKIP() << PathOf(GetParam())
                   << " is absent (set PERSEUS_SHARED_DIR to the folder of measurements)";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Both, TunedSharedJob, testing::ValuesIn(kSharedJobs),
                         [](const auto& job) { return std::string(job.param.name); });

// What is waited for is always a step.
Result<TuningResult> TuneIn(const std::filesystem::path& directory, VirtualPipeline& pipeline,
                            const SweepJob& sweep, bool follows) {
  FakeClock clock;
  TuningOptions options;
  options.job_directory = directory;
  options.job.schedule = sweep.schedule;
  options.leaves_plan_in_force = follows;
  options.should_end = [&] {
    pipeline.RunStep();
    return false;
  };
  return Tune(options, clock);
}

TEST_P(TunedSharedJob, LosesLittleAgainstAFullSweep) {
  const Profile truth = ReadSharedProfile(GetParam());
  const SweepJob sweep = SweepJobOf(GetParam(), truth);
  const TrueJob job(sweep, truth);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    for (const bool follows : {false, true}) {
      const TemporaryDirectory directory;
      VirtualPipeline pipeline(sweep, truth, {.seed = seed}, directory.path());
      const auto tuned = TuneIn(directory.path(), pipeline, sweep, follows);
      ASSERT_TRUE(tuned) << tuned.error().message;
      const auto options = FindOptions(tuned->plan, job.planner().graph(), "plan");
      ASSERT_TRUE(options) << options.error().message;
      const TrueJob::Outcome outcome = job.Judge(*options);
      std::cout << fmt::format(
          "{} seed {} {}: loss {:.3f} %, late {:.3f} %, {} clocks, {} steps, slower {:.1f} %, "
          "{:.2f} W, steps run {}: {}\n",
          GetParam().name, seed, follows ? "followed" : "swept", 100 * outcome.loss,
          100 * outcome.slowdown, tuned->frequencies, tuned->spent.steps,
          100 * tuned->slowdown_spent, tuned->blocking_power_w, pipeline.steps(), tuned->reason);
    }
  }
}

}  // namespace
}  // namespace perseus
