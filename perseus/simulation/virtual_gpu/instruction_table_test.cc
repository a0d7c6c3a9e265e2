#include "perseus/simulation/virtual_gpu/virtual_gpu.h"

#include <gtest/gtest.h>

#include <vector>

#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::virtual_gpu {
namespace {

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
    return MakeInstructionTable(profile, stage, 0, InstructionKind::kForward).error().message;
  };
  EXPECT_EQ(error(TwoClocks(), 1),
            "p.csv: has no forward of stage 1, chunk 0 (measure it, or run another instruction)");

  const profile::Profile knobs("p.csv", {"sm_count"},
                               {{0, 0, InstructionKind::kForward, {{1000, {80}, 1, 1, 1}}}});
  EXPECT_EQ(error(knobs, 0),
            "p.csv: has the knob sm_count, but a virtual GPU has only clocks (remove the column)");

  const profile::Profile same(
      "p.csv", {},
      {{0, 0, InstructionKind::kForward, {{1000.4, {}, 1, 1, 1}, {1000, {}, 1, 1, 1}}}});
  EXPECT_EQ(
      error(same, 0),
      "p.csv: forward of stage 0 has the clock 1000.4 MHz (a virtual GPU has different clocks of "
      "whole MHz)");

  std::vector<profile::Option> options;
  for (int i = 0; i <= kMostClocks; ++i) options.push_back({1000.0 + i, {}, 1, 1, 1});
  const profile::Profile many("p.csv", {}, {{0, 0, InstructionKind::kForward, options}});
  EXPECT_EQ(error(many, 0),
            "p.csv: forward of stage 0 has 129 clocks (a virtual GPU has at most 128)");
}

}  // namespace
}  // namespace perseus::virtual_gpu
