// One GPU becomes slow. The server detects this. Meanwhile, the other pipeline saves energy and
// delays no step. When the GPU recovers, everything is as before.
//
// Training runs in virtual time. The server and `perseus node` run in real time. So the test checks
// the energy and time of the virtual GPUs, but not how many steps the detection takes
// (straggler_detector_test.cc tests this).
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <iostream>

#include "tests/control_plane/network.h"
#include "tests/control_plane/served_jobs.h"

namespace perseus {
namespace {

using nlohmann::json;

constexpr double kBlockingPowerW = 84;

class StragglerTest : public ServedJobs {
 protected:
  // Each node has its own directory, as on nodes that share no file system.
  const ServedJob job_{"run", 2, 4, 6, {{"a", 4, "run-a", 0}, {"b", 4, "run-b", 1}}};

  // Requires running servers. Calls `in_the_middle` after the straggler is detected.
  void ThrottleAndRecover(const std::function<void()>& in_the_middle);

  double EnergyOf(const virtual_gpu::VirtualNode& node) const {
    double energy_j = 0;
    for (int gpu = 0; gpu < job_.stages; ++gpu) energy_j += node.Look(gpu)->reading.energy_j;
    return energy_j;
  }

  // The mean energy of a pipeline for a step, from the counters of its GPUs. The mean is over steps
  // under one assignment.
  struct Measured {
    json assignment;
    Steps steps;
    double energy_j = 0;
  };
  Measured MeasureFirstPipeline(std::size_t stragglers) const {
    constexpr std::int64_t kSteps = 10;
    const virtual_gpu::VirtualNode node = OpenNode("a");
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Steady steady = AwaitSteady(job_.key, 2, stragglers);
      if (HasFailure()) return {};
      Measured measured{steady.job.at("assignment"), {}, 0};
      {
        // While this thread reads the counters, virtual time stands still, and so does training.
        const auto part = node.clock()->TakePart(Clock::Part::kFollows);
        const std::int64_t first = AwaitEndOfStep(0, *node.clock());
        const double before_j = EnergyOf(node);
        const std::int64_t last = AwaitEndOfStep(first + kSteps, *node.clock());
        measured.energy_j = (EnergyOf(node) - before_j) / static_cast<double>(last - first);
        measured.steps = {static_cast<std::size_t>(first) + 1, static_cast<std::size_t>(last) + 1};
      }
      // The server may be late, because it runs in real time. When it has judged these steps, their
      // assignment is final.
      AwaitStep(job_.key, static_cast<std::int64_t>(measured.steps.end));
      const Steady after = AwaitSteady(job_.key, 1, stragglers);
      if (HasFailure()) return {};
      if (after.job.at("assignment") == measured.assignment) return measured;
    }
    ADD_FAILURE() << "the assignment never stayed the same for long enough";
    return {};
  }
  // Waits until the first pipeline ends another step with at least this number. Returns the number
  // of the step.
  std::int64_t AwaitEndOfStep(std::int64_t number, Clock& clock) const {
    protocol::RankLogReader reader(protocol::RankLogPath(Directory() / "run-a", {0, 0, 0}));
    EXPECT_TRUE(reader.SkipToEnd());
    const std::atomic<std::uint32_t> never = 0;
    std::int64_t last = -1;
    while (last < number || last < 0) {
      clock.WaitWhile(never, 0, clock.Now() + 2 * kMillisecond);
      const auto records = reader.ReadNew().value();
      for (const protocol::RankRecord& record : records) {
        if (const auto* step = std::get_if<protocol::RanStep>(&record)) last = step->step;
      }
    }
    return last;
  }
  // The second pipeline's steps between two moments of the nodes' clock.
  Steps StepsBetween(Nanoseconds begin, Nanoseconds end) const {
    Steps between;
    for (const protocol::RanStep& step : StepsOf("run-b", {1, 0, 0})) {
      if (step.begin < begin || step.end > end) continue;
      if (between.end == 0) between.begin = static_cast<std::size_t>(step.step);
      between.end = static_cast<std::size_t>(step.step) + 1;
    }
    return between;
  }
  // Returns the first pipeline's energy for a step according to its plan. This includes the energy
  // of waiting for the slowest pipeline.
  double Predicted(const json& assignment) const {
    const json& share = assignment.at("pipelines").at(0);
    const double wait_s = assignment.at("time_s").get<double>() - share.at("time_s").get<double>();
    return share.at("energy_j").get<double>() + job_.stages * kBlockingPowerW * wait_s;
  }
};

TEST_F(StragglerTest, TheOtherPipelineSavesEnergyAndDelaysNoStep) {
  StartServer();
  ThrottleAndRecover([] {});
}

// The replica that judges the job is cut off. The first node is connected to this replica. Usually
// the other node is connected to another replica. But on a busy machine, an answer may take so long
// that a node changes its replica.
TEST_F(StragglerTest, AlsoWithThreeReplicasWhenOneIsCutOff) {
  const std::string why_not = Network::WhyNot();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  const Network network(kReplicas);
  StartReplicasIn(network);
  ThrottleAndRecover([&] {
    int judge = -1;
    ASSERT_TRUE(Comes([&] { return (judge = ReplicaOfLog("a.node.log")) >= 0; }));
    network.Cut(judge);
    EXPECT_TRUE(Comes([&] {
      const int now = ReplicaOfLog("a.node.log");
      return now >= 0 && now != judge;
    }));
  });
}

void StragglerTest::ThrottleAndRecover(const std::function<void()>& in_the_middle) {
  SetUp(job_, "--work-scale 0.4");
  Register(job_, "--profile run.csv");
  StartTrainer(job_);
  StartNodes(job_);
  const Measured before = MeasureFirstPipeline(0);
  ASSERT_GT(before.energy_j, 0);

  const virtual_gpu::VirtualNode node = OpenNode("b");
  const Nanoseconds begins = node.clock()->Now();
  ASSERT_TRUE(node.SetThrottle(1, 1005));
  ASSERT_TRUE(Comes([this] { return !Show(job_.key).at("stragglers").empty(); }));
  const json straggler = Show(job_.key).at("stragglers").at(0);
  EXPECT_EQ(straggler.at("dp_rank"), 1);
  EXPECT_EQ(straggler.at("source"), "detected");

  in_the_middle();
  const Measured during = MeasureFirstPipeline(1);
  ASSERT_GT(during.energy_j, 0);
  EXPECT_NE(during.assignment.at("pipelines").at(0), before.assignment.at("pipelines").at(0));
  EXPECT_EQ(during.assignment.at("pipelines").at(1), before.assignment.at("pipelines").at(1));
  const double predicted = 1 - Predicted(during.assignment) / Predicted(before.assignment);
  const double saved = 1 - during.energy_j / before.energy_j;
  ASSERT_NEAR(saved, predicted, kOnePoint);
  EXPECT_GT(predicted, 3 * kOnePoint) << "too small a promise: doing nothing would keep it";

  const Nanoseconds ends = node.clock()->Now();
  ASSERT_TRUE(node.SetThrottle(1, std::nullopt));
  const Measured after = MeasureFirstPipeline(0);
  ASSERT_GT(after.energy_j, 0);
  EXPECT_EQ(after.assignment.at("pipelines"), before.assignment.at("pipelines"));
  EndTrainer();

  // While the other pipeline followed its old plan, only the straggler made steps longer.
  const Steps throttled = StepsBetween(begins, ends);
  const std::vector<TrueStep> steps = TrueStepsOf("run.record.csv");
  Steps alone{throttled.begin, throttled.begin};
  const std::vector<protocol::RanStep> ran = StepsOf("run-a", {0, 0, 0});
  while (ran.at(alone.end).assignment_version == ran.at(before.steps.begin).assignment_version)
    ++alone.end;
  ASSERT_GE(alone.end, alone.begin + 2);
  const TrueMean by_itself = MeanOf(steps, alone.begin, alone.end);
  const TrueMean meanwhile = MeanOf(steps, during.steps.begin, during.steps.end);
  const double delay = meanwhile.time_s / by_itself.time_s - 1;
  // The same limit as in ExpectPromiseKept.
  const double noise =
      3 * std::hypot(meanwhile.time_error_s, by_itself.time_error_s) / by_itself.time_s + 0.0052;
  EXPECT_LT(delay, noise);
  std::cout << fmt::format(
      "{} steps under the old plan, slowdown {:.3f}; energy of the other pipeline: predicted "
      "-{:.2f} %, measured -{:.2f} %; it delays the job by {:.2f} % (noise {:.2f} %)\n",
      alone.end - alone.begin, straggler.at("slowdown").get<double>(), predicted * 100, saved * 100,
      delay * 100, noise * 100);
}

}  // namespace
}  // namespace perseus
