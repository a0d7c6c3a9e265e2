#include "perseus/simulation/virtual_gpu/virtual_gpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"
#include "tests/support/virtual_node_fixture.h"

namespace perseus::virtual_gpu {
namespace {

constexpr device::Setting k500{500, 500};

// 100, 200, ... 1000 MHz. Thermal: 30 C idle, and never hot at the powers used here.
VirtualGpuModel Model() {
  VirtualGpuModel model;
  for (int mhz = 100; mhz <= 1000; mhz += 100) {
    model.sm_clocks.mhz[static_cast<std::size_t>(model.sm_clocks.count++)] = mhz;
  }
  model.thermal.ambient_c = 20;
  model.thermal.resistance_c_per_w = 0.2;
  model.thermal.time_constant_s = 10;
  model.thermal.throttle_at_c = 200;
  model.thermal.resume_at_c = 190;
  return model;
}

TEST(VirtualGpu, AtAConstantClockIsExactlyTheProfile) {
  const auto profile = synthetic::SynthesizeProfile({.pp_ranks = 2});
  const auto gpu_model = synthetic::FindGpuModel("a100");
  ASSERT_TRUE(profile && gpu_model);
  VirtualGpuModel model = Model();
  model.sm_clocks = {};
  for (const profile::Option& option : profile->entries()[0].options) {
    model.sm_clocks.mhz[static_cast<std::size_t>(model.sm_clocks.count++)] =
        static_cast<int>(option.frequency_mhz);
  }
  std::reverse(model.sm_clocks.mhz.begin(), model.sm_clocks.mhz.begin() + model.sm_clocks.count);
  // The power limit under which the profile was measured does not act, with or without noise.
  model.default_power_limit_mw = static_cast<int>(gpu_model->power_limit_w * 1000);

  VirtualGpu gpu(model, 1, 0);
  Nanoseconds now = 12'345;
  for (const profile::ProfileEntry& entry : profile->entries()) {
    const auto table = MakeInstructionTable(*profile, entry.pp_rank, entry.chunk, entry.kind);
    ASSERT_TRUE(table);
    for (const profile::Option& option : entry.options) {
      const int mhz = static_cast<int>(option.frequency_mhz);
      gpu.RequestLock(device::Setting{mhz, mhz}, now);
      const double before_j = gpu.ReadAt(now).energy_j;
      gpu.Begin(*table, now);
      ASSERT_EQ(gpu.ReadAt(now).sm_clock_mhz, mhz);
      ASSERT_EQ(gpu.FinishTime() - now, option.time);
      now = gpu.FinishTime();
      gpu.AdvanceTo(now);
      ASSERT_FALSE(gpu.is_running());
      ASSERT_EQ(gpu.finished_at(), now);
      ASSERT_NEAR(gpu.ReadAt(now).energy_j - before_j, option.energy_j, 1e-9);
    }
  }
}

TEST(VirtualGpu, AClockChangeAffectsTheRemainingWork) {
  VirtualGpu gpu(Model(), 1, 0);
  gpu.Begin(Work(1), 0);
  EXPECT_EQ(gpu.FinishTime(), kSecond);
  // Half is done for 150 J. The other half takes a second and 100 J.
  gpu.RequestLock(k500, kSecond / 2);
  EXPECT_EQ(gpu.FinishTime(), 3 * kSecond / 2);
  EXPECT_DOUBLE_EQ(gpu.ReadAt(kSecond).energy_j, 150 + 50);
  EXPECT_DOUBLE_EQ(gpu.ReadAt(kSecond).done, 0.75);
  EXPECT_DOUBLE_EQ(gpu.ReadAt(3 * kSecond / 2).energy_j, 250);
  // The clock returns at 1 s, when a quarter is left. It takes 0.25 s and 75 J.
  gpu.RequestLock(std::nullopt, kSecond);
  EXPECT_EQ(gpu.FinishTime(), 5 * kSecond / 4);
  EXPECT_DOUBLE_EQ(gpu.ReadAt(5 * kSecond / 4).energy_j, 275);
}

TEST(VirtualGpu, ManyReadingsGiveTheSameAsOne) {
  VirtualGpu often(Model(), 1, 0);
  VirtualGpu once(Model(), 1, 0);
  often.Begin(Work(1), 0);
  once.Begin(Work(1), 0);
  for (Nanoseconds now = 0; now <= 2 * kSecond; now += 777'777) often.AdvanceTo(now);
  // The value is a sum of 2,600 rounded parts.
  EXPECT_NEAR(often.ReadAt(2 * kSecond).energy_j, once.ReadAt(2 * kSecond).energy_j, 1e-9);
  EXPECT_NEAR(often.ReadAt(2 * kSecond).temperature_c, once.ReadAt(2 * kSecond).temperature_c,
              1e-9);
  EXPECT_NEAR(static_cast<double>(often.finished_at()), 1e9, 1);
}

TEST(VirtualGpu, RestsAsRequestedOnceDone) {
  VirtualGpu gpu(Model(), 1, 0);
  EXPECT_EQ(gpu.ReadAt(kSecond).power_w, 50);
  EXPECT_EQ(gpu.ReadAt(kSecond).sm_clock_mhz, 100);
  EXPECT_EQ(Describe(gpu.ReadAt(kSecond).limits), "idle");
  gpu.SetRest(Rest::kBlocking, kSecond);
  EXPECT_EQ(gpu.ReadAt(kSecond).power_w, 80);
  EXPECT_EQ(gpu.ReadAt(kSecond).sm_clock_mhz, 1000);
  EXPECT_EQ(Describe(gpu.ReadAt(kSecond).limits), "");
  gpu.Begin(Work(1), kSecond);
  EXPECT_EQ(gpu.ReadAt(kSecond).power_w, 300);
  // 1 s idle, 1 s of work, 1 s of waiting.
  EXPECT_DOUBLE_EQ(gpu.ReadAt(3 * kSecond).energy_j, 50 + 300 + 80);
  gpu.Stop(3 * kSecond);
  EXPECT_EQ(gpu.ReadAt(3 * kSecond).power_w, 50);
}

TEST(VirtualGpu, ALockLandsAfterTheLatency) {
  VirtualGpuModel model = Model();
  model.switch_latency_s = 0.1;
  VirtualGpu gpu(model, 1, 0);
  gpu.Begin(Work(1), 0);
  EXPECT_EQ(gpu.RequestLock(k500, 4 * kSecond / 10), kSecond / 2);
  const VirtualGpuReading before = gpu.ReadAt(kSecond / 2 - 1);
  EXPECT_EQ(before.sm_clock_mhz, 1000);
  EXPECT_EQ(before.lock, std::nullopt);
  EXPECT_EQ(before.requested_lock, k500);
  const VirtualGpuReading after = gpu.ReadAt(kSecond / 2);
  EXPECT_EQ(after.sm_clock_mhz, 500);
  EXPECT_EQ(after.lock, k500);
  EXPECT_EQ(Describe(after.limits), "a clock setting");
  EXPECT_EQ(gpu.FinishTime(), 3 * kSecond / 2);
}

TEST(VirtualGpu, LocksLandInTheirOrder) {
  VirtualGpuModel model = Model();
  model.switch_latency_s = 0.1;
  model.switch_latency_spread = 1;
  VirtualGpu gpu(model, 3, 0);
  Nanoseconds last = 0;
  // This is more than the queue holds.
  for (int i = 0; i < 20; ++i) {
    const int mhz = 100 + 100 * (i % 10);
    const Nanoseconds lands_at = gpu.RequestLock(device::Setting{mhz, mhz}, i * kMillisecond);
    EXPECT_GE(lands_at, last);
    last = lands_at;
  }
  EXPECT_EQ(gpu.ReadAt(last).lock, (device::Setting{1000, 1000}));
}

TEST(VirtualGpu, LatencyIsLogNormal) {
  VirtualGpuModel model = Model();
  model.switch_latency_s = 0.01;
  model.switch_latency_spread = 0.3;
  VirtualGpu gpu(model, 1, 0);
  std::vector<double> logs;
  for (int i = 0; i < 2001; ++i) {
    const Nanoseconds now = Nanoseconds{10} * i * kSecond;
    logs.push_back(std::log(ToSeconds(gpu.RequestLock(k500, now) - now) / 0.01));
  }
  double squares = 0;
  for (const double log : logs) squares += log * log;
  std::nth_element(logs.begin(), logs.begin() + 1000, logs.end());
  // Four standard errors: of the median 1.25 * 0.3 / sqrt(2001), of the spread 0.3 / sqrt(4002).
  EXPECT_NEAR(logs[1000], 0, 0.034);
  EXPECT_NEAR(std::sqrt(squares / 2001), 0.3, 0.019);
}

TEST(VirtualGpu, TheCounterTicksWhileEnergyFlows) {
  VirtualGpuModel model = Model();
  model.counter_period = 20 * kMillisecond;
  VirtualGpu gpu(model, 1, 0);
  gpu.SetRest(Rest::kBlocking, 0);  // 80 W: 1.6 J a tick.
  int ticks = 0;
  Nanoseconds last_tick = 0;
  double last_j = 0;
  for (Nanoseconds now = 0; now < kSecond; now += kMillisecond) {
    const VirtualGpuReading reading = gpu.ReadAt(now);
    EXPECT_DOUBLE_EQ(reading.energy_j, 80 * ToSeconds(now));
    EXPECT_LE(reading.published_energy_j, reading.energy_j);
    EXPECT_GT(reading.published_energy_j, reading.energy_j - 1.6 - 1e-9);
    if (reading.published_energy_j == last_j) continue;
    if (ticks > 0) {
      EXPECT_NEAR(reading.published_energy_j - last_j, 1.6, 1e-9);
      EXPECT_EQ(now - last_tick, 20 * kMillisecond);
    }
    ++ticks;
    last_tick = now;
    last_j = reading.published_energy_j;
  }
  EXPECT_EQ(ticks, 50);
}

TEST(VirtualGpu, GpusTickAtDifferentMoments) {
  VirtualGpu one(Model(), 1, 0);
  VirtualGpu other(Model(), 2, 0);
  EXPECT_NE(one.ReadAt(kSecond).published_energy_j, other.ReadAt(kSecond).published_energy_j);
}

TEST(VirtualGpu, ThePowerLimitLowersTheClock) {
  VirtualGpuModel model = Model();
  model.default_power_limit_mw = 400'000;
  VirtualGpu gpu(model, 1, 0);
  gpu.Begin(Work(1), 0);
  EXPECT_EQ(gpu.ReadAt(0).sm_clock_mhz, 1000);
  // Interpolated: 900 MHz takes 1.2 s and 280 J (233 W), 800 MHz 1.4 s and 260 J (186 W).
  gpu.SetPowerLimit(device::Setting{200'000, 200'000}, 0);
  const VirtualGpuReading reading = gpu.ReadAt(0);
  EXPECT_EQ(reading.sm_clock_mhz, 800);
  EXPECT_EQ(Describe(reading.limits), "power limit");
  EXPECT_DOUBLE_EQ(reading.power_w, 260 / 1.4);
  EXPECT_EQ(gpu.FinishTime(), 14 * kSecond / 10);
  // No clock stays within this limit.
  gpu.SetPowerLimit(device::Setting{50'000, 50'000}, 0);
  EXPECT_EQ(gpu.ReadAt(0).sm_clock_mhz, 100);
  gpu.SetPowerLimit(std::nullopt, 0);
  EXPECT_EQ(gpu.ReadAt(0).sm_clock_mhz, 1000);
}

// 800 MHz takes 1.4 s and 260 J (186 W), so a chip that draws 10 % more needs 204 W at this clock.
TEST(VirtualGpu, AChipThatDrawsMoreReachesALowerClockAtThePowerLimit) {
  VirtualGpuModel model = Model();
  model.power_factor = 1.1;
  model.default_power_limit_mw = 200'000;
  VirtualGpu gpu(model, 1, 0);
  gpu.Begin(Work(1), 0);
  EXPECT_EQ(gpu.ReadAt(0).sm_clock_mhz, 700);
  gpu.RequestLock(k500, 0);
  EXPECT_DOUBLE_EQ(gpu.ReadAt(0).power_w, 1.1 * 200 / 2);
  EXPECT_EQ(gpu.FinishTime(), 2 * kSecond);
}

// Neighboring instructions vary together, and a lock within the power limit ends the variation.
TEST(VirtualGpu, AtThePowerLimitTheClockWanders) {
  VirtualGpuModel model = Model();
  for (int i = 0; i < 128; ++i) model.sm_clocks.mhz[static_cast<std::size_t>(i)] = 873 + i;
  model.sm_clocks.count = 128;
  model.power_limit_wander = 0.01;
  VirtualGpu gpu(model, 1, 0);
  // 900 MHz draws 233 W.
  gpu.SetPowerLimit(device::Setting{233'400, 233'400}, 0);
  gpu.RequestLock(device::Setting{990, 990}, 0);
  const int cap_mhz = 904;  // kPowerLimitSlack permits 235.7 W.
  Nanoseconds now = 0;
  double squares = 0;
  constexpr int kPeriods = 1000;
  for (int i = 0; i < kPeriods; ++i) {
    if (!gpu.is_running()) gpu.Begin(Work(100), now);
    const VirtualGpuReading reading = gpu.ReadAt(now);
    EXPECT_EQ(Describe(reading.limits), "a clock setting, power limit");
    EXPECT_LE(reading.sm_clock_mhz, 990);
    EXPECT_EQ(gpu.ReadAt(now + 49 * kMillisecond).sm_clock_mhz, reading.sm_clock_mhz);
    squares += std::pow(std::log(reading.sm_clock_mhz / double{cap_mhz}), 2);
    now += 50 * kMillisecond;
    gpu.AdvanceTo(now);
  }
  // Four standard errors of a standard deviation from 1,000 samples: 4 / sqrt(2000) of it.
  EXPECT_NEAR(std::sqrt(squares / kPeriods), 0.01, 0.0009);
  gpu.RequestLock(device::Setting{cap_mhz, cap_mhz}, now);
  for (int i = 0; i < 100; ++i) {
    now += 50 * kMillisecond;
    if (!gpu.is_running()) gpu.Begin(Work(100), now);
    EXPECT_EQ(gpu.ReadAt(now).sm_clock_mhz, cap_mhz);
    EXPECT_EQ(Describe(gpu.ReadAt(now).limits), "a clock setting");
  }
}

TEST(VirtualGpu, AThrottleHoldsTheClockDown) {
  VirtualGpu gpu(Model(), 1, 0);
  gpu.Begin(Work(1), 0);
  gpu.SetThrottle(555, kSecond / 2);
  EXPECT_EQ(gpu.ReadAt(kSecond / 2).sm_clock_mhz, 500);
  EXPECT_EQ(Describe(gpu.ReadAt(kSecond / 2).limits), "too hot");
  EXPECT_EQ(gpu.FinishTime(), 3 * kSecond / 2);
  // The throttle does not affect a lower lock.
  gpu.RequestLock(k500, kSecond);
  EXPECT_EQ(Describe(gpu.ReadAt(kSecond).limits), "a clock setting");
  gpu.RequestLock(std::nullopt, kSecond);
  gpu.SetThrottle(std::nullopt, kSecond);
  EXPECT_EQ(gpu.FinishTime(), 5 * kSecond / 4);
}

TEST(VirtualGpu, HeatThrottlesUntilItHasCooled) {
  VirtualGpuModel model = Model();
  model.thermal.throttle_at_c = 60;
  model.thermal.resume_at_c = 50;
  model.thermal.throttle_mhz = 500;
  VirtualGpu gpu(model, 1, 0);
  gpu.Begin(Work(100), 0);
  // From 30 C (50 W) towards 80 C (300 W): 60 C after 10 s * ln(50/20).
  const Nanoseconds hot = ToNanoseconds(10 * std::log(2.5));
  EXPECT_EQ(gpu.ReadAt(hot - 10).sm_clock_mhz, 1000);
  EXPECT_NEAR(gpu.ReadAt(hot).temperature_c, 60, 1e-6);
  EXPECT_EQ(gpu.ReadAt(hot + 10).sm_clock_mhz, 500);
  EXPECT_EQ(Describe(gpu.ReadAt(hot + 10).limits), "too hot");
  // From there towards 40 C (100 W): 50 C after 10 s * ln(20/10).
  const Nanoseconds cool = hot + ToNanoseconds(10 * std::log(2));
  EXPECT_EQ(gpu.ReadAt(cool - 10).sm_clock_mhz, 500);
  EXPECT_EQ(gpu.ReadAt(cool + 10).sm_clock_mhz, 1000);
  EXPECT_EQ(Describe(gpu.ReadAt(cool + 10).limits), "");
  EXPECT_NEAR(gpu.ReadAt(cool + 10).energy_j, 3000 * std::log(2.5) + 1000 * std::log(2), 1e-4);
  // From 50 to 60 C it takes 10 s * ln(30/20): a cycle is 4.055 s at full rate and 6.931 s at half.
  // 9.163 + 6.931/2 s are done by now, and the rest takes 11 whole cycles of 7.520 s and a part.
  const double full_s = 10 * std::log(1.5);
  const double half_s = 10 * std::log(2);
  const double left_s = 100 - 10 * std::log(2.5) - half_s / 2 - 11 * (full_s + half_s / 2);
  const double rest_s = left_s <= full_s ? left_s : full_s + 2 * (left_s - full_s);
  EXPECT_NEAR(ToSeconds(gpu.FinishTime()), ToSeconds(cool) + 11 * (full_s + half_s) + rest_s, 1e-6);
}

TEST(VirtualGpu, TheSameSeedIsTheSameGpu) {
  VirtualGpuModel model = Model();
  model.switch_latency_s = 0.01;
  model.switch_latency_spread = 0.5;
  model.time_noise = 0.02;
  model.power_noise = 0.05;
  const auto run = [&](std::uint64_t seed) {
    VirtualGpu gpu(model, seed, 0);
    std::vector<double> seen;
    Nanoseconds now = 0;
    for (int i = 0; i < 20; ++i) {
      gpu.Begin(Work(0.05), now);
      gpu.RequestLock(device::Setting{500 + 100 * (i % 6), 500 + 100 * (i % 6)}, now);
      now = gpu.FinishTime();
      const VirtualGpuReading reading = gpu.ReadAt(now);
      seen.insert(seen.end(), {ToSeconds(now), reading.energy_j, reading.published_power_w});
    }
    return seen;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
}

// A quarter of the late launches are late by 1 ms or more, and 1 of 80 by 20 ms.
TEST(VirtualGpu, LateLaunchesHaveAHeavyTail) {
  VirtualGpuModel model = Model();
  model.late_launches = 0.5;
  VirtualGpu gpu(model, 1, 0);
  constexpr int kRuns = 4000;
  int late = 0;
  int later = 0;
  int latest = 0;
  Nanoseconds now = 0;
  for (int i = 0; i < kRuns; ++i) {
    const double before_j = gpu.ReadAt(now).energy_j;
    gpu.Begin(Work(1), now);
    const double delay_s = ToSeconds(gpu.FinishTime() - now) - 1;
    now = gpu.FinishTime();
    late += delay_s > 0.249e-3;
    later += delay_s > 1e-3;
    latest += delay_s > 19.99e-3;
    EXPECT_NEAR(gpu.ReadAt(now).energy_j - before_j, 300 + delay_s * model.blocking_power_w, 1e-3);
  }
  EXPECT_NEAR(late, kRuns / 2, 150);
  EXPECT_NEAR(later, late / 4, 100);
  EXPECT_NEAR(latest, late / 80, 20);
}

TEST(VirtualGpu, NoiseHasItsSpread) {
  VirtualGpuModel model = Model();
  model.time_noise = 0.02;
  model.power_noise = 0.05;
  VirtualGpu gpu(model, 1, 0);
  double time_squares = 0;
  double power_squares = 0;
  double reading_squares = 0;
  Nanoseconds now = 0;
  const auto square = [](double ratio) { return std::log(ratio) * std::log(ratio); };
  for (int i = 0; i < 1000; ++i) {
    gpu.Begin(Work(1), now);
    const VirtualGpuReading reading = gpu.ReadAt(now);
    power_squares += square(reading.power_w / 300);
    reading_squares += square(reading.published_power_w / reading.power_w);
    // The value stays the same until the next tick.
    EXPECT_EQ(gpu.ReadAt(now).published_power_w, reading.published_power_w);
    time_squares += square(ToSeconds(gpu.FinishTime() - now));
    now = gpu.FinishTime();
  }
  // Four standard errors of a standard deviation from 1,000 samples: 4 / sqrt(2000) of it.
  EXPECT_NEAR(std::sqrt(time_squares / 1000), 0.02, 0.0018);
  EXPECT_NEAR(std::sqrt(power_squares / 1000), 0.05, 0.0045);
  EXPECT_NEAR(std::sqrt(reading_squares / 1000), 0.05, 0.0045);
}

TEST(VirtualGpu, TimeDoesNotGoBack) {
  VirtualGpu gpu(Model(), 1, 0);
  gpu.AdvanceTo(kSecond);
  gpu.Begin(Work(1), 0);
  EXPECT_EQ(gpu.FinishTime(), 2 * kSecond);
  EXPECT_EQ(gpu.ReadAt(0).at, kSecond);
}

// ms      0      1000   1200        2200 2250
//         [ first ]......[  second  ][third  (at 500 MHz from 2250 on)
TEST(VirtualGpu, QueuedInstructionBeginsAfterThePreviousOneAndItsInput) {
  VirtualGpu gpu(Model(), 1, 0);
  gpu.SetRest(Rest::kBlocking, 0);
  EXPECT_EQ(gpu.last_run(), 0U);
  EXPECT_EQ(gpu.Enqueue(Work(1), 0, 0), 1U);
  EXPECT_EQ(gpu.Enqueue(Work(1), 1200 * kMillisecond, 400 * kMillisecond), 2U);
  EXPECT_TRUE(gpu.has_queued());
  // The times of both are known in advance.
  EXPECT_EQ(gpu.RunOf(1), (VirtualRun{0, kSecond}));
  EXPECT_EQ(gpu.RunOf(2), (VirtualRun{1200 * kMillisecond, 2200 * kMillisecond}));
  EXPECT_EQ(gpu.FinishTime(), 2200 * kMillisecond);
  EXPECT_EQ(gpu.ReadAt(1100 * kMillisecond).power_w, Model().blocking_power_w);
  EXPECT_EQ(gpu.Enqueue(Work(1), 0, 1300 * kMillisecond), 3U);
  gpu.RequestLock(k500, 2250 * kMillisecond);
  EXPECT_EQ(gpu.RunOf(3), (VirtualRun{2200 * kMillisecond, (2250 + 1900) * kMillisecond}));
  gpu.AdvanceTo(5 * kSecond);
  EXPECT_FALSE(gpu.is_running() || gpu.has_queued());
  EXPECT_EQ(gpu.RunOf(2), (VirtualRun{1200 * kMillisecond, 2200 * kMillisecond}));
  // 200 ms of waiting before the second, 850 ms at the end; three instructions, the last one mixed.
  const double waited_j = Model().blocking_power_w * (0.2 + 0.85);
  EXPECT_NEAR(gpu.ReadAt(5 * kSecond).energy_j, 300 + 300 + 0.05 * 300 + 0.95 * 200 + waited_j,
              1e-9);
}

TEST(VirtualGpu, StopAlsoDropsTheQueuedInstruction) {
  VirtualGpu gpu(Model(), 1, 0);
  gpu.Enqueue(Work(1), 0, 0);
  gpu.Enqueue(Work(1), 0, 0);
  gpu.Stop(kSecond / 2);
  EXPECT_FALSE(gpu.is_running() || gpu.has_queued());
  EXPECT_EQ(gpu.finished_at(), kSecond / 2);
  EXPECT_EQ(gpu.RunOf(1), (VirtualRun{0, kSecond / 2}));
  EXPECT_EQ(gpu.Enqueue(Work(1), 0, kSecond), 2U);
}

profile::Profile TwoClocks() {
  return profile::Profile(
      "p.csv", {},
      {{0,
        0,
        InstructionKind::kForward,
        {{1000, {}, 1'000'000'000, 300, 1}, {500, {}, 2'000'000'000, 200, 1}}}});
}

TEST(InstructionTable, HasTheRowsOfTheProfile) {
  const auto profile = synthetic::SynthesizeProfile({});
  ASSERT_TRUE(profile);
  const auto table = MakeInstructionTable(*profile, 3, 0, InstructionKind::kBackward);
  ASSERT_TRUE(table);
  const profile::ProfileEntry* entry = profile->Find(3, 0, InstructionKind::kBackward);
  ASSERT_EQ(static_cast<std::size_t>(table->count), entry->options.size());
  for (const profile::Option& option : entry->options) {
    const synthetic::TimeAndEnergy row = table->At(static_cast<int>(option.frequency_mhz));
    EXPECT_EQ(ToNanoseconds(row.time_s), option.time);
    EXPECT_EQ(row.energy_j, option.energy_j);
  }
}

TEST(InstructionTable, InterpolatesBetweenRowsAndClampsOutside) {
  const auto table = MakeInstructionTable(TwoClocks(), 0, 0, InstructionKind::kForward);
  ASSERT_TRUE(table);
  EXPECT_DOUBLE_EQ(table->At(750).time_s, 1.5);
  EXPECT_DOUBLE_EQ(table->At(750).energy_j, 250);
  EXPECT_EQ(table->At(100).time_s, 2);
  EXPECT_EQ(table->At(5000).energy_j, 300);
}

TEST(InstructionTable, AFixedInstructionIsTheSameAtEveryClock) {
  const InstructionTable table = FixedInstruction({0.25, 20});
  for (const int clock_mhz : {0, 1, 210, 1980}) {
    EXPECT_EQ(table.At(clock_mhz).time_s, 0.25);
    EXPECT_EQ(table.At(clock_mhz).energy_j, 20);
  }
}

TEST(InstructionTable, SaysWhatIsWrongWithAProfile) {
  const auto error = [](const profile::Profile& profile, int stage) {
    return MakeInstructionTable(profile, stage, 0, InstructionKind::kForward).error().Message();
  };
  EXPECT_EQ(error(TwoClocks(), 1),
            "p.csv: has no forward of stage 1, chunk 0 (measure it, or run another instruction)");

  const profile::Profile knobs("p.csv", {"sm_count"},
                               {{0, 0, InstructionKind::kForward, {{1000, {80}, 1, 1, 1}}}});
  EXPECT_EQ(error(knobs, 0),
            "p.csv: has the knob sm_count, but a virtual GPU has only clocks (remove the column)");

  std::vector<profile::Option> options;
  for (int i = 0; i <= kMostClocks; ++i) options.push_back({1000 + i, {}, 1, 1, 1});
  const profile::Profile many("p.csv", {}, {{0, 0, InstructionKind::kForward, options}});
  EXPECT_EQ(error(many, 0),
            "p.csv: forward of stage 0 has 129 clocks (a virtual GPU has at most 128)");
}

}  // namespace
}  // namespace perseus::virtual_gpu
