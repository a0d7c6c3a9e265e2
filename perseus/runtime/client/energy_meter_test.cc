// A meter that looks at counters with known changes.
#include "perseus/runtime/client/energy_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/support/results.h"
#include "tests/support/virtual_node_fixture.h"

namespace perseus::client {
namespace {

// A counter that counts its changes, and a read that takes time.
struct Counter {
  FakeClock clock{kSecond};
  // Changes until this time. The first change is after the first second.
  std::function<double(Nanoseconds)> changes_until;
  // The length of the next read.
  std::function<Nanoseconds()> read_length = [] { return Nanoseconds{0}; };
  device::CounterState state = device::CounterState::kUsed;
  device::PowerScope scope = device::PowerScope::kGpu;
  bool is_at_power_limit = false;
  bool is_broken = false;
  int reads_of_all = 0;
  std::vector<Nanoseconds> reads;  // When they began.
};

class CounterDevice final : public device::Device {
 public:
  explicit CounterDevice(Counter& counter) : counter_(counter) {}

  const device::DeviceInfo& info() const override { return info_; }
  device::DeviceResult<device::Telemetry> Read() override {
    device::Telemetry telemetry;
    PERSEUS_ASSIGN_OR_RETURN(telemetry.energy_j, ReadEnergy());
    telemetry.power_w = 300;
    telemetry.temperature_c = 50 + counter_.reads_of_all++;
    telemetry.sm_clock_mhz = 1290;
    telemetry.counter = counter_.state;
    telemetry.scope = counter_.scope;
    if (counter_.is_at_power_limit) telemetry.limits.Add(device::ClockLimit::kPowerCap);
    return telemetry;
  }
  // Takes the value in the middle of the read.
  device::DeviceResult<std::optional<double>> ReadEnergy() override {
    counter_.reads.push_back(counter_.clock.Now());
    if (counter_.is_broken) {
      return DeviceFail(device::DeviceErrorKind::kFailed, "the counter is broken");
    }
    const Nanoseconds length = counter_.read_length();
    counter_.clock.Advance(length / 2);
    const double energy_j = counter_.changes_until(counter_.clock.Now());
    counter_.clock.Advance(length - length / 2);
    if (counter_.state == device::CounterState::kOnTrial) return std::nullopt;
    return energy_j;
  }
  device::DeviceResult<device::SettingReading> ReadSetting(device::Control) override {
    return device::SettingReading{};
  }
  device::DeviceResult<void> Apply(device::Control,
                                   const std::optional<device::Setting>&) override {
    return {};
  }
  device::DeviceResult<device::Effect> ReadEffect(device::Control,
                                                  const std::optional<device::Setting>&) override {
    return device::Effect{};
  }

 private:
  Counter& counter_;
  device::DeviceInfo info_;
};

// Changes at `phase`, and then once a period.
std::function<double(Nanoseconds)> Periodic(Nanoseconds period, Nanoseconds phase) {
  return [=](Nanoseconds now) {
    return std::floor(static_cast<double>(now - phase) / static_cast<double>(period)) + 1;
  };
}

// As an H100: 3 ms, and 17 ms for one read of a hundred.
std::function<Nanoseconds()> LengthsOfH100(std::uint64_t seed) {
  return [random = SplitMix64{seed}]() mutable {
    return Below(random, 100) == 0 ? 17 * kMillisecond : 3 * kMillisecond;
  };
}

class EnergyMeterTest : public testing::Test {
 protected:
  EnergyMeter Meter(std::uint64_t seed = 1) {
    return {std::make_unique<CounterDevice>(counter_), counter_.clock, seed};
  }
  Nanoseconds Now() { return counter_.clock.Now(); }
  // Looks when they are due, as a background thread does, and returns what is reported.
  std::vector<EnergyReading> Run(EnergyMeter& meter, Nanoseconds duration) {
    std::vector<EnergyReading> readings;
    for (const Nanoseconds until = Now() + duration; meter.due() < until;) {
      counter_.clock.AdvanceTo(meter.due());
      if (const auto reading = meter.Look()) readings.push_back(*reading);
    }
    counter_.clock.AdvanceTo(Now() + kMillisecond);
    ExpectTrue(readings);
    return readings;
  }
  // The counter had another value at the begin of the window, and this one at its end.
  void ExpectTrue(const std::vector<EnergyReading>& readings) {
    for (const EnergyReading& reading : readings) {
      EXPECT_NE(counter_.changes_until(reading.after), reading.energy_j);
      EXPECT_GE(counter_.changes_until(reading.until), reading.energy_j);
    }
  }
  double LooksPerSecond(Nanoseconds from) {
    const auto looks = std::count_if(counter_.reads.begin(), counter_.reads.end(),
                                     [from](Nanoseconds began) { return began >= from; });
    return static_cast<double>(looks) / ToSeconds(Now() - from);
  }
  static int WiderThan(const std::vector<EnergyReading>& readings, Nanoseconds width) {
    return static_cast<int>(std::count_if(
        readings.begin(), readings.end(),
        [width](const EnergyReading& reading) { return reading.until - reading.after > width; }));
  }

