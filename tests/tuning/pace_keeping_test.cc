// `perseus tune --keep-pace` on virtual GPUs: a GPU becomes hot while the job trains, and cools
// down. The coordinator sees only the ranks' logs.
#include "perseus/runtime/tuner/pace_keeping.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"
#include "tests/support/temporary_directory.h"
#include "tests/tuning/virtual_pipeline.h"

namespace perseus {
namespace {

using ::testing::HasSubstr;

class PaceKeepingTest : public testing::Test {
 protected:
  enum class Speeds { kScatter, kEqual };  // Scatter: the times of pipelines do, by 5 %.
  // A job that is tuned.
  void TuneJob(int pipelines, int stages, Speeds speeds = Speeds::kScatter) {
    synthetic::SyntheticProfileSpec spec;
    spec.pp_ranks = pipelines * stages;
    spec.imbalance = 0.05;
    spec.language_model_head = 0;
    const profile::Profile all = synthetic::SynthesizeProfile(spec).value();
    std::vector<profile::Profile> truths;
    for (int i = 0; i < pipelines; ++i) {
      truths.push_back(StagesFrom(all, speeds == Speeds::kScatter ? i * stages : 0, stages));
    }
    profiler::SweepJob sweep;
    sweep.schedule = schedule::GenerateSchedule({"1f1b", stages, 4, 1}).value();
    sweep.model.blocking_power_w = 84;
    std::vector<int> clocks;
    for (const profile::Option& option : all.entries()[0].options) {
      clocks.push_back(option.frequency_mhz);
    }
    std::ranges::sort(clocks);
    sweep.clocks_mhz.assign(static_cast<std::size_t>(stages), clocks);
    job_.emplace(sweep, truths, VirtualPipelineSpec{.noise = 0.002}, directory_.path());
    options_.job_directory = directory_.path();
    options_.job.schedule = sweep.schedule;
    options_.job.pipelines = pipelines;
    options_.changes.limit = recipe::ChangeRules::Limit::kNone;
    options_.budget.steps = 40;
    options_.should_end = [this] {
      job_->RunStep();
      return false;
    };
    options_.say = [](std::string_view text) {
      if (text.starts_with("pipeline")) std::cout << text << '\n';
    };
    ASSERT_TRUE(tuner::Tune(options_, clock_));
  }

  static profile::Profile StagesFrom(const profile::Profile& all, int first, int count) {
    std::vector<profile::ProfileEntry> entries;
    for (const profile::ProfileEntry& entry : all.entries()) {
      if (entry.pp_rank < first || entry.pp_rank >= first + count) continue;
      entries.push_back(entry);
      entries.back().pp_rank -= first;
    }
    return profile::Profile("a pipeline", {}, std::move(entries));
  }

  // Keeps the pace for so many steps. Calls `before_step` with the number of each of them.
  Result<tuner::KeptPace> Keep(int steps, const std::function<void(int)>& before_step) {
    int number = -1;
    begins_ = -1;
    options_.should_end = [this, steps, number, before_step]() mutable {
      // The first steps pass until the ranks are known.
      if (begins_ < 0) begins_ = job_->steps();
      ++number;
      before_step(number);
      job_->RunStep();
      return number >= steps;
    };
    return tuner::KeepPace(options_, clock_);
  }
  double MedianOf(int first, int end) const {
    std::vector<double> times;
    for (int step = first; step < end; ++step) times.push_back(job_->TimeOfStep(begins_ + step));
    std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
    return times[times.size() / 2];
  }
  protocol::Assignment InForce() const { return **protocol::ReadAssignment(directory_.path()); }
  std::size_t Plans() const {
    return protocol::ListJobFolder(directory_.path(), "plans").value().size();
  }

