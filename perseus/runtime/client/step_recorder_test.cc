// How events, energy and answers appear in a rank's log.
#include "perseus/runtime/client/step_recorder.h"

#include <gmock/gmock.h>

namespace perseus::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Nanoseconds kLater = 1'000'000'000;

StreamTiming NoStream(int) { return {StreamTiming::State::kLost, 0, 0}; }

class StepRecorderTest : public testing::Test {
 protected:
  void Begin(Nanoseconds at, std::int64_t step = 0) {
    Event event;
    event.type = Event::Type::kStepBegin;
    event.begin = at;
    event.step = step;
    event.version = 7;
    recorder_.Add(event);
  }
  void Instruction(Nanoseconds begin, Nanoseconds end, int timing = -1) {
    Event event;
    event.type = timing < 0 ? Event::Type::kInstruction : Event::Type::kStreamInstruction;
    event.what = {InstructionKind::kBackward, 3, 1};
    event.frequency_mhz = 1200;
    event.begin = begin;
    event.end = end;
    event.timing = timing;
    recorder_.Add(event);
  }
  void End(Nanoseconds at) {
    Event event;
    event.type = Event::Type::kStepEnd;
    event.begin = at;
    event.has_plan = true;
    event.on_plan = true;
    recorder_.Add(event);
  }
  StepRecorder recorder_;
};

TEST_F(StepRecorderTest, WhatHeldTheClockDownAtTheLastLookHoldsUntilTheNext) {
  device::Telemetry hot;
  hot.limits.Add(device::ClockLimit::kThermal);
  recorder_.SetState(hot);
  for (int i = 0; i < 4; ++i) {
    if (i == 2) recorder_.SetState({});
    Begin(1000 * i, i);
    End(1000 * i + 900);
    const auto steps = recorder_.TakeFinished(kLater, NoStream);
    ASSERT_THAT(steps, SizeIs(1));
    EXPECT_EQ(steps[0].is_limited, i < 3) << i;  // In the third, until the look.
  }
}

