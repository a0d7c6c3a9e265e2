#include "perseus/runtime/device/energy_account.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>

namespace perseus::device {
namespace {

TEST(EnergyIntegrator, AddsTrapezoidsBetweenReadings) {
  EnergyIntegrator energy;
  EXPECT_EQ(energy.energy_j(), 0);
  energy.Add(5 * kSecond, 100);
  EXPECT_EQ(energy.energy_j(), 0);
  energy.Add(7 * kSecond, 200);  // 2 s at 150 W.
  EXPECT_DOUBLE_EQ(energy.energy_j(), 300);
  energy.Add(7 * kSecond + kSecond / 2, 200);
  EXPECT_DOUBLE_EQ(energy.energy_j(), 400);
}

TEST(EnergyIntegrator, ZeroTimeAddsNothing) {
  EnergyIntegrator energy;
  energy.Add(2 * kSecond, 100);
  energy.Add(2 * kSecond, 900);
  energy.Add(kSecond, 900);
  energy.Add(3 * kSecond, 100);
  EXPECT_DOUBLE_EQ(energy.energy_j(), 100);
}

// A GPU whose power and counter a test sets, read every 100 ms.
class EnergyAccountTest : public testing::Test {
 protected:
  // The counter changes every 100 ms, 30 ms before a reading.
  double CounterNow() const {
    const Nanoseconds change = (now_ + 30 * kMillisecond) / kPeriod * kPeriod;
    return counter_j_ + counter_w_ * ToSeconds(change - since_);
  }
  void Pass(Nanoseconds time, Nanoseconds period = kPeriod) {
    for (const Nanoseconds end = now_ + time; now_ < end; now_ += period) {
      account_.Add({.began = now_,
                    .ended = now_ + kMillisecond,
                    .counter_j = has_counter_ ? std::optional(CounterNow()) : std::nullopt,
                    .power_w = power_w_(now_)});
    }
  }
  // The counter goes on from another value.
  void Jump(double counter_j) {
    counter_j_ = counter_j;
    since_ = now_;
  }
  std::uint64_t Falls() const {
    Telemetry telemetry;
    account_.Fill(telemetry);
    return telemetry.counter_falls;
  }

