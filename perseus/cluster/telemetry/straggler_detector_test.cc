#include "perseus/cluster/telemetry/straggler_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

namespace perseus::telemetry {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// A job whose pipelines report one step after the other. A pipeline takes `slowdown(pipeline,
// step)` times as long as expected.
class Job {
 public:
  explicit Job(int pipelines, double noise = 0.002) : pipelines_(pipelines), noise_(0, noise) {}

  std::function<double(int, std::int64_t)> slowdown = [](int, std::int64_t) { return 1.0; };
  std::function<double(int, std::int64_t)> expected = [](int, std::int64_t) { return 3.0; };
  std::function<std::int64_t(std::int64_t)> version = [](std::int64_t) { return 1; };
  double shared = 1.02;  // All steps take longer than planned by this factor.

  // Runs `steps` steps. Returns each change with the step after which it was reported.
  std::vector<std::pair<std::int64_t, StragglerChange>> Run(int steps) {
    std::vector<std::pair<std::int64_t, StragglerChange>> reported;
    for (int i = 0; i < steps; ++i, ++step_) {
      for (int pipeline = 0; pipeline < pipelines_; ++pipeline) {
        const double expected_s = expected(pipeline, step_);
        const double busy_s =
            expected_s * shared * slowdown(pipeline, step_) * (1 + noise_(random_));
        for (const StragglerChange& change :
             detector.Add({step_, pipeline, busy_s, expected_s, version(step_)}).changes) {
          reported.emplace_back(step_, change);
        }
      }
    }
    return reported;
  }
  std::int64_t step() const { return step_; }

  StragglerDetector detector;

 private:
  int pipelines_;
  std::int64_t step_ = 0;
  std::mt19937 random_{7};
  std::normal_distribution<double> noise_;
};

class DetectorTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Pipelines, DetectorTest, testing::Values(2, 3, 16));

TEST_P(DetectorTest, RaisesAndClearsAStragglerWithinThreeSteps) {
  Job job(GetParam());
  EXPECT_THAT(job.Run(20), IsEmpty());
  job.slowdown = [](int pipeline, std::int64_t step) {
    return pipeline == 0 && step < 60 ? 1.25 : 1.0;
  };
  const auto begin = job.Run(40);
  ASSERT_EQ(begin.size(), 1U);
  EXPECT_LE(begin[0].first, 20 + 2) << "steps 20, 21 and 22 are the three";
  EXPECT_EQ(begin[0].second.dp_rank, 0);
  EXPECT_NEAR(begin[0].second.slowdown, 1.25, 0.012);
  EXPECT_THAT(job.detector.Stragglers(), ElementsAre(Pair(0, DoubleNear(1.25, 0.012))));
  const auto end = job.Run(10);
  ASSERT_EQ(end.size(), 1U);
  EXPECT_EQ(end[0].second, (StragglerChange{0, 1}));
  EXPECT_LE(end[0].first, 60 + 3);
}

TEST_P(DetectorTest, IgnoresSingleSlowSteps) {
  Job job(GetParam());
  job.slowdown = [](int pipeline, std::int64_t step) {
    return pipeline == 0 && step % 7 == 3 ? 1.8 : 1.0;
  };
  EXPECT_THAT(job.Run(200), IsEmpty());
}

TEST_P(DetectorTest, IgnoresNoise) {
  for (const double noise : {0.001, 0.004, 0.01}) {
    Job job(GetParam(), noise);
    EXPECT_THAT(job.Run(GetParam() > 3 ? 300 : 2000), IsEmpty()) << noise;
  }
}

TEST(Detector, IgnoresPlannedSlowdowns) {
  Job job(4);
  job.expected = [](int pipeline, std::int64_t step) {
    return pipeline != 2 && step >= 10 ? 3.9 : 3.0;
  };
  job.version = [](std::int64_t step) { return step < 10 ? 1 : 2; };
  EXPECT_THAT(job.Run(60), IsEmpty());
}

TEST(Detector, IgnoresSlowdownsOfAllPipelines) {
  Job job(4);
  job.slowdown = [](int, std::int64_t step) { return step > 20 ? 1.4 : 1.0; };
  EXPECT_THAT(job.Run(60), IsEmpty());
}

TEST(Detector, DetectsSeveralStragglers) {
  Job job(5);
  job.slowdown = [](int pipeline, std::int64_t step) {
    if (step < 10) return 1.0;
    return pipeline == 1 ? 1.1 : pipeline == 3 ? 1.3 : 1.0;
  };
  job.Run(40);
  EXPECT_THAT(job.detector.Stragglers(),
              ElementsAre(Pair(1, DoubleNear(1.1, 0.012)), Pair(3, DoubleNear(1.3, 0.012))));
}

TEST(Detector, DetectsAPipelineThatIsSlowFromTheFirstStepOn) {
  Job job(2);
  job.slowdown = [](int pipeline, std::int64_t) { return pipeline == 1 ? 1.2 : 1.0; };
  job.Run(8);
  EXPECT_THAT(job.detector.Stragglers(), ElementsAre(Pair(1, DoubleNear(1.2, 0.012))));
}

TEST(Detector, FollowsASlowdownThatGrows) {
  Job job(3);
  job.slowdown = [](int pipeline, std::int64_t step) {
    return pipeline == 0 ? step < 10 ? 1.0 : step < 30 ? 1.1 : 1.4 : 1.0;
  };
  job.Run(60);
  EXPECT_THAT(job.detector.Stragglers(), ElementsAre(Pair(0, DoubleNear(1.4, 0.012))));
}

