// Estimates times and powers from the counter of a virtual GPU. Checks that the intervals cover the
// truth as often as they state.
#include "perseus/runtime/profiler/gpu_measurements.h"

#include <gtest/gtest.h>

#include <cmath>

#include "perseus/base/units.h"
#include "perseus/simulation/virtual_gpu/virtual_gpu.h"

namespace perseus::profiler {
namespace {

// A GPU with two clocks and two kinds of instruction, as on the first stage of a pipeline:
//
//   |F 31 ms|F|F|F|F|F|....250 ms....|B 57 ms|..13 ms..|F|B|..13 ms..|F|B|.. ... |B|B|B|B|B|
//
// If the job had only pairs of 101 ms, each window of 100 ms would contain the same shares of all
// kinds, and no estimate could separate the kinds. The counter changes every 100 ms, and is read
// every 20 ms. Runs differ by 1 % in time and in power.
class VirtualJob {
 public:
  explicit VirtualJob(std::uint64_t seed) : gpu_(Model(), seed, 0) {
    gpu_.SetRest(virtual_gpu::Rest::kBlocking, 0);
    last_energy_j_ = gpu_.ReadAt(0).published_energy_j;
  }

  static constexpr double kBlockingPowerW = 80;
  static synthetic::TimeAndEnergy Truth(InstructionKind kind, int mhz) {
    if (kind == InstructionKind::kBackwardInput) return {30e-6, kBlockingPowerW * 30e-6};
    const double time_s = (kind == InstructionKind::kForward ? 0.031 : 0.057) * 1400 / mhz;
    const double power_w = (kind == InstructionKind::kForward ? 420.0 : 350.0) * mhz / 1400;
    return {time_s, power_w * time_s};
  }

  struct Spec {
    int microbatches = 24;
    int mhz = 1400;
    Nanoseconds wait = 13 * kMillisecond;
    Nanoseconds wait_inside = 0;    // Each instruction waits for other ranks before it ends.
    bool computes_nothing = false;  // True: before each backward, an instruction takes 30 us.
    double slower = 1;              // A factor on times, for drift.
    double thirstier = 1;           // A factor on powers, for drift.
  };
  protocol::RanStep Step(const Spec& spec) {
    protocol::RanStep step;
    step.step = next_step_++;
    step.begin = now_;
    gpu_.RequestLock(device::Setting{spec.mhz, spec.mhz}, now_);
    constexpr int kWarmUp = 6;
    for (int i = 0; i < kWarmUp; ++i) Run(InstructionKind::kForward, i, spec, step);
    AdvanceTo(now_ + 250 * kMillisecond, step);
    for (int i = 0; i < spec.microbatches; ++i) {
      const int forward = i + kWarmUp;
      if (forward < spec.microbatches) {
        Run(InstructionKind::kForward, forward, spec, step);
      }
      if (spec.computes_nothing) Run(InstructionKind::kBackwardInput, i, spec, step);
      Run(InstructionKind::kBackward, i, spec, step);
      if (forward < spec.microbatches) AdvanceTo(now_ + spec.wait, step);
    }
    step.end = now_;
    return step;
  }

 private:
  static virtual_gpu::VirtualGpuModel Model() {
    virtual_gpu::VirtualGpuModel model;
    model.sm_clocks.count = 2;
    model.sm_clocks.mhz[0] = 1000;
    model.sm_clocks.mhz[1] = 1400;
    model.blocking_power_w = kBlockingPowerW;
    model.time_noise = 0.01;
    model.power_noise = 0.01;
    return model;
  }
  void Run(InstructionKind kind, int microbatch, const Spec& spec, protocol::RanStep& step) {
    synthetic::TimeAndEnergy cost = Truth(kind, spec.mhz);
    cost.time_s *= spec.slower;
    cost.energy_j *= spec.slower * spec.thirstier;
    const Nanoseconds begin = now_;
    gpu_.Begin(virtual_gpu::FixedInstruction(cost), now_);
    AdvanceTo(gpu_.FinishTime(), step);
    if (spec.wait_inside > 0) {
      step.waits.push_back({now_ - step.begin, spec.wait_inside});
      AdvanceTo(now_ + spec.wait_inside, step);
    }
    step.instructions.push_back({kind, microbatch, 0, begin - step.begin, now_ - begin, spec.mhz});
  }
  void AdvanceTo(Nanoseconds until, protocol::RanStep& step) {
    for (; next_look_ <= until; next_look_ += 20 * kMillisecond) {
      gpu_.AdvanceTo(next_look_);
      const double energy_j = gpu_.ReadAt(next_look_).published_energy_j;
      if (energy_j == last_energy_j_) continue;
      last_energy_j_ = energy_j;
      step.energy.push_back(
          {next_look_ - 20 * kMillisecond - step.begin, next_look_ - step.begin, energy_j});
    }
    gpu_.AdvanceTo(until);
    now_ = until;
  }

