#include "perseus/runtime/tuner/pace_rule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "perseus/base/random.h"

namespace perseus::tuner {
namespace {

// A job whose plans follow the rule. Pipeline 0 is the slowest one until another one becomes
// slower. Each pipeline needs `needs` (1: the time of pipeline 0) at its highest clock. Its plan
// ends with the slowest one. Other plans begin `kAhead` steps after a change is found.
class RuleTest : public testing::Test {
 protected:
  static constexpr int kPipelines = 8;
  static constexpr int kAhead = 3;

  RuleTest() {
    for (int i = 0; i < kPipelines; ++i) known_.push_back(1 - 0.01 * i);
    Plan();
  }

  // The true time at the highest clock.
  std::function<double(int dp_rank, std::int64_t step)> needs = [](int dp_rank, std::int64_t) {
    return 1 - 0.01 * dp_rank;
  };
  // With 0.1 %, a change that 3 steps show has an error of 0.07 %.
  double noise = 0.001;

  // Makes plans from what is known. 0: a pipeline has left.
  void Plan() {
    double pace = 0;
    for (const double time : known_) pace = std::max(pace, time);
    plans_.clear();
    for (int i = 0; i < kPipelines; ++i) {
      if (known_[static_cast<std::size_t>(i)] == 0) continue;
      plans_[i] = {pace, pace, known_[static_cast<std::size_t>(i)] == pace};
    }
    pace_ = pace;
    rule_.Begin(plans_);
    ++changes_;
  }

  void Run(std::int64_t steps) {
    for (const std::int64_t end = step_ + steps; step_ < end; ++step_) {
      RankRatios ratios;
      double slowest = 0;
      for (const auto& [dp_rank, plan] : plans_) {
        const double truth = needs(dp_rank, step_);
        if (truth == 0) continue;
        // A plan's clock stretches the time by a known factor.
        const double stretch = plan.time_s / known_[static_cast<std::size_t>(dp_rank)];
        const double time = truth * stretch * std::exp(noise * Normal(random_));
        ratios[{dp_rank, 0}] = time / plan.time_s;
        slowest = std::max(slowest, truth * stretch);
      }
      slowest_.push_back(slowest);
      if (step_ < begins_) continue;  // Ranks still follow the plans before.
      rule_.Add(step_, ratios);
      const auto change = rule_.FindChanges();
      if (!change) continue;
      for (int i = 0; i < kPipelines; ++i) {
        double& time = known_[static_cast<std::size_t>(i)];
        const auto found = change->find({i, 0});
        if (found == change->end()) {
          time = 0;
          continue;
        }
        time *= found->second.ratio;
        // A rank that has recovered is as fast as before.
        const double before = 1 - 0.01 * i;
        if (std::abs(time / before - 1) < 2 * found->second.error) time = before;
      }
      Plan();
      begins_ = step_ + kAhead;
    }
  }
  // How long the job's step is, compared with the slowest pipeline at its highest clock.
  double LostAt(std::int64_t step) const {
    double least = 0;
    for (int i = 0; i < kPipelines; ++i) least = std::max(least, needs(i, step));
    return slowest_[static_cast<std::size_t>(step)] / least - 1;
  }