// A pipeline is slow for four steps, normal for five steps, and so on. Without hysteresis, the
// plans of the other pipelines would change 22 times in 200 steps.
TEST(Detector, AFlappingStragglerStaysRaised) {
  Job job(3);
  job.slowdown = [](int pipeline, std::int64_t step) {
    return pipeline == 0 && step >= 10 && step % 9 < 4 ? 1.3 : 1.0;
  };
  const auto changes = job.Run(210);
  int clears = 0;
  for (const auto& [step, change] : changes) clears += change.slowdown == 1 ? 1 : 0;
  EXPECT_LE(clears, 2);
  EXPECT_EQ(job.detector.Stragglers().size(), 1U);
  job.slowdown = [](int, std::int64_t) { return 1.0; };
  job.Run(StragglerDetector::kMaxToClear + 3);
  EXPECT_THAT(job.detector.Stragglers(), IsEmpty());
}

TEST(Detector, IgnoresLateAndRepeatedReports) {
  StragglerDetector detector;
  for (std::int64_t step = 0; step < 40; ++step) {
    for (int pipeline = 0; pipeline < 2; ++pipeline) {
      detector.Add({step, pipeline, pipeline == 1 && step >= 20 ? 4.0 : 3.0, 3, 1});
      for (std::int64_t again = std::max<std::int64_t>(0, step - 8); again < step - 3; ++again) {
        detector.Add({again, pipeline, 9, 3, 1});
      }
    }
  }
  EXPECT_THAT(detector.Stragglers(), ElementsAre(Pair(1, DoubleNear(4.0 / 3, 1e-9))));
}

TEST(Detector, JudgesARestartedJob) {
  Job job(2);
  job.Run(500);
  job.detector.Restart();
  for (std::int64_t step = 0; step < 12; ++step) {
    for (int pipeline = 0; pipeline < 2; ++pipeline) {
      job.detector.Add({step, pipeline, pipeline == 0 ? 4.5 : 3.0, 3, 1});
    }
  }
  EXPECT_THAT(job.detector.Stragglers(), ElementsAre(Pair(0, DoubleNear(1.5, 1e-9))));
}

TEST(Detector, ClearsAStragglerThatAnotherDetectorRaised) {
  Job job(2);
  job.detector.Raise(1, 1.3);
  const auto changes = job.Run(10);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].second, (StragglerChange{1, 1})) << "it is not slow any more";
}

// After an outage, one node after the other sends the steps of the outage. In the meantime, storage
// became slow.
TEST(Detector, LateBatchesRaiseNoStraggler) {
  Job job(2);
  job.Run(40);
  std::vector<StragglerChange> changes;
  for (int pipeline = 0; pipeline < 2; ++pipeline) {
    for (std::int64_t step = 40; step < 60; ++step) {
      const auto verdicts = job.detector.Add({step, pipeline, 3.3, 3, 1});
      changes.insert(changes.end(), verdicts.changes.begin(), verdicts.changes.end());
    }
  }
  EXPECT_THAT(changes, IsEmpty());
}

TEST(Detector, DoesNotJudgeASinglePipeline) {
  Job job(2);
  job.slowdown = [](int pipeline, std::int64_t) { return pipeline == 1 ? 1.2 : 1.0; };
  job.Run(8);
  ASSERT_EQ(job.detector.Stragglers().size(), 1U);
  for (std::int64_t step = 8; step < 60; ++step) {
    const auto verdicts = job.detector.Add({step, 1, step < 30 ? 3.6 : 3.0, 3, 1});
    EXPECT_THAT(verdicts.changes, IsEmpty());
    // Step 7 is the last step that both pipelines reported. It is judged when it is three steps
    // behind.
    EXPECT_EQ(verdicts.unchanged.size(), step == 10 ? 1U : 0U) << "step " << step;
  }
}

TEST(Detector, ReturnsUnchangedStragglers) {
  StragglerDetector detector;
  StragglerVerdicts last;
  for (std::int64_t step = 0; step < 20; ++step) {
    for (int pipeline = 0; pipeline < 3; ++pipeline) {
      last = detector.Add({step, pipeline, pipeline == 1 ? 3.6 : 3.0, 3, 1});
    }
  }
  EXPECT_THAT(last.changes, IsEmpty());
  EXPECT_THAT(last.unchanged, ElementsAre(Pair(1, DoubleNear(1.2, 1e-9))));
}

// A node still follows an older assignment, or reports a version that the server does not know.
TEST(Detector, IgnoresAPipelineWithAnUnknownAssignment) {
  StragglerDetector detector;
  for (std::int64_t step = 0; step < 20; ++step) {
    detector.Add({step, 0, 3.0, 3, 4});
    detector.Add({step, 1, step < 10 ? 3.0 : 3.9, 3, 4});
    detector.Add({step, 2, 4.5, 0, 3});
  }
  EXPECT_THAT(detector.Stragglers(), ElementsAre(Pair(1, DoubleNear(1.3, 1e-9))));
}

TEST(Detector, ASilentPipelineDoesNotDelayTheOthers) {
  Job job(3);
  job.Run(10);
  for (std::int64_t step = 10; step < 30; ++step) {
    for (int pipeline = 0; pipeline < 2; ++pipeline) {
      job.detector.Add({step, pipeline, pipeline == 0 ? 4.5 : 3.0, 3, 1});
    }
  }
  EXPECT_THAT(job.detector.Stragglers(), ElementsAre(Pair(0, DoubleNear(1.5, 1e-9))));
}

}  // namespace
}  // namespace perseus::telemetry
