// Jobs that the server plans: without a pipeline, and two pipelines. All ranks or pipelines wait
// for each other once a step. One GPU becomes slower. The others run slower, too, and are as fast
// as before when it has recovered.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <thread>

#include "tests/control_plane/served_jobs.h"

namespace perseus {
namespace {

struct Shape {
  int pipelines = 1;
  int stages = 1;
};

class DataParallelTest : public ServedJobs, public testing::WithParamInterface<Shape> {
 protected:
  static constexpr int kSlowPipeline = 1;
  // Ranks write their steps once a second of virtual time. So the server may lack that many steps.
  static constexpr std::int64_t kReportedEvery = 8;
  const Shape shape_ = GetParam();
  const ServedJob job_{
      "run", shape_.pipelines, shape_.stages, 6, {{"a", shape_.pipelines* shape_.stages, "run-a"}}};

  std::vector<protocol::RanStep> StepsOfAnother() const { return StepsOf("run-a", {0, 0, 0}); }
  std::int64_t LastStep() const { return StepsOfAnother().back().step; }

  // Lets the job run so many steps. The server and the node run in real time. So virtual time waits
  // for them: until a step takes half a second, and until the server has its report.
  void RunSteps(const virtual_gpu::VirtualNode& node, std::int64_t count) const {
    constexpr Nanoseconds kPart = 50 * kMillisecond;
    constexpr auto kRealPart = std::chrono::milliseconds(100);
    const std::int64_t last = LastStep() + count;
    const auto part = node.clock()->TakePart(Clock::Part::kFollows);
    for (std::int64_t step = LastStep(); step < last; step = LastStep()) {
      if (step % kReportedEvery == 0) AwaitStep(job_.key, step - kReportedEvery);
      std::this_thread::sleep_for(kRealPart);
      node.clock()->WaitUntil(node.clock()->Now() + kPart);
    }
  }
  static bool HaveSameClocks(const protocol::RanStep& a, const protocol::RanStep& b) {
    return std::ranges::equal(a.instructions, b.instructions, {},
                              &protocol::RanInstruction::frequency_mhz,
                              &protocol::RanInstruction::frequency_mhz);
  }
};

TEST_P(DataParallelTest, OthersFollowASlowGpuAndComeBack) {
  StartServer();
  SetUp(job_, "--work-scale 0.25");
  Register(job_, "--profile run.csv");
  StartNodes(job_);
  StartTrainer(job_);
  AwaitSteady(job_.key, 10);
  ASSERT_FALSE(HasFailure());
  const virtual_gpu::VirtualNode node = OpenNode("a");
  RunSteps(node, 25);
  // Its last stage has most of the work.
  const int slow_gpu = (kSlowPipeline + 1) * shape_.stages - 1;
  ASSERT_TRUE(node.SetThrottle(slow_gpu, 1155));
  const auto slow = static_cast<std::size_t>(LastStep()) + 1;
  RunSteps(node, 70);
  ASSERT_TRUE(node.SetThrottle(slow_gpu, std::nullopt));
  const auto recovered = static_cast<std::size_t>(LastStep()) + 1;
  RunSteps(node, 45);
  EndTrainer();

  const std::vector<protocol::RanStep> ran = StepsOfAnother();
  const std::vector<TrueStep> steps = TrueStepsOf("run.record.csv");
  const protocol::RanStep& usual = ran.at(slow - 1);
  std::size_t followed = slow;
  while (followed < recovered && HaveSameClocks(ran.at(followed), usual)) ++followed;
  std::size_t back = ran.size();
  while (back > recovered && HaveSameClocks(ran.at(back - 1), usual)) --back;
  const TrueMean before = MeanOf(steps, slow - 22, slow - 1);
  const TrueMean during = MeanOf(steps, slow + 50, recovered - 1);
  const TrueMean after = MeanOf(steps, recovered + 20, recovered + 42);
  double extra_s = 0;
  for (std::size_t i = recovered + 1; i < recovered + 20; ++i) {
    extra_s += steps.at(i).time_s - before.time_s;
  }
  std::cout << fmt::format(
      "step {:.3f} s; slower by {:.1f} %; the others follow after {} steps, need {:.1f} % less "
      "energy, and are back after {} steps; extra time {:.3f} steps, then {:+.3f} %\n",
      before.time_s, 100 * (during.time_s / before.time_s - 1), followed - slow,
      100 * (1 - during.energy_j / MeanOf(steps, slow + 1, followed).energy_j), back - recovered,
      extra_s / before.time_s, 100 * (after.time_s / before.time_s - 1));
  EXPECT_GT(during.time_s, 1.05 * before.time_s);
  EXPECT_LT(followed, slow + 50);
  EXPECT_LT(during.energy_j, MeanOf(steps, slow + 1, followed).energy_j);
  EXPECT_LT(back, recovered + 20);
  EXPECT_LT(after.time_s - before.time_s, 3 * std::hypot(after.time_error_s, before.time_error_s));
}

INSTANTIATE_TEST_SUITE_P(Jobs, DataParallelTest, testing::Values(Shape{4, 1}, Shape{2, 4}),
                         [](const auto& shape) {
                           return shape.param.stages == 1 ? "WithoutAPipeline" : "TwoPipelines";
                         });

}  // namespace
}  // namespace perseus