  Counter counter_;
};

TEST_F(EnergyMeterTest, FollowsACounterOf100MsWithSlowReads) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    const Nanoseconds phase = Now() + static_cast<Nanoseconds>(seed) * 17 * kMillisecond;
    counter_.changes_until = Periodic(100 * kMillisecond, phase);
    counter_.read_length = LengthsOfH100(seed);
    EnergyMeter meter = Meter(seed);
    EXPECT_GE(Run(meter, kSecond).size(), 7U) << "a search reports, too";
    const Nanoseconds from = Now();
    const auto readings = Run(meter, 100 * kSecond);
    EXPECT_LE(LooksPerSecond(from), 20.5);
    EXPECT_GE(readings.size(), 930U) << "of 1000 changes";
    // In 2 % of all pairs, one read is slow: 20 of 1000, with a standard deviation of 4.5.
    EXPECT_LE(WiderThan(readings, 10 * kMillisecond), 20 + 4 * 4.5);
  }
}

// The middle of a window is early as often as late, and so is the next one.
TEST_F(EnergyMeterTest, TheErrorsOfTheTimesAreIndependent) {
  for (const Nanoseconds period : {100 * kMillisecond, 20 * kMillisecond}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(testing::Message() << period << " " << seed);
      const Nanoseconds phase = Now() + static_cast<Nanoseconds>(seed) * 7 * kMillisecond / 3;
      counter_.changes_until = Periodic(period, phase);
      counter_.read_length = [] { return 3 * kMillisecond; };
      EnergyMeter meter = Meter(seed);
      Run(meter, 2 * kSecond);
      double sum_s = 0;
      double squares_s2 = 0;
      double products_s2 = 0;
      double last_s = 0;
      const auto readings = Run(meter, 200 * kSecond);
      for (const EnergyReading& reading : readings) {
        const Nanoseconds middle = (reading.after + reading.until) / 2;
        const double late_s = ToSeconds((middle - phase + period / 2) % period - period / 2);
        sum_s += late_s;
        squares_s2 += late_s * late_s;
        products_s2 += late_s * last_s;
        last_s = late_s;
      }
      const auto count = static_cast<double>(readings.size());
      ASSERT_GE(count, 1800);
      const double deviation_s = std::sqrt(squares_s2 / count);
      // Uniform in a gap of 6.5 ms: 1.9 ms. A pair that hardly moves would have a small deviation.
      EXPECT_NEAR(deviation_s, 0.0019, 0.0003);
      EXPECT_NEAR(sum_s / count, 0, 5 * deviation_s / std::sqrt(count));
      EXPECT_NEAR(products_s2 / squares_s2, 0, 5 / std::sqrt(count));
    }
  }
}