TEST_F(StepRecorderTest, AStepWithoutEndIsNotKeptWhole) {
  Begin(1000);
  for (int i = 0; i < 20'000; ++i) Instruction(1100, 1200);
  Instruction(1200, 1300, 17);
  End(2000);
  Begin(3000, 1);
  Instruction(3100, 3200);
  End(4000);
  std::vector<int> asked;
  const auto steps = recorder_.TakeFinished(kLater, [&asked](int timing) {
    asked.push_back(timing);
    return StreamTiming{StreamTiming::State::kKnown, 1200, 1300};
  });
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_EQ(steps[0].step, 1);
  EXPECT_THAT(asked, ElementsAre(17));  // It is released.
}

TEST_F(StepRecorderTest, TimesCountFromTheStepsBegin) {
  Begin(1000, 12);
  Instruction(1100, 1600);
  End(2000);
  const auto steps = recorder_.TakeFinished(kLater, NoStream);
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_EQ(steps[0].step, 12);
  EXPECT_EQ(steps[0].assignment_version, 7);
  EXPECT_TRUE(steps[0].has_plan);
  EXPECT_TRUE(steps[0].on_plan);
  EXPECT_EQ(steps[0].begin, 1000);
  EXPECT_EQ(steps[0].end, 2000);
  EXPECT_THAT(steps[0].instructions, ElementsAre(protocol::RanInstruction{
                                         InstructionKind::kBackward, 3, 1, 100, 500, 1200}));
}

TEST_F(StepRecorderTest, EachEnergySampleIsInOneStep) {
  recorder_.Add(EnergyReading{500, 900, 1});  // Between steps: the next one's.
  Begin(1000);
  recorder_.Add(EnergyReading{1200, 1300, 2});
  End(2000);
  recorder_.Add(EnergyReading{1900, 2100, 3});  // Seen after the end: the next one's.
  Begin(2050);
  End(3000);
  const auto steps = recorder_.TakeFinished(kLater, NoStream);
  ASSERT_THAT(steps, SizeIs(2));
  EXPECT_THAT(steps[0].energy, ElementsAre(protocol::EnergySample{-500, -100, 1},
                                           protocol::EnergySample{200, 300, 2}));
  EXPECT_THAT(steps[1].energy, ElementsAre(protocol::EnergySample{-150, 50, 3}));
}

TEST_F(StepRecorderTest, WaitsALittleForTheAnswerToTheLastRequest) {
  Begin(1000);
  recorder_.Add(PublishedClock{1100, 1, 900});
  recorder_.Add(PublishedClock{1200, 2, 1005});
  End(2000);
  EXPECT_THAT(recorder_.TakeFinished(3000, NoStream), IsEmpty());
  recorder_.Add(protocol::ClockAnswer{2, 1005, protocol::ClockOutcome::kInEffect, 1300});
  const auto steps = recorder_.TakeFinished(3000, NoStream);
  ASSERT_THAT(steps, SizeIs(1));
  // The first was overtaken before it was answered.
  EXPECT_THAT(steps[0].clocks, ElementsAre(protocol::ClockChange{100, 0, 900, 0},
                                           protocol::ClockChange{200, 300, 1005, 2}));
}

TEST_F(StepRecorderTest, DoesNotWaitForeverForAnAnswer) {
  Begin(1000);
  recorder_.Add(PublishedClock{1100, 1, 900});
  End(2000);
  EXPECT_THAT(recorder_.TakeFinished(2000 + 99'999'999, NoStream), IsEmpty());
  EXPECT_THAT(recorder_.TakeFinished(2000 + 100'000'000, NoStream), SizeIs(1));
}

TEST_F(StepRecorderTest, StreamTimesComeLaterAndMayOutlastTheStep) {
  Begin(1000);
  Instruction(0, 0, 4);
  End(2000);
  const auto pending = [](int) { return StreamTiming{}; };
  EXPECT_THAT(recorder_.TakeFinished(kLater, pending), IsEmpty());
  const auto known = [](int timing) {
    return StreamTiming{StreamTiming::State::kKnown, 1500 + timing, 2500};
  };
  const auto steps = recorder_.TakeFinished(kLater, known);
  ASSERT_THAT(steps, SizeIs(1));
  // The step begins with its first instruction on the GPU.
  EXPECT_EQ(steps[0].begin, 1504);
  EXPECT_EQ(steps[0].instructions[0].begin, 0);
  EXPECT_EQ(steps[0].instructions[0].duration, 996);
  EXPECT_EQ(steps[0].end, 2500);
}

TEST_F(StepRecorderTest, AStepWithLostTimesIsLeftOut) {
  Begin(1000);
  Instruction(0, 0, 4);
  End(2000);
  EXPECT_THAT(recorder_.TakeFinished(kLater, NoStream), IsEmpty());
  Begin(3000);
  End(4000);
  EXPECT_THAT(recorder_.TakeFinished(kLater, NoStream), SizeIs(1));
}

TEST_F(StepRecorderTest, SaysThatSomethingHeldTheClockDown) {
  device::Telemetry hot;
  hot.temperature_c = 91;
  hot.limits.Add(device::ClockLimit::kThermal);
  recorder_.SetState(hot);
  device::Telemetry cooler;
  cooler.temperature_c = 80;
  recorder_.SetState(cooler);
  Begin(1000);
  End(2000);
  Begin(3000);
  End(4000);
  const auto steps = recorder_.TakeFinished(kLater, NoStream);
  ASSERT_THAT(steps, SizeIs(2));
  EXPECT_TRUE(steps[0].is_limited);
  EXPECT_THAT(steps[0].limited_by, ElementsAre("temperature"));
  EXPECT_EQ(steps[0].temperature_c, 80);
  EXPECT_FALSE(steps[1].is_limited);
  EXPECT_THAT(steps[1].limited_by, IsEmpty());
}

TEST_F(StepRecorderTest, TellsThePowerLimitFromOtherCauses) {
  const auto answer = [](protocol::ClockOutcome outcome) {
    return protocol::ClockAnswer{.sequence = 1, .sm_clock_mhz = 1200, .outcome = outcome};
  };
  const auto causes = [this] {
    Begin(1000);
    End(2000);
    return recorder_.TakeFinished(kLater, NoStream).at(0).limited_by;
  };
  recorder_.Add(answer(protocol::ClockOutcome::kAtPowerLimit));
  EXPECT_THAT(causes(), ElementsAre("power"));
  // The agent saw the lock of another program, or heat.
  recorder_.Add(answer(protocol::ClockOutcome::kLimited));
  EXPECT_THAT(causes(), ElementsAre("other"));
  device::Telemetry hot;
  hot.limits.Add(device::ClockLimit::kThermal);
  recorder_.SetState(hot);
  recorder_.SetState({});
  recorder_.Add(answer(protocol::ClockOutcome::kLimited));
  EXPECT_THAT(causes(), ElementsAre("temperature"));
  device::Telemetry telemetry;
  telemetry.limits.Add(device::ClockLimit::kSetting);
  telemetry.limits.Add(device::ClockLimit::kPowerCap);
  recorder_.SetState(telemetry);
  EXPECT_THAT(causes(), ElementsAre("power"));
  telemetry.limits.Add(device::ClockLimit::kPowerBrake);
  recorder_.SetState(telemetry);
  EXPECT_THAT(causes(), ElementsAre("power", "power_brake"));
}

TEST_F(StepRecorderTest, WhatTheDriverDoesNotReportIsAbsent) {
  Begin(1000);
  End(2000);
  device::Telemetry telemetry;
  telemetry.power_w = 250;
  recorder_.SetState(telemetry);
  const auto steps = recorder_.TakeFinished(kLater, NoStream);
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_EQ(steps[0].power_w, 250);
  EXPECT_EQ(steps[0].temperature_c, std::nullopt);
}

TEST_F(StepRecorderTest, ReadingsOfTheClockBelongToTheStepInWhichTheyWereTaken) {
  Begin(1000);
  End(2000);
  Begin(3000, 1);
  End(4000);
  for (const Nanoseconds at : {900, 1100, 1900, 2500, 3500, 4500}) {
    recorder_.Add(ClockReading{at, 1290});
  }
  const auto steps = recorder_.TakeFinished(kLater, NoStream);
  ASSERT_THAT(steps, SizeIs(2));
  EXPECT_THAT(steps[0].reached,
              ElementsAre(protocol::ReachedClock{100, 1290}, protocol::ReachedClock{900, 1290}));
  EXPECT_THAT(steps[1].reached, ElementsAre(protocol::ReachedClock{500, 1290}));
}

}  // namespace
}  // namespace perseus::client