  virtual_gpu::VirtualGpu gpu_;
  Nanoseconds now_ = 0;
  Nanoseconds next_look_ = 20 * kMillisecond;
  double last_energy_j_ = 0;
  std::int64_t next_step_ = 0;
};

const MeasuredOption* Find(const std::vector<MeasuredOption>& options, InstructionKind kind,
                           int mhz) {
  for (const MeasuredOption& option : options) {
    if (option.group.kind == kind && option.frequency_mhz == mhz) return &option;
  }
  return nullptr;
}

// 300 jobs have 2 kinds each, with intervals for 95 %. If all intervals were independent, the
// number of intervals that cover the truth would be binomial, with a standard deviation of sqrt(600
// * 0.95 * 0.05) = 5.3. The two intervals of a job share windows, so the deviation is at most
// sqrt(2) times as large, 7.5. Four such deviations are 30.
TEST(GpuMeasurements, IntervalsCoverTheTruthAtTheirStatedRate) {
  constexpr int kJobs = 300;
  int covered_times = 0;
  int covered_energies = 0;
  int covered_blocking = 0;
  double relative_width = 0;
  for (int seed = 1; seed <= kJobs; ++seed) {
    // The seeds 1 to 300 were used to find kEstimatedVariances, so this test does not use them.
    VirtualJob job(static_cast<std::uint64_t>(1000 + seed));
    GpuMeasurements gpu({});
    for (int i = 0; i < 3; ++i) gpu.Add(job.Step({}));
    const std::vector<MeasuredOption> options = gpu.Options(0);
    ASSERT_EQ(options.size(), 2u);
    for (const MeasuredOption& option : options) {
      const synthetic::TimeAndEnergy truth = VirtualJob::Truth(option.group.kind, 1400);
      EXPECT_EQ(option.samples, 72);
      covered_times += std::abs(option.time_s - truth.time_s) <= option.time_ci_s ? 1 : 0;
      covered_energies += std::abs(option.energy_j() - truth.energy_j) <= option.energy_ci_j();
      relative_width += option.energy_ci_j() / option.energy_j() / (2 * kJobs);
    }
    const PowerEstimate blocking = gpu.BlockingPower();
    ASSERT_TRUE(blocking.is_identified);
    covered_blocking += std::abs(blocking.power_w - VirtualJob::kBlockingPowerW) <=
                        1.98 * blocking.standard_error_w;
  }
  RecordProperty("covered_times", covered_times);
  RecordProperty("covered_energies", covered_energies);
  RecordProperty("covered_blocking", covered_blocking);
  RecordProperty("mean_relative_half_width_ppm", static_cast<int>(1e6 * relative_width));
  EXPECT_NEAR(covered_times, 0.95 * 2 * kJobs, 30);
  EXPECT_NEAR(covered_energies, 0.95 * 2 * kJobs, 30);
  // Four deviations, with one interval for each job: sqrt(300 * 0.95 * 0.05) = 3.8 each.
  EXPECT_NEAR(covered_blocking, 0.95 * kJobs, 15.2);
}

// Three times the half-width of an interval for 95 % is almost six standard errors.
TEST(GpuMeasurements, WaitingForOtherRanksIsNoPartOfAnInstruction) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    VirtualJob job(seed);
    GpuMeasurements gpu({});
    for (int i = 0; i < 3; ++i) gpu.Add(job.Step({.wait_inside = 7 * kMillisecond}));
    const std::vector<MeasuredOption> options = gpu.Options(0);
    ASSERT_EQ(options.size(), 2u);
    for (const MeasuredOption& option : options) {
      const synthetic::TimeAndEnergy truth = VirtualJob::Truth(option.group.kind, 1400);
      EXPECT_NEAR(option.time_s, truth.time_s, 3 * option.time_ci_s);
      EXPECT_NEAR(option.energy_j(), truth.energy_j, 3 * option.energy_ci_j());
    }
    EXPECT_NEAR(gpu.BlockingPower().power_w, VirtualJob::kBlockingPowerW,
                6 * gpu.BlockingPower().standard_error_w);
  }
}