// About ten pairs a second see a change each.
TEST_F(EnergyMeterTest, SeesSomeChangesOfAFasterCounter) {
  for (const auto& [period, least] :
       {std::pair(20 * kMillisecond, 500U), std::pair(kMillisecond, 550U)}) {
    SCOPED_TRACE(period);
    counter_.changes_until = Periodic(period, Now());
    counter_.read_length = LengthsOfH100(1);
    EnergyMeter meter = Meter();
    Run(meter, kSecond);
    const Nanoseconds from = Now();
    const auto readings = Run(meter, 60 * kSecond);
    EXPECT_LE(LooksPerSecond(from), EnergyMeter::kMostLooksPerSecond);
    EXPECT_GE(readings.size(), least);
    EXPECT_LE(WiderThan(readings, 10 * kMillisecond), 0.05 * 600);
  }
}

// Any period: from a shorter one than between two looks, to a longer one than a search.
TEST_F(EnergyMeterTest, EveryPeriodStaysWithinTheBudget) {
  for (const int period_ms : {8, 12, 15, 30, 45, 60, 79, 83, 90, 130, 250, 500, 1000}) {
    SCOPED_TRACE(period_ms);
    counter_.changes_until = Periodic(period_ms * kMillisecond, Now() + kMillisecond);
    counter_.read_length = LengthsOfH100(1);
    EnergyMeter meter = Meter();
    Run(meter, 10 * kSecond);
    const Nanoseconds from = Now();
    const auto readings = Run(meter, 60 * kSecond);
    EXPECT_LE(LooksPerSecond(from), EnergyMeter::kMostLooksPerSecond);
    // A part of the changes, or of ten pairs a second.
    EXPECT_GE(static_cast<double>(readings.size()),
              60 * std::min(0.85 * 1000 / period_ms, period_ms < 20 ? 3.0 : 5.5));
  }
}

TEST_F(EnergyMeterTest, FollowsDrift) {
  // The period grows by 0.03 % in each second: after 60 s, it is 101.8 ms.
  const Nanoseconds begin = Now();
  counter_.changes_until = [begin](Nanoseconds now) {
    const double s = ToSeconds(now - begin);
    return std::floor(1000 / 100.0 * std::log1p(0.0003 * s) / 0.0003);
  };
  counter_.read_length = LengthsOfH100(1);
  EnergyMeter meter = Meter();
  Run(meter, kSecond);
  const Nanoseconds from = Now();
  const auto readings = Run(meter, 60 * kSecond);
  EXPECT_LE(LooksPerSecond(from), 21);
  EXPECT_GE(static_cast<double>(readings.size()),
            0.9 * (counter_.changes_until(Now()) - counter_.changes_until(from)));
}

TEST_F(EnergyMeterTest, FindsACounterAgainAfterAJump) {
  struct Row {
    const char* name;
    Nanoseconds period;
    Nanoseconds shift;
  };
  const Row kRows[] = {{"phase", 100 * kMillisecond, 37 * kMillisecond},
                       {"shorter period", 50 * kMillisecond, 0},
                       {"longer period", 170 * kMillisecond, 0}};
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    const auto before = Periodic(100 * kMillisecond, Now());
    counter_.changes_until = before;
    counter_.read_length = LengthsOfH100(1);
    EnergyMeter meter = Meter();
    Run(meter, 10 * kSecond);
    const Nanoseconds jump = Now();
    const double base = before(jump);
    counter_.changes_until = [=,
                              after = Periodic(row.period, jump + row.shift + 1)](Nanoseconds now) {
      return now < jump ? before(now) : base + after(now);
    };
    Run(meter, 2 * kSecond);
    const Nanoseconds from = Now();
    const double changes = counter_.changes_until(from);
    const auto readings = Run(meter, 20 * kSecond);
    EXPECT_LE(LooksPerSecond(jump), EnergyMeter::kMostLooksPerSecond);
    const double pairs = std::min(counter_.changes_until(Now()) - changes, 20 * 10.0);
    EXPECT_GE(static_cast<double>(readings.size()), 0.85 * pairs);
    EXPECT_LE(WiderThan(readings, 10 * kMillisecond), 0.06 * pairs);
  }
}

