// The complete `perseus tune` on the published measurements. Virtual GPUs have the times and powers
// of these measurements. The coordinator sees only the ranks' logs.
#include "perseus/runtime/tuner/tuning.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/file.h"
#include "perseus/planning/noise/noise_margin.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/plan/make_plan_file.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"
#include "tests/support/published_job.h"
#include "tests/support/temporary_directory.h"
#include "tests/tuning/virtual_pipeline.h"

namespace perseus {
namespace {

using ::testing::Not;
using ::testing::StartsWith;

// Returns the job of some stages of a profile. The stages are numbered from 0.
profile::Profile SomeStages(const profile::Profile& all, const std::vector<int>& stages) {
  std::vector<profile::ProfileEntry> entries;
  for (const profile::ProfileEntry& entry : all.entries()) {
    const auto stage = std::ranges::find(stages, entry.pp_rank);
    if (stage == stages.end()) continue;
    entries.push_back(entry);
    entries.back().pp_rank = static_cast<int>(stage - stages.begin());
  }
  return profile::Profile("some stages", {}, std::move(entries));
}

struct PowerLimit {
  double before_w = 0;  // 0: no power limit.
  double after_w = 0;
  std::int64_t falls_in_step = -1;  // Negative: the limit does not change.
  double wander = 0;                // The wander of the clock at the limit.
};

class TunedPublishedJob : public testing::TestWithParam<PublishedJob> {
 protected:
  struct Tuned {
    tuner::TuningResult result;
    double slowdown = 0;          // The slowdown without noise.
    noise::NoisyDifference mean;  // With the noise of the virtual GPUs.
    // The loss of mean energy, compared with a plan with a margin from the whole true profile.
    double loss = 0;
  };
  // Returns the job without a power limit. It is tuned once for all tests.
  static const Tuned& TunedJob() {
    static std::map<std::string, Tuned> tuned;
    const std::string name(GetParam().name);
    if (!tuned.contains(name)) tuned.emplace(name, Tune(ReadPublishedProfile(GetParam())));
    return tuned.at(name);
  }
  // Tunes the job, and evaluates the plan with the true profile at the last power limit. The
  // coordinator has to measure the blocking power. `unlimited`: the true profile without a power
  // limit.
  static Tuned Tune(const profile::Profile& unlimited, const PowerLimit& limit = {}) {
    const bool falls = limit.falls_in_step >= 0;
    const double power_limit_w = falls ? limit.after_w : limit.before_w;
    const profile::Profile truth =
        power_limit_w > 0 ? AtPowerLimit(unlimited, power_limit_w) : unlimited;
    const profiler::SweepJob sweep = SweepJobOf(GetParam(), truth);
    const TemporaryDirectory directory;
    VirtualPipeline pipeline(sweep, unlimited,
                             {.power_limit_w = limit.before_w, .power_limit_wander = limit.wander},
                             directory.path());
    tuner::TuningOptions options;
    options.job_directory = directory.path();
    options.say = [](std::string_view text) {
      EXPECT_THAT(std::string(text), Not(StartsWith("warning")));
      const bool is_of_limit = text.find("power limit") != text.npos;
      if (is_of_limit || text.starts_with("round")) std::cout << text << '\n';
    };
    options.job.schedule = sweep.schedule;
    // A limit of clock changes would cost more than the measurements, but this test is about the
    // measurements.
    options.changes.limit = recipe::ChangeRules::Limit::kNone;
    options.leaves_plan_in_force = true;
    // The coordinator waits only for steps, so each wait runs one step.
    options.should_end = [&] {
      if (pipeline.steps() == limit.falls_in_step) pipeline.SetPowerLimit(limit.after_w);
      pipeline.RunStep();
      return false;
    };
    FakeClock clock;
    const tuner::TuningResult result = perseus::tuner::Tune(options, clock).value();
    const TrueJob job(sweep, truth);
    const auto chosen =
        plan_file::FindOptions(result.plan, job.planner().graph(), "the plan").value();
    const noise::NoisyExecution judge(job.planner().graph(), job.planner().model(), kNoise, 2000,
                                      99);
    const std::vector<int> baseline = schedule::BaselineOptions(job.planner().graph());
    const noise::NoisyDifference mean = judge.Compare(chosen, baseline);
    const plan::Plan full = job.planner().PlanFor(job.planner().baseline().time).value();
    const noise::NoisyPlan best = noise::AddNoiseMargin(job.planner(), full, kNoise, 0).value();
    const double best_saving = judge.Compare(best.plan.options, baseline).saving;
    const Tuned tuned{result, job.Judge(chosen).slowdown, mean,
                      (best_saving - mean.saving) / (1 - best_saving)};
    std::cout << fmt::format(
        "loss {:.3f} %, slowdown {:+.3f} %, mean {:+.3f} ± {:.3f} %, saving {:.2f} %, {} "
        "clocks, {} steps; noise {:.3f} ± {:.3f} % and {:.3f} ± {:.3f} %\n",
        100 * tuned.loss, 100 * tuned.slowdown, 100 * mean.slowdown, 100 * mean.slowdown_ci,
        100 * mean.saving, result.frequencies, result.spent.steps,
        100 * result.noise->noise.independent, 100 * result.noise->independent_ci,
        100 * result.noise->noise.common, 100 * result.noise->common_ci);
    return tuned;
  }
  // Returns the profile of GPUs with this power limit: all clocks above the clocks that fit are the
  // same.
  static profile::Profile AtPowerLimit(const profile::Profile& truth, double limit_w) {
    std::vector<profile::ProfileEntry> entries(truth.entries().begin(), truth.entries().end());
    for (profile::ProfileEntry& entry : entries) {
      const auto fits = [&](const profile::Option& option) {
        return option.energy_j <= virtual_gpu::kPowerLimitSlack * limit_w * ToSeconds(option.time);
      };
      const auto reached = std::ranges::find_if(entry.options, fits);
      for (auto option = entry.options.begin(); option != reached; ++option) {
        option->time = reached->time;
        option->energy_j = reached->energy_j;
      }
    }
    return profile::Profile(truth.name(), {}, std::move(entries));
  }
  // Expects that the plan is not slower, with noise and without. 0.1 % is the requirement
  // (sweep_test.cc).
  static void ExpectInTime(const Tuned& tuned) {
    EXPECT_LE(tuned.slowdown, 0.001);
    EXPECT_LE(tuned.mean.slowdown, 0.001);
    ASSERT_TRUE(tuned.result.noise);
    EXPECT_NEAR(tuned.result.noise->noise.independent, kNoise.independent, 0.0005);
    // With 24 microbatches, the error of the common part is about 1 % / sqrt(48). With more steps,
    // the error is smaller.
    EXPECT_LE(tuned.result.noise->noise.common, 0.001);
  }
  static constexpr noise::Noise kNoise{.independent = 0.01};
};

INSTANTIATE_TEST_SUITE_P(Both, TunedPublishedJob, testing::ValuesIn(kPublishedJobs),
                         [](const auto& job) { return std::string(job.param.name); });

// The sweep measures ten of the 38 or 60 clocks, with 1 % noise and a counter period of 100 ms. The
// energy limit is the requirement.
TEST_P(TunedPublishedJob, LosesLittleAgainstAFullSweep) {
  const Tuned& tuned = TunedJob();
  EXPECT_LE(tuned.result.frequencies, 10);
  EXPECT_LE(tuned.result.spent.steps, 60);
  EXPECT_LE(tuned.loss, 0.005);
  ExpectInTime(tuned);
  EXPECT_NEAR(tuned.result.blocking_power_w, GetParam().blocking_power_w, 0.1);
}

// The saving that the plan promises after the job has followed it is the true saving.
TEST_P(TunedPublishedJob, PlanPromisesItsTrueSaving) {
  const plan_file::PlanFile& plan = TunedJob().result.plan;
  const tuner::SeenSteps& seen = *TunedJob().result.seen;
  EXPECT_NEAR(1 - plan.energy_j / plan.baseline_energy_j, seen.saving(), 0.003);
  std::cout << fmt::format("seen: {:+.3f} % slower, {:.2f} % saved\n", 100 * seen.slowdown(),
                           100 * seen.saving());
  // The median of twelve steps has an error.
  EXPECT_LT(seen.slowdown(), 0.001 + 3 * seen.time_error_s / seen.baseline_time_s);
}

// Large trainings run at their power limit. At this limit, kinds of instructions reach different
// clocks. Four stages are enough, because all stages except the last one are equal.
TEST_P(TunedPublishedJob, PlanPromisesItsTrueSavingAtAPowerLimit) {
  const profile::Profile truth = SomeStages(ReadPublishedProfile(GetParam()), {0, 1, 2, 7});
  const profile::Option& fastest = truth.entries()[0].options.front();
  for (const double share : {0.73, 0.88}) {
    const Tuned tuned = Tune(truth, {share * fastest.energy_j / ToSeconds(fastest.time)});
    EXPECT_LE(tuned.loss, 0.005);
    ExpectInTime(tuned);
    const plan_file::PlanFile& plan = tuned.result.plan;
    const double promised = 1 - plan.energy_j / plan.baseline_energy_j;
    EXPECT_GT(promised, 0.01);
    EXPECT_NEAR(promised, tuned.result.seen->saving(), 0.003);
    // If no GPU reaches a clock, the clock is neither planned nor measured.
    for (const profile::ProfileEntry& entry : tuned.result.planned.entries()) {
      EXPECT_LT(entry.options.front().frequency_mhz, 0.95 * fastest.frequency_mhz);
    }
  }
}

// At the power limit, the clock wanders by 1.8 %, so GPUs sometimes reach clocks that are 5 %
// higher than usual.
TEST_P(TunedPublishedJob, PlanPromisesItsTrueSavingIfTheClockWanders) {
  const profile::Profile truth = SomeStages(ReadPublishedProfile(GetParam()), {0, 1, 2, 7});
  const profile::Option& fastest = truth.entries()[0].options.front();
  const double limit_w = 0.73 * fastest.energy_j / ToSeconds(fastest.time);
  const Tuned tuned = Tune(truth, {.before_w = limit_w, .wander = 0.018});
  const plan_file::PlanFile& plan = tuned.result.plan;
  const tuner::SeenSteps& seen = *tuned.result.seen;
  EXPECT_NEAR(1 - plan.energy_j / plan.baseline_energy_j, seen.saving(), 0.003);
  EXPECT_GT(seen.saving(), 0.03);
  EXPECT_LT(seen.slowdown(), 0.001 + 3 * seen.time_error_s / seen.baseline_time_s);
  // The reported clocks are the usual ones.
  for (const auto& [kind, range] : tuned.result.reached) {
    int reached_mhz = 0;
    for (const profile::ProfileEntry& entry : AtPowerLimit(truth, limit_w).entries()) {
      for (const profile::Option& option : entry.options) {
        const bool is_reached = entry.kind == kind && option.time == entry.options.front().time;
        if (is_reached) reached_mhz = option.frequency_mhz;
      }
    }
    EXPECT_NEAR(range.highest_mhz, reached_mhz, 0.025 * reached_mhz);
  }
}

// Heat lowers the clocks that the power limit permits while the job is tuned: during the descent,
// and during the adaptive rounds.
TEST_P(TunedPublishedJob, PlanPromisesItsTrueSavingAfterThePowerLimitFell) {
  const profile::Profile truth = SomeStages(ReadPublishedProfile(GetParam()), {0, 1, 2, 7});
  const profile::Option& fastest = truth.entries()[0].options.front();
  const double fastest_w = fastest.energy_j / ToSeconds(fastest.time);
  for (const std::int64_t step : {25, 50}) {
    const Tuned tuned = Tune(truth, {0.88 * fastest_w, 0.73 * fastest_w, step});
    EXPECT_LE(tuned.loss, 0.005);
    ExpectInTime(tuned);
    const plan_file::PlanFile& plan = tuned.result.plan;
    EXPECT_NEAR(1 - plan.energy_j / plan.baseline_energy_j, tuned.result.seen->saving(), 0.003);
  }
}

// Other plans that a server makes with the measured options also promise their true saving, within
// half a percentage point. A planner prefers options that look better than they are because of
// noise.
TEST_P(TunedPublishedJob, OtherPlansPromiseTheirTrueSaving) {
  const profile::Profile truth = ReadPublishedProfile(GetParam());
  const profiler::SweepJob sweep = SweepJobOf(GetParam(), truth);
  const TrueJob job(sweep, truth);
  const plan::Planner planner = profiler::PlannerOf(sweep, TunedJob().result.options).value();
  const plan::Plan plan = plan::PlanForTarget(planner, nullptr, plan::Target{}).value();
  plan_file::PlannedJob planned;
  planned.schedule = sweep.schedule;
  planned.model = sweep.model;
  const plan_file::PlanFile file = plan::DescribePlan(planner, plan, planned);
  const auto chosen = plan_file::FindOptions(file, job.planner().graph(), "the plan").value();
  const plan::Evaluation actual =
      plan::Evaluator(job.planner().graph(), job.planner().model()).Evaluate(chosen);
  const double promised = 1 - plan.evaluation.energy_j / planner.baseline().energy_j;
  const double saved = 1 - actual.energy_j / job.planner().baseline().energy_j;
  EXPECT_NEAR(promised, saved, 0.005);
  EXPECT_LE(job.Judge(chosen).slowdown, 0.001);
}

// A GPU is hot only while the second plan is measured.
TEST(TunedSmallJob, FollowsTheFirstPlanIfOnlyTheSecondOneMakesStepsTooLong) {
  const profile::Profile truth =
      synthetic::SynthesizeProfile({.pp_ranks = 3, .imbalance = 0.1}).value();
  profiler::SweepJob sweep;
  sweep.schedule = schedule::GenerateSchedule({"1f1b", 3, 6, 1}).value();
  sweep.model.blocking_power_w = 84;
  std::vector<int> clocks;
  for (const profile::Option& option : truth.entries()[0].options) {
    clocks.insert(clocks.begin(), option.frequency_mhz);
  }
  sweep.clocks_mhz.assign(3, clocks);
  for (const bool gets_hot : {false, true}) {
    SCOPED_TRACE(gets_hot);
    const TemporaryDirectory directory;
    VirtualPipeline pipeline(sweep, truth, {.noise = 0.002}, directory.path());
    tuner::TuningOptions options;
    options.job_directory = directory.path();
    options.job.schedule = sweep.schedule;
    options.changes.limit = recipe::ChangeRules::Limit::kNone;
    int followed = 0;
    bool is_first_again = false;
    options.say = [&](std::string_view text) {
      followed += text.starts_with("following a plan") ? 1 : 0;
      is_first_again |= text.find("the one before, which is in force again") != text.npos;
    };
    options.should_end = [&] {
      const bool is_hot = gets_hot && followed == 2;
      for (int rank = 0; rank < 3; ++rank) {
        pipeline.Throttle(0, rank,
                          is_hot ? std::optional(clocks[clocks.size() / 2]) : std::nullopt);
      }
      pipeline.RunStep();
      return false;
    };
    FakeClock clock;
    const auto result = perseus::tuner::Tune(options, clock);
    ASSERT_TRUE(result) << result.error().Message();
    EXPECT_EQ(followed, 2);
    EXPECT_EQ(is_first_again, gets_hot);
    EXPECT_LT(result->seen->slowdown(), 0.002);
    const auto now = protocol::ReadAssignment(directory.path()).value();
    const std::string plan = ReadFile(directory.path() / now->plan).value();
    EXPECT_EQ(plan_file::ParsePlan(plan, "plan").value().time, result->plan.time);
  }
}

// A GPU is hot only while the first plan is measured. That counts as noise of whole steps.
TEST(TunedSmallJob, RemembersTheNoiseOfWholeSteps) {
  const profile::Profile truth =
      synthetic::SynthesizeProfile({.pp_ranks = 3, .imbalance = 0.1}).value();
  profiler::SweepJob sweep;
  sweep.schedule = schedule::GenerateSchedule({"1f1b", 3, 6, 1}).value();
  sweep.model.blocking_power_w = 84;
  std::vector<int> clocks;
  for (const profile::Option& option : truth.entries()[0].options) {
    clocks.insert(clocks.begin(), option.frequency_mhz);
  }
  sweep.clocks_mhz.assign(3, clocks);
  const TemporaryDirectory directory;
  VirtualPipeline pipeline(sweep, truth, {.noise = 0.002}, directory.path());
  tuner::TuningOptions options;
  options.job_directory = directory.path();
  options.job.schedule = sweep.schedule;
  options.changes.limit = recipe::ChangeRules::Limit::kNone;
  int followed = 0;
  options.say = [&](std::string_view text) {
    followed += text.starts_with("following a plan") ? 1 : 0;
  };
  options.should_end = [&] {
    pipeline.Throttle(0, 0,
                      followed == 1 ? std::optional(clocks[clocks.size() / 2]) : std::nullopt);
    pipeline.RunStep();
    return false;
  };
  FakeClock clock;
  const auto noise_after_tuning = [&] {
    const auto result = perseus::tuner::Tune(options, clock);
    EXPECT_TRUE(result) << result.error().Message();
    const std::string state = ReadFile(directory.path() / "tuner.json").value();
    return profiler::ParseProfilerState(state, "tuner.json").value().further_noise;
  };
  const double noise = noise_after_tuning();
  EXPECT_GT(noise, 0.001);
  EXPECT_GE(noise_after_tuning(), noise);  // Nothing is hot by now.
  EXPECT_EQ(followed, 4);
}

// Few microbatches and much noise: 3 pp_ranks, 7 microbatches, 2 % noise on each instruction.
TEST(TunedSmallJob, AnnouncesWhatItSavesAndWhatIsLeft) {
  const PublishedJob& published = kPublishedJobs[0];
  const profile::Profile truth = SomeStages(ReadPublishedProfile(published), {1, 4, 7});
  profiler::SweepJob sweep = SweepJobOf(published, truth);
  sweep.schedule = schedule::GenerateSchedule({"1f1b", 3, 7, 1}).value();
  const TrueJob job(sweep, truth);
  constexpr int kRuns = 2;
  double announced = 0;
  double saved = 0;
  double found = 0;
  double left = 0;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    const TemporaryDirectory directory;
    VirtualPipeline pipeline(sweep, truth, {.noise = 0.02, .seed = seed}, directory.path());
    tuner::TuningOptions options;
    options.job_directory = directory.path();
    options.job.schedule = sweep.schedule;
    std::string last;
    options.say = [&](std::string_view text) {
      if (text.starts_with("plan 2 of 2")) last = text;
    };
    options.should_end = [&] {
      pipeline.RunStep();
      return false;
    };
    FakeClock clock;
    const tuner::TuningResult result = perseus::tuner::Tune(options, clock).value();
    const auto chosen =
        plan_file::FindOptions(result.plan, job.planner().graph(), "the plan").value();
    const plan::Evaluation actual =
        plan::Evaluator(job.planner().graph(), job.planner().model()).Evaluate(chosen);
    const double saving = 1 - actual.energy_j / job.planner().baseline().energy_j;
    ASSERT_TRUE(result.expected);
    double percent = 0;
    ASSERT_EQ(std::sscanf(last.c_str(), "plan 2 of 2 saves %lf %%", &percent), 1) << last;
    // Compared with the plan from the true profile, with a margin for the same noise.
    const plan::Plan full = job.planner().PlanFor(job.planner().baseline().time).value();
    const noise::NoisyPlan best =
        noise::AddNoiseMargin(job.planner(), full, {.independent = 0.02}, 0).value();
    const double loss =
        1 - best.plan.evaluation.energy_j / job.planner().baseline().energy_j - saving;
    std::cout << fmt::format(
        "seed {}: announced {:.2f} %, saves {:.2f} %, promised {:.2f} %; left {:.2f} %, expected "
        "{:.2f} % and {:.2f} % with twice the steps; {} of {} steps\n",
        seed, percent, 100 * saving,
        100 * (1 - result.plan.energy_j / result.plan.baseline_energy_j), 100 * loss,
        100 * result.expected->left, 100 * result.expected->twice, result.spent.steps,
        result.steps_taken);
    announced += percent / 100 / kRuns;
    saved += saving / kRuns;
    found += loss / kRuns;
    left += result.expected->left / kRuns;
    EXPECT_LE(result.expected->twice, result.expected->left);
    // While the job still runs, the plan stays in force, after all steps that the tuning took.
    EXPECT_LE(result.plan_from_step, pipeline.steps());
    EXPECT_GT(result.plan_from_step, result.spent.steps);
    EXPECT_GE(result.steps_taken, result.plan_from_step - 1);
  }
  // Twelve steps of 42 instructions with 2 % noise, once for the plan and once for the baseline.
  // Most noise of an instruction disappears in the slack of other instructions. If all noise were
  // in the energy, the standard error of a run would be 2 % / sqrt(6 * 42) * sqrt(2) = 0.2 %.
  EXPECT_NEAR(announced, saved, 0.006);
  // The estimate has the right size: its mean is within half a percentage point.
  EXPECT_NEAR(left, found, 0.005);
}

}  // namespace
}  // namespace perseus