TEST(GpuMeasurements, KindsThatAlwaysRunTogetherAreNotSeparated) {
  // Each window contains the same shares of forward and backward, and no wait.
  GpuMeasurements gpu({});
  protocol::RanStep step;
  step.end = 2000 * kMillisecond;
  for (int i = 0; i < 20; ++i) {
    const Nanoseconds at = i * 100 * kMillisecond;
    step.instructions.push_back({InstructionKind::kForward, i, 0, at, 40 * kMillisecond, 1400});
    step.instructions.push_back(
        {InstructionKind::kBackward, i, 0, at + 40 * kMillisecond, 60 * kMillisecond, 1400});
    // Energies vary a little, so the error is not zero.
    step.energy.push_back({at, at, 35.0 * i + 0.1 * (i % 3)});
  }
  gpu.Add(step);
  const std::vector<MeasuredOption> options = gpu.Options(0);
  ASSERT_EQ(options.size(), 2u);
  for (const MeasuredOption& option : options) {
    EXPECT_EQ(option.samples, 20);
    EXPECT_EQ(option.power_w, 0);
    EXPECT_TRUE(std::isinf(option.power_ci_w));
  }
  EXPECT_FALSE(gpu.BlockingPower().is_identified);
}

// The instruction is like the first stage's backward_input of a zero-bubble schedule. In all
// windows, it takes less time than the errors of their edges.
TEST(GpuMeasurements, InstructionThatComputesNothingHasNoPowerRatherThanAWrongOne) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    VirtualJob job(seed);
    GpuMeasurements gpu({});
    for (int i = 0; i < 3; ++i) gpu.Add(job.Step({.computes_nothing = true}));
    const std::vector<MeasuredOption> options = gpu.Options(0);
    const MeasuredOption* nothing = Find(options, InstructionKind::kBackwardInput, 1400);
    ASSERT_NE(nothing, nullptr);
    EXPECT_NEAR(nothing->time_s, 30e-6, 1e-6);
    EXPECT_EQ(nothing->power_w, 0) << "seed " << seed;
    const MeasuredOption* forward = Find(options, InstructionKind::kForward, 1400);
    ASSERT_NE(forward, nullptr);
    EXPECT_NEAR(forward->power_w, 420, 3 * forward->power_ci_w);
  }
}

TEST(GpuMeasurements, DisturbedStepsDoNotCount) {
  VirtualJob job(1);
  GpuMeasurements gpu({});
  protocol::RanStep step = job.Step({});
  step.is_limited = true;
  for (const std::vector<std::string>& causes :
       {std::vector<std::string>{}, {"temperature"}, {"power", "temperature"}, {"other"}}) {
    step.limited_by = causes;
    gpu.Add(step);
  }
  EXPECT_TRUE(gpu.Options(0).empty());
  EXPECT_EQ(gpu.counts().limited_steps, 4);
}

// At its power limit, a GPU is as fast as it can be.
TEST(GpuMeasurements, StepsAtThePowerLimitCountAtTheClockThatWasReached) {
  VirtualJob job(1);
  GpuMeasurements gpu({});
  for (int i = 0; i < 3; ++i) {
    protocol::RanStep step = job.Step({});
    step.is_limited = true;
    step.limited_by = {"power"};
    for (const protocol::RanInstruction& ran : step.instructions) {
      // A backward draws more power. Two readings of its clock are too few.
      const bool is_forward = ran.kind == InstructionKind::kForward;
      if (!is_forward && (i > 0 || ran.microbatch > 1)) continue;
      step.reached.push_back({ran.begin + ran.duration / 2, is_forward ? 1300 + 5 * i : 1250});
      if (!is_forward || ran.microbatch != 5) continue;
      // After it, the GPU waits. A waiting GPU draws little power, so its clock is higher.
      step.reached.push_back({ran.begin + ran.duration + kMillisecond, 1400});
    }
    gpu.Add(step);
  }
  EXPECT_EQ(gpu.counts().limited_steps, 0);
  const std::vector<MeasuredOption> options = gpu.Options(0);
  const MeasuredOption* forward = Find(options, InstructionKind::kForward, 1400);
  ASSERT_NE(forward, nullptr);
  EXPECT_EQ(forward->reached_mhz, 1310);
  EXPECT_DOUBLE_EQ(forward->usual_mhz, 1305);
  const MeasuredOption* backward = Find(options, InstructionKind::kBackward, 1400);
  ASSERT_NE(backward, nullptr);
  EXPECT_EQ(backward->reached_mhz, 0);
}