TEST_F(EnergyMeterTest, WaitsForACounterThatStandsStill) {
  const Nanoseconds moves = Now() + 60 * kSecond;
  counter_.changes_until = [moves](Nanoseconds now) {
    return now < moves ? 0 : Periodic(100 * kMillisecond, moves)(now);
  };
  counter_.read_length = LengthsOfH100(1);
  EnergyMeter meter = Meter();
  Run(meter, 10 * kSecond);
  const Nanoseconds from = Now();
  EXPECT_TRUE(Run(meter, moves - from - kMillisecond).empty());
  EXPECT_LE(LooksPerSecond(from), 11);
  // A search follows, and then the counter is followed.
  EXPECT_GE(Run(meter, 2 * kSecond).size(), 15U);
  const auto readings = Run(meter, 10 * kSecond);
  EXPECT_GE(readings.size(), 90U);
  EXPECT_LE(WiderThan(readings, 10 * kMillisecond), 6);
}

// A thread on a busy machine begins its looks late.
TEST_F(EnergyMeterTest, AllowsForLateLooks) {
  counter_.changes_until = Periodic(100 * kMillisecond, Now());
  EnergyMeter meter = Meter();
  SplitMix64 random{1};
  std::vector<EnergyReading> readings;
  for (const Nanoseconds until = Now() + 100 * kSecond; Now() < until;) {
    counter_.clock.AdvanceTo(meter.due() + Below(random, 4'000'000));
    if (const auto reading = meter.Look()) readings.push_back(*reading);
  }
  ExpectTrue(readings);
  EXPECT_GE(readings.size(), 850U);
  EXPECT_LE(LooksPerSecond(kSecond), 21);
}

// On a busy machine, half of all looks begin late, by up to 16 ms.
TEST_F(EnergyMeterTest, SeesMostChangesOnABusyMachine) {
  counter_.changes_until = Periodic(100 * kMillisecond, Now());
  counter_.read_length = LengthsOfH100(1);
  EnergyMeter meter = Meter();
  SplitMix64 random{1};
  std::vector<EnergyReading> readings;
  for (const Nanoseconds until = Now() + 100 * kSecond; Now() < until;) {
    const bool is_late = Below(random, 2) == 0;
    counter_.clock.AdvanceTo(meter.due() + (is_late ? Below(random, 16'000'000) : 0));
    if (const auto reading = meter.Look()) readings.push_back(*reading);
  }
  ExpectTrue(readings);
  EXPECT_GE(readings.size(), 750U) << "of 1000 changes";
  EXPECT_EQ(WiderThan(readings, 60 * kMillisecond), 0);
  EXPECT_LE(LooksPerSecond(kSecond), EnergyMeter::kMostLooksPerSecond);
}

// A periodic thread of virtual time wakes at multiples of 5 ms.
TEST_F(EnergyMeterTest, AllowsForAGridOfTime) {
  for (int phase_ms = 0; phase_ms < 5; ++phase_ms) {
    SCOPED_TRACE(phase_ms);
    constexpr Nanoseconds kGrid = 5 * kMillisecond;
    counter_.changes_until = Periodic(100 * kMillisecond, Now() + phase_ms * kMillisecond + 1);
    EnergyMeter meter = Meter();
    int readings = 0;
    const Nanoseconds from = Now();
    while (Now() < from + 100 * kSecond) {
      counter_.clock.AdvanceTo((meter.due() + kGrid - 1) / kGrid * kGrid);
      if (meter.Look()) ++readings;
    }
    EXPECT_GE(readings, 850);
    EXPECT_LE(LooksPerSecond(from), 22);
  }
}

TEST_F(EnergyMeterTest, IntegratedEnergyBelongsToTheTimeOfItsRead) {
  counter_.state = device::CounterState::kNone;
  counter_.changes_until = [](Nanoseconds now) { return 300 * ToSeconds(now); };
  counter_.read_length = [] { return 30 * kMicrosecond; };
  EnergyMeter meter = Meter();
  EXPECT_FALSE(meter.Look());
  const Nanoseconds from = Now();
  const auto readings = Run(meter, 10 * kSecond);
  EXPECT_LE(LooksPerSecond(from), EnergyMeter::kMostLooksPerSecond);
  EXPECT_GE(readings.size(), 200U);
  for (const EnergyReading& reading : readings) {
    EXPECT_EQ(reading.until - reading.after, 30 * kMicrosecond);
  }
}