  PaceRule rule_;
  std::vector<double> known_;
  std::map<int, PlannedPace> plans_;
  double pace_ = 1;
  int changes_ = -1;  // Without the first plans.
  std::int64_t step_ = 0;
  std::int64_t begins_ = 0;
  std::vector<double> slowest_;
  std::mt19937_64 random_{7};
};

class NoiseTest : public RuleTest, public testing::WithParamInterface<double> {};

TEST_P(NoiseTest, ChangesNothing) {
  noise = GetParam();
  Run(4000);
  EXPECT_EQ(changes_, 0);
}

INSTANTIATE_TEST_SUITE_P(Deviations, NoiseTest, testing::Values(0.0, 0.0005, 0.002, 0.02));

TEST_F(RuleTest, OthersFollowASlowRankAndComeBack) {
  needs = [](int dp_rank, std::int64_t step) {
    const double slow = dp_rank == 0 && step >= 100 && step < 200 ? 1.15 : 1;
    return slow * (1 - 0.01 * dp_rank);
  };
  Run(150);
  EXPECT_EQ(changes_, 1);
  EXPECT_NEAR(pace_, 1.15, 0.01) << "within 50 steps, the others take as long as the slow one";
  Run(50);
  EXPECT_EQ(changes_, 1);
  Run(20);
  EXPECT_EQ(changes_, 2);
  EXPECT_NEAR(pace_, 1, 0.01);
  Run(100);
  EXPECT_LT(LostAt(219), 0.001) << "20 steps after the recovery";
  EXPECT_LT(LostAt(319), 0.001);
}

// A rank that was fast has slack at first.
TEST_F(RuleTest, AFastRankThatBecomesTheSlowest) {
  needs = [](int dp_rank, std::int64_t step) {
    const double slow = dp_rank == 5 && step >= 100 && step < 200 ? 1.15 : 1;
    return slow * (1 - 0.01 * dp_rank);
  };
  Run(150);
  EXPECT_NEAR(pace_, 0.95 * 1.15, 0.01);
  EXPECT_TRUE(plans_.at(5).sets_pace);
  Run(70);
  EXPECT_NEAR(pace_, 1, 0.01);
  EXPECT_TRUE(plans_.at(0).sets_pace);
  EXPECT_LT(LostAt(219), 0.001);
}

TEST_F(RuleTest, TwoSlowRanks) {
  needs = [](int dp_rank, std::int64_t step) {
    const bool is_slow =
        (dp_rank == 2 && step >= 100 && step < 200) || (dp_rank == 6 && step >= 100 && step < 300);
    return (is_slow ? 1.15 : 1) * (1 - 0.01 * dp_rank);
  };
  Run(150);
  EXPECT_NEAR(pace_, 0.98 * 1.15, 0.01);
  Run(70);  // One of them recovers.
  EXPECT_NEAR(pace_, 0.94 * 1.15, 0.01);
  Run(100);
  EXPECT_NEAR(pace_, 1, 0.01);
}

TEST_F(RuleTest, TheSlowRankLeaves) {
  needs = [](int dp_rank, std::int64_t step) {
    if (dp_rank == 0 && step >= 100) return 0.0;
    return 1 - 0.01 * dp_rank;
  };
  Run(100);
  EXPECT_EQ(changes_, 0);
  Run(20);
  EXPECT_EQ(changes_, 1);
  EXPECT_FALSE(plans_.contains(0));
  EXPECT_NEAR(pace_, 0.99, 0.002);
}

TEST_F(RuleTest, AnotherRankLeaves) {
  needs = [](int dp_rank, std::int64_t step) {
    if (dp_rank == 3 && step >= 100) return 0.0;
    return 1 - 0.01 * dp_rank;
  };
  Run(300);
  EXPECT_EQ(changes_, 0);
}

// A plan that was made with a small error delays the job.
TEST_F(RuleTest, ALatePipelineIsCorrected) {
  needs = [](int dp_rank, std::int64_t) {
    return dp_rank == 4 ? 0.96 * 1.003 : 1 - 0.01 * dp_rank;
  };
  Run(60);
  EXPECT_GE(changes_, 1);
  EXPECT_LT(LostAt(59), 0.001);
}

TEST_F(RuleTest, ACheckpointChangesNothing) {
  needs = [](int dp_rank, std::int64_t step) {
    return (step % 50 < 2 ? 2.0 : 1.0) * (1 - 0.01 * dp_rank) * (step % 37 == 0 ? 1.1 : 1);
  };
  Run(1000);
  EXPECT_EQ(changes_, 0);
}

// Slow for 30 steps, every 60 steps.
TEST_F(RuleTest, PlansDoNotFlap) {
  needs = [](int dp_rank, std::int64_t step) {
    return (dp_rank == 0 && step % 60 < 30 ? 1.15 : 1) * (1 - 0.01 * dp_rank);
  };
  Run(1200);  // 20 times.
  EXPECT_LE(changes_, 26);
}

}  // namespace
}  // namespace perseus::tuner