// Heat lowers the clock that the power limit permits from 1300 to 1200 MHz. The step at 1400 MHz
// shows this, so the times at 1250 MHz are no longer true, but the times at 1000 MHz are.
TEST(GpuMeasurements, AMovedPowerLimitDropsTheTimesAtAllClocksAboveIt) {
  VirtualJob job(7);
  GpuMeasurements gpu({});
  const auto add = [&](int mhz, int reached_mhz) {
    protocol::RanStep step =
        job.Step({.mhz = mhz, .slower = mhz / static_cast<double>(std::min(mhz, reached_mhz))});
    if (reached_mhz < mhz) {
      step.is_limited = true;
      step.limited_by = {"power"};
      for (const protocol::RanInstruction& ran : step.instructions) {
        step.reached.push_back({ran.begin + ran.duration / 2, reached_mhz});
      }
    }
    return gpu.Add(step);
  };
  const auto measured_at = [&](int mhz) {
    return Find(gpu.Options(0), InstructionKind::kForward, mhz) != nullptr;
  };
  for (const int mhz : {1400, 1400, 1400, 1350, 1250, 1250, 1000, 1000}) add(mhz, 1300);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(add(1400, 1200).empty());
  EXPECT_EQ(add(1400, 1200).size(), 2u);
  EXPECT_EQ(Find(gpu.Options(0), InstructionKind::kForward, 1400)->reached_mhz, 1200);
  for (const int mhz : {1350, 1250}) EXPECT_FALSE(measured_at(mhz)) << mhz;
  EXPECT_TRUE(measured_at(1000));

  // The GPU cools down. Only 1400 and 1350 MHz were measured at the lower limit.
  for (const int mhz : {1400, 1400, 1350, 1350}) add(mhz, 1200);
  for (int i = 0; i < 3; ++i) add(1400, 1380);
  EXPECT_EQ(Find(gpu.Options(0), InstructionKind::kForward, 1400)->reached_mhz, 1380);
  EXPECT_FALSE(measured_at(1350));
  EXPECT_TRUE(measured_at(1000));
}

TEST(GpuMeasurements, InstructionsUnderASwitchAreLeftOut) {
  VirtualJob job(1);
  protocol::RanStep step = job.Step({});
  // The clock is requested when the third instruction begins. It lands within 10 ms: the driver
  // answers 5 ms later, and the latency is 5 ms.
  const Nanoseconds begin = step.instructions[2].begin;
  step.clocks.push_back({begin, begin + 5 * kMillisecond, 1400, 2});
  GpuMeasurements gpu({.switch_latency = 5 * kMillisecond});
  gpu.Add(step);
  EXPECT_EQ(gpu.counts().switching_instructions, 1);
  EXPECT_EQ(Find(gpu.Options(0), InstructionKind::kForward, 1400)->samples, 23);
  EXPECT_EQ(Find(gpu.Options(0), InstructionKind::kBackward, 1400)->samples, 24);
  EXPECT_GE(gpu.counts().windows_left_out, 1);
  // A request of the same clock is no change.
  protocol::RanStep next = job.Step({});
  next.clocks.push_back({next.instructions[2].begin, next.instructions[2].begin, 1400, 2});
  gpu.Add(next);
  EXPECT_EQ(gpu.counts().switching_instructions, 1);
}

TEST(GpuMeasurements, DriftIsNoticedAndMeasuredAgain) {
  // 5 % in time is 5 % / (1 % / sqrt(24)) = 24 standard errors of a step, of which 2.8 count.
  VirtualJob job(7);
  GpuMeasurements gpu({});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(gpu.Add(job.Step({})).empty());
  std::vector<DriftAlarm> alarms;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(alarms.empty());
    alarms = gpu.Add(job.Step({.slower = 1.05}));
  }
  ASSERT_EQ(alarms.size(), 2u);
  EXPECT_EQ(alarms[0].quantity, DriftAlarm::Quantity::kTime);
  EXPECT_EQ(alarms[0].step, 6);
  EXPECT_GT(alarms[0].now, alarms[0].before);
  const std::vector<MeasuredOption> options = gpu.Options(0);
  const MeasuredOption* forward = Find(options, InstructionKind::kForward, 1400);
  ASSERT_NE(forward, nullptr);
  EXPECT_EQ(forward->samples, 24);  // Only the step that revealed the drift counts.
  EXPECT_GT(forward->power_w, 0);
  // The tolerance is four standard errors of 1 % / sqrt(24) around the new truth.
  EXPECT_NEAR(forward->time_s, 1.05 * 0.031, 4 * 0.031 * 0.01 / std::sqrt(24.0));
}