  static constexpr Nanoseconds kPeriod = 100 * kMillisecond;
  EnergyAccount account_;
  Nanoseconds now_ = 100 * kSecond;
  bool has_counter_ = true;
  double counter_j_ = 126'272'101;
  Nanoseconds since_ = 100 * kSecond;
  double counter_w_ = 310;
  std::function<std::optional<double>(Nanoseconds)> power_w_ = [](Nanoseconds) { return 310; };
};

TEST_F(EnergyAccountTest, ACounterThatAgreesWithThePowerIsUsedAfterItsTrial) {
  Pass(1900 * kMillisecond);
  EXPECT_EQ(account_.state(), CounterState::kOnTrial);
  EXPECT_FALSE(account_.energy_j()) << "unknown, not 0";
  Pass(300 * kMillisecond);
  EXPECT_EQ(account_.state(), CounterState::kUsed);
  EXPECT_DOUBLE_EQ(account_.energy_j().value(), CounterNow() - 31)
      << "the value of the last reading";
  EXPECT_EQ(Falls(), 0U);
}

TEST_F(EnergyAccountTest, ACounterOfAModuleIsNotUsed) {
  counter_w_ = 500;  // 190 W of a CPU and its memory.
  Pass(2200 * kMillisecond);
  EXPECT_EQ(account_.state(), CounterState::kOfModule);
  const double begin_j = account_.energy_j().value();
  Pass(10 * kSecond);
  EXPECT_NEAR(*account_.energy_j() - begin_j, 3100, 1) << "of the GPU alone";
}

// The power of a GPU in training changes several times a second.
TEST_F(EnergyAccountTest, AVariableLoadHidesNoModuleAndMakesNone) {
  const auto load = [](Nanoseconds at) { return 300 + 200 * std::sin(15 * ToSeconds(at)); };
  power_w_ = load;
  counter_w_ = 300;
  Pass(11 * kSecond);
  EXPECT_EQ(account_.state(), CounterState::kUsed);

  account_ = {};
  counter_w_ = 490;
  Pass(11 * kSecond);
  EXPECT_NE(account_.state(), CounterState::kUsed);
  EXPECT_NE(account_.state(), CounterState::kOnTrial);
}

TEST_F(EnergyAccountTest, ACounterOfAnotherUnitOrGpuIsNotUsed) {
  counter_w_ = 80;
  Pass(9 * kSecond);
  EXPECT_EQ(account_.state(), CounterState::kOnTrial) << "a few windows may be unlucky";
  Pass(2 * kSecond);
  EXPECT_EQ(account_.state(), CounterState::kDisagrees);
  EXPECT_TRUE(account_.energy_j());
}

TEST_F(EnergyAccountTest, ACounterThatStandsStillIsReplacedByThePower) {
  Pass(3 * kSecond);
  ASSERT_EQ(account_.state(), CounterState::kUsed);
  const double last_j = account_.energy_j().value();
  Jump(last_j);
  counter_w_ = 0;
  Pass(2500 * kMillisecond);
  EXPECT_EQ(account_.energy_j(), last_j);
  Pass(kSecond);
  EXPECT_EQ(account_.state(), CounterState::kStandsStill);
  EXPECT_LT(*account_.energy_j(), 1000) << "a smaller value: the window is lost";
  const double begin_j = *account_.energy_j();
  Pass(2 * kSecond);
  EXPECT_NEAR(*account_.energy_j() - begin_j, 620, 1);
  counter_w_ = 310;
  Pass(5 * kSecond);
  EXPECT_EQ(account_.state(), CounterState::kStandsStill) << "it is not tried again";
}

// The second die of an MI250X.
TEST_F(EnergyAccountTest, WithoutPowerAndWithAFrozenCounterTheEnergyIsUnknown) {
  counter_w_ = 0;
  power_w_ = [](Nanoseconds) { return std::nullopt; };
  Pass(2500 * kMillisecond);
  EXPECT_EQ(account_.state(), CounterState::kOnTrial);
  Pass(3 * kSecond);
  EXPECT_EQ(account_.state(), CounterState::kStandsStill);
  EXPECT_FALSE(account_.energy_j());
}

TEST_F(EnergyAccountTest, WithoutPowerAMovingCounterIsUsed) {
  power_w_ = [](Nanoseconds) { return std::nullopt; };
  Pass(2200 * kMillisecond);
  EXPECT_EQ(account_.state(), CounterState::kUsed);
}

TEST_F(EnergyAccountTest, OneFallLosesOneWindowAndASecondOneTheCounter) {
  Pass(3 * kSecond);
  Jump(CounterNow() - 213);
  const double before_j = account_.energy_j().value();
  Pass(100 * kMillisecond);
  EXPECT_GT(before_j, 0);
  EXPECT_EQ(account_.energy_j(), 0);
  EXPECT_EQ(account_.state(), CounterState::kUsed);
  EXPECT_EQ(Falls(), 1U);
  Pass(590 * kSecond);
  EXPECT_EQ(Falls(), 1U);
  Jump(0);
  Pass(100 * kMillisecond);
  EXPECT_EQ(account_.state(), CounterState::kFalls);
  EXPECT_EQ(account_.energy_j(), 0);
  EXPECT_EQ(Falls(), 2U);
}

TEST_F(EnergyAccountTest, AFallDuringTheTrialBeginsItAgain) {
  Pass(1500 * kMillisecond);
  Jump(5);
  Pass(1900 * kMillisecond);
  EXPECT_EQ(account_.state(), CounterState::kOnTrial);
  Pass(400 * kMillisecond);
  EXPECT_EQ(account_.state(), CounterState::kUsed);
}

TEST_F(EnergyAccountTest, ASlowReaderTriesLonger) {
  Pass(7 * kSecond, kSecond);
  EXPECT_EQ(account_.state(), CounterState::kOnTrial);
  Pass(3 * kSecond, kSecond);
  EXPECT_EQ(account_.state(), CounterState::kUsed);
}

TEST_F(EnergyAccountTest, WithoutACounterThePowerIsIntegratedFromTheFirstReading) {
  has_counter_ = false;
  Pass(2050 * kMillisecond);
  EXPECT_EQ(account_.state(), CounterState::kNone);
  EXPECT_NEAR(account_.energy_j().value(), 620, 1);
}

TEST(EnergyAccount, AReadingThatWasOvertakenIsNoFall) {
  EnergyAccount account;
  account.Add({.began = 10, .ended = 20, .counter_j = 1500, .power_w = 1});
  account.Add({.began = 12, .ended = 15, .counter_j = 1490, .power_w = 1});
  Telemetry telemetry;
  account.Fill(telemetry);
  EXPECT_EQ(telemetry.counter_falls, 0U);
}

}  // namespace
}  // namespace perseus::device