TEST_F(EnergyMeterTest, RecordsNothingWhileTheCounterIsOnTrial) {
  counter_.changes_until = Periodic(100 * kMillisecond, Now());
  counter_.state = device::CounterState::kOnTrial;
  EnergyMeter meter = Meter();
  const Nanoseconds from = Now();
  EXPECT_TRUE(Run(meter, 5 * kSecond).empty());
  EXPECT_GE(LooksPerSecond(from), 10) << "the trial needs readings";
  EXPECT_LE(LooksPerSecond(from), EnergyMeter::kMostLooksPerSecond);
  EXPECT_EQ(meter.telemetry().power_w, 300);
  EXPECT_TRUE(meter.trouble().empty());
  counter_.state = device::CounterState::kUsed;
  EXPECT_GE(Run(meter, 3 * kSecond).size(), 15U);
}

// Readers of the record take a smaller value for the beginning of another count.
TEST_F(EnergyMeterTest, AFallIsRecordedAndTheSearchBeginsAgain) {
  const Nanoseconds falls = Now() + 5 * kSecond + 20 * kMillisecond;
  counter_.changes_until = [before = Periodic(100 * kMillisecond, Now()),
                            after = Periodic(100 * kMillisecond, falls), falls](Nanoseconds now) {
    return now < falls ? before(now) : after(now);
  };
  EnergyMeter meter = Meter();
  Run(meter, 5 * kSecond);
  const auto readings = Run(meter, 5 * kSecond);
  ASSERT_FALSE(readings.empty());
  const auto fall = std::ranges::find_if(
      readings, [&](const EnergyReading& reading) { return reading.energy_j <= 2; });
  ASSERT_NE(fall, readings.end());
  EXPECT_LE(fall->after, falls);
  EXPECT_GE(fall->until, falls);
  EXPECT_GE(readings.end() - fall, 25);
}

// A counter that fails gives way to integrated power, which begins at 0.
TEST_F(EnergyMeterTest, AChangeOfTheSourceIsRecordedAsAFall) {
  counter_.changes_until = Periodic(100 * kMillisecond, Now());
  EnergyMeter meter = Meter();
  Run(meter, 5 * kSecond);
  const Nanoseconds fails = Now();
  counter_.changes_until = [fails](Nanoseconds now) { return 300 * ToSeconds(now - fails); };
  counter_.state = device::CounterState::kStandsStill;
  counter_.read_length = [] { return 30 * kMicrosecond; };
  const auto readings = Run(meter, 2 * kSecond);
  ASSERT_GE(readings.size(), 30U);
  EXPECT_LT(readings.front().energy_j, 45);
  for (std::size_t i = 1; i < readings.size(); ++i) {
    EXPECT_EQ(readings[i].until - readings[i].after, 30 * kMicrosecond) << "the time of its read";
  }
}

TEST_F(EnergyMeterTest, TheEnergyOfAModuleIsNotThatOfTheGpu) {
  counter_.changes_until = Periodic(100 * kMillisecond, Now());
  counter_.scope = device::PowerScope::kModule;
  EnergyMeter meter = Meter();
  EXPECT_TRUE(Run(meter, 5 * kSecond).empty());
  EXPECT_FALSE(meter.telemetry().power_w);
  EXPECT_FALSE(meter.telemetry().energy_j);
}