TEST(GpuMeasurements, StepThatStalledIsNeitherDriftNorMeasured) {
  VirtualJob job(7);
  GpuMeasurements gpu({});
  for (int i = 0; i < 4; ++i) gpu.Add(job.Step({}));
  EXPECT_TRUE(gpu.Add(job.Step({.slower = 1.2})).empty());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(gpu.Add(job.Step({})).empty());
  EXPECT_EQ(gpu.counts().steps_held_back, 2);  // Forward and backward.
  const std::vector<MeasuredOption> options = gpu.Options(0);
  const MeasuredOption* forward = Find(options, InstructionKind::kForward, 1400);
  EXPECT_EQ(forward->samples, 6 * 24);
  // The tolerance is four standard errors. With the slow step (20 % more), the mean would have an
  // error of 2.9 %.
  EXPECT_NEAR(forward->time_s, 0.031, 4 * 0.031 * 0.01 / std::sqrt(6 * 24.0));
  EXPECT_GT(forward->power_w, 0);
}

TEST(GpuMeasurements, InstructionThatStalledIsLeftOut) {
  VirtualJob job(7);
  GpuMeasurements gpu({});
  protocol::RanStep step = job.Step({});
  step.instructions.back().duration *= 3;
  gpu.Add(step);
  EXPECT_EQ(gpu.counts().stalled_instructions, 1);
  const std::vector<MeasuredOption> options = gpu.Options(0);
  const MeasuredOption* backward = Find(options, InstructionKind::kBackward, 1400);
  EXPECT_EQ(backward->samples, 23);
  EXPECT_NEAR(backward->time_s, 0.057, 4 * 0.057 * 0.01 / std::sqrt(23.0));
}

TEST(GpuMeasurements, RefusedClockIsNotMeasuredAsIfSet) {
  VirtualJob job(1);
  GpuMeasurements gpu({});
  protocol::RanStep step = job.Step({});
  const Nanoseconds begin = step.instructions[2].begin;
  step.clocks.push_back({begin, begin + 1, 1000, 4});
  for (std::size_t i = 2; i < step.instructions.size(); ++i) {
    step.instructions[i].frequency_mhz = 1000;
  }
  gpu.Add(step);
  EXPECT_EQ(Find(gpu.Options(0), InstructionKind::kForward, 1000), nullptr);
  // The following steps do not count either, until a clock is set.
  protocol::RanStep next = job.Step({.mhz = 1000});
  gpu.Add(next);
  EXPECT_EQ(Find(gpu.Options(0), InstructionKind::kForward, 1000), nullptr);
  next = job.Step({.mhz = 1000});
  next.clocks.push_back({-2, -1, 1000, 2});
  gpu.Add(next);
  ASSERT_NE(Find(gpu.Options(0), InstructionKind::kForward, 1000), nullptr);
  EXPECT_EQ(Find(gpu.Options(0), InstructionKind::kForward, 1000)->samples, 24);
}

TEST(GpuMeasurements, DriftOfPowerIsNoticedWithinAFewSteps) {
  // The power rises by 5 %. A step estimates a power to about 0.5 %.
  VirtualJob job(11);
  GpuMeasurements gpu({});
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(gpu.Add(job.Step({})).empty());
  int alarms = 0;
  for (int i = 0; i < 6 && alarms == 0; ++i) {
    for (const DriftAlarm& alarm : gpu.Add(job.Step({.thirstier = 1.05}))) {
      EXPECT_EQ(alarm.quantity, DriftAlarm::Quantity::kPower);
      EXPECT_GT(alarm.now, alarm.before);
      ++alarms;
    }
  }
  EXPECT_GE(alarms, 1);
  // Both kinds must still have an estimate.
  for (const MeasuredOption& option : gpu.Options(0)) EXPECT_GT(option.power_w, 0);
}

// The times of 300 jobs, 20 steps and 2 kinds are 12,000 tests, with one false alarm in 21,000
// (both sides). The powers are as many tests. So 1.1 alarms are expected, and 5 occurred. The
// variance that scales z is itself an estimate. This makes alarms a few times as frequent in the
// first steps. The limit of 8 allows about seven times the expected rate.
TEST(GpuMeasurements, FalseAlarmsAreRare) {
  std::int64_t drifts = 0;
  for (int seed = 1; seed <= 300; ++seed) {
    VirtualJob job(static_cast<std::uint64_t>(1000 + seed));
    GpuMeasurements gpu({});
    for (int i = 0; i < 20; ++i) gpu.Add(job.Step({}));
    drifts += gpu.counts().drifts;
  }
  RecordProperty("drifts", static_cast<int>(drifts));
  EXPECT_LE(drifts, 8);
}

}  // namespace
}  // namespace perseus::profiler