  TemporaryDirectory directory_;
  std::optional<VirtualPipeline> job_;
  tuner::TuningOptions options_;
  FakeClock clock_;
  std::int64_t begins_ = 0;  // The first step of Keep().
};

TEST_F(PaceKeepingTest, OnlyNoise) {
  TuneJob(4, 1);
  const protocol::Assignment before = InForce();
  EXPECT_EQ(Keep(300, [](int) {}).value().changes, 0);
  EXPECT_EQ(InForce(), before);
}

class HotGpuTest : public PaceKeepingTest, public testing::WithParamInterface<int> {};

TEST_P(HotGpuTest, OthersFollowItAndComeBack) {
  TuneJob(4, 1);
  const protocol::Assignment before = InForce();
  protocol::Assignment while_hot;
  const auto kept = Keep(400, [&](int step) {
    if (step == 100) job_->Throttle(GetParam(), 0, 1155);
    if (step == 150) while_hot = InForce();
    if (step == 250) job_->Throttle(GetParam(), 0, std::nullopt);
  });
  const double usual_s = MedianOf(50, 100);
  std::cout << fmt::format("{} changes, hot {:+.2f} %, after {:+.2f} %\n", kept.value().changes,
                           100 * (MedianOf(150, 250) / usual_s - 1),
                           100 * (MedianOf(270, 400) / usual_s - 1));
  EXPECT_NE(while_hot.version, before.version) << "others follow within 50 steps";
  EXPECT_TRUE(while_hot.until_step);
  EXPECT_LT(MedianOf(270, 400), 1.002 * usual_s) << "20 steps after it has cooled down";
  EXPECT_EQ(InForce().plan, before.plan) << "at the end, the plans of tune are in force";
  EXPECT_FALSE(InForce().until_step);
}

INSTANTIATE_TEST_SUITE_P(Pipelines, HotGpuTest, testing::Range(0, 4));

// The same for a stage of a pipeline.
TEST_F(PaceKeepingTest, AHotStage) {
  TuneJob(2, 2);
  const protocol::Assignment before = InForce();
  protocol::Assignment while_hot;
  const auto kept = Keep(400, [&](int step) {
    if (step == 100) job_->Throttle(0, 1, 1155);
    if (step == 150) while_hot = InForce();
    if (step == 250) job_->Throttle(0, 1, std::nullopt);
  });
  EXPECT_GE(kept.value().changes, 2);
  EXPECT_NE(while_hot.version, before.version);
  EXPECT_LT(MedianOf(270, 400), 1.002 * MedianOf(50, 100));
}

// A verification runs steps at the default clocks, and then restores the plans of `tune`.
TEST_F(PaceKeepingTest, AnotherCoordinatorInterrupts) {
  TuneJob(4, 1);
  std::optional<protocol::AssignmentWriter> writer;
  const auto kept = Keep(300, [&](int step) {
    if (step == 100) {
      writer = protocol::AssignmentWriter::Open(directory_.path()).value();
      protocol::Assignment baseline;
      baseline.until_step = job_->steps() + 60;
      EXPECT_TRUE(writer->Write(std::move(baseline), job_->steps()));
    }
    if (step == 120) job_->Throttle(1, 0, 1155);
    if (step == 140) {
      EXPECT_TRUE(writer->Restore());
      writer.reset();
    }
    if (step == 190) {
      EXPECT_TRUE(InForce().until_step) << "others follow the hot GPU";
    }
  });
  EXPECT_GE(kept.value().changes, 1);
}

TEST_F(PaceKeepingTest, ATakenBackPlanEndsIt) {
  TuneJob(4, 1);
  const auto kept = Keep(300, [&](int step) {
    if (step != 100) return;
    protocol::Assignment own;
    own.own = true;
    EXPECT_TRUE(protocol::AssignmentWriter::Open(directory_.path())->Write(std::move(own), 0));
  });
  ASSERT_FALSE(kept);
  EXPECT_THAT(kept.error().Message(), HasSubstr("another assignment replaced the plans of tune"));
  EXPECT_TRUE(InForce().own);
}

TEST_F(PaceKeepingTest, WithoutDifferences) {
  TuneJob(4, 1, Speeds::kEqual);
  const protocol::Assignment before = InForce();
  const auto kept = Keep(10, [](int) {});
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().kind, ErrorKind::kUnreachable);
  EXPECT_THAT(kept.error().Message(), HasSubstr("no difference between pipelines"));
  EXPECT_EQ(InForce(), before);
}

// When the others follow the hot GPU, steps become longer for another reason: it is hotter. The
// coordinator cannot know that its plans are not the reason, so it takes them back.
TEST_F(PaceKeepingTest, PlansAfterWhichStepsAreLongerAreTakenBack) {
  TuneJob(4, 1);
  const protocol::Assignment before = InForce();
  bool is_followed = false;
  const auto kept = Keep(300, [&](int step) {
    if (step == 100) job_->Throttle(1, 0, 1155);
    const protocol::Assignment now = InForce();
    if (is_followed || !now.until_step || job_->steps() < now.from_step) return;
    is_followed = true;
    job_->Throttle(1, 0, 1005);
  });
  EXPECT_TRUE(is_followed);
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().kind, ErrorKind::kUnreachable);
  EXPECT_THAT(kept.error().Message(), HasSubstr("so they are taken back"));
  EXPECT_EQ(InForce().plan, before.plan);
  EXPECT_FALSE(InForce().until_step);
}

TEST_F(PaceKeepingTest, ManyChangesLeaveFewFiles) {
  constexpr std::size_t kPipelines = 4;
  TuneJob(kPipelines, 1);
  const std::size_t before = Plans();
  const auto kept = Keep(800, [&](int step) {
    if (step % 100 != 0) return;
    const bool is_hot = step / 100 % 2 == 1;
    job_->Throttle(1, 0, is_hot ? std::optional(1200 - step / 4) : std::nullopt);
  });
  EXPECT_GE(kept.value().changes, 7);
  EXPECT_LE(Plans(), before + 2 * kPipelines);
}

TEST_F(PaceKeepingTest, WithoutPlans) {
  TuneJob(4, 1);
  protocol::Assignment own;
  own.own = true;
  EXPECT_TRUE(protocol::AssignmentWriter::Open(directory_.path())->Write(std::move(own), 0));
  const auto kept = Keep(300, [&](int) {});
  ASSERT_FALSE(kept);
  EXPECT_THAT(kept.error().Message(), HasSubstr("no plans of tune are in force"));
}

}  // namespace
}  // namespace perseus