TEST_F(EnergyMeterTest, ReadsTheClockOnlyAtThePowerLimit) {
  counter_.changes_until = Periodic(100 * kMillisecond, Now());
  EnergyMeter meter = Meter();
  EXPECT_FALSE(meter.ReachedClock());
  meter.Look();
  EXPECT_FALSE(meter.ReachedClock());
  counter_.is_at_power_limit = true;
  EXPECT_FALSE(meter.ReachedClock()) << "before the next look at everything";
  counter_.clock.Advance(kSecond);
  meter.Look();
  counter_.clock.Advance(10 * kMillisecond);
  const auto reading = meter.ReachedClock().value();
  EXPECT_EQ(reading.at, Now());
  EXPECT_EQ(reading.sm_clock_mhz, 1290);
}

TEST_F(EnergyMeterTest, AsksForAllElseOnceASecond) {
  counter_.changes_until = Periodic(100 * kMillisecond, Now());
  EnergyMeter meter = Meter();
  Run(meter, 10 * kSecond + 500 * kMillisecond);
  EXPECT_EQ(counter_.reads_of_all, 11);
  EXPECT_EQ(meter.telemetry().temperature_c, 60);
  EXPECT_DOUBLE_EQ(meter.telemetry().energy_j.value(),
                   counter_.changes_until(counter_.reads.back()));
}

TEST_F(EnergyMeterTest, WithoutAStepItOnlyReadsTheState) {
  counter_.changes_until = Periodic(100 * kMillisecond, Now());
  EnergyMeter meter = Meter();
  Run(meter, 2 * kSecond);
  for (int i = 0; i < 3; ++i) {
    counter_.clock.Advance(kSecond);
    const int before = counter_.reads_of_all;
    meter.ReadState();
    EXPECT_EQ(counter_.reads_of_all, before + 1);
  }
  EXPECT_GE(Run(meter, 2 * kSecond).size(), 15U) << "a search, and then pairs";
}

TEST_F(EnergyMeterTest, TriesABrokenCounterAgain) {
  counter_.changes_until = Periodic(100 * kMillisecond, Now());
  EnergyMeter meter = Meter();
  Run(meter, 2 * kSecond);
  counter_.is_broken = true;
  const Nanoseconds from = Now();
  EXPECT_TRUE(Run(meter, 10 * kSecond).empty());
  EXPECT_LE(LooksPerSecond(from), EnergyMeter::kMostLooksPerSecond);
  EXPECT_EQ(meter.trouble(), "the counter is broken");
  counter_.is_broken = false;
  EXPECT_GE(Run(meter, 2 * kSecond).size(), 15U);
  EXPECT_TRUE(meter.trouble().empty());
}

TEST(EnergyMeter, WithoutADeviceThereIsNothing) {
  FakeClock clock;
  EnergyMeter meter(nullptr, clock, 1);
  EXPECT_EQ(meter.info(), nullptr);
  EXPECT_FALSE(meter.Look());
  meter.ReadState();
  EXPECT_EQ(meter.due(), Clock::kNever);
  EXPECT_TRUE(meter.trouble().empty());
}

class VirtualEnergyMeterTest : public VirtualNodeTest {};

TEST_F(VirtualEnergyMeterTest, FollowsAVirtualGpu) {
  const auto clock = std::make_shared<FakeClock>(kSecond);
  const auto node = ValueOf(virtual_gpu::VirtualNode::Open(Describe(kTwoGpus), clock));
  EnergyMeter meter(std::move(node.Devices().devices.front()), *clock, 1);
  int looks = 0;
  std::vector<EnergyReading> readings;
  for (const Nanoseconds until = 21 * kSecond; meter.due() < until; ++looks) {
    clock->AdvanceTo(meter.due());
    if (const auto reading = meter.Look()) readings.push_back(*reading);
  }
  // The counter changes every 20 ms. Of 20 s, the first is a search.
  EXPECT_GE(readings.size(), 200U);
  EXPECT_LE(looks, 100 + 20 * EnergyMeter::kMostLooksPerSecond);
  for (std::size_t i = 1; i < readings.size(); ++i) {
    EXPECT_LE(readings[i].until - readings[i].after, 15 * kMillisecond);
    EXPECT_GT(readings[i].energy_j, readings[i - 1].energy_j);
  }
}

}  // namespace
}  // namespace perseus::client
