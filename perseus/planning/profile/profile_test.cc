#include "perseus/planning/profile/profile.h"
#include "perseus/base/limits.h"

#include <gtest/gtest.h>

namespace perseus::profile {
namespace {

Option OptionAt(int frequency_mhz, Nanoseconds time, double energy_j) {
  return {.frequency_mhz = frequency_mhz, .other_knobs = {}, .time = time, .energy_j = energy_j};
}

TEST(InstructionKind, ParsesItsOwnNames) {
  for (int i = 0; i <= static_cast<int>(InstructionKind::kGeneric); ++i) {
    const auto kind = static_cast<InstructionKind>(i);
    EXPECT_EQ(ParseInstructionKind(Name(kind)), kind);
  }
  EXPECT_EQ(ParseInstructionKind("Forward"), std::nullopt);
  EXPECT_EQ(ParseInstructionKind(""), std::nullopt);
  EXPECT_TRUE(IsComputation(InstructionKind::kRecompute));
  EXPECT_FALSE(IsComputation(InstructionKind::kLoad));
}

TEST(Profile, SortsEntriesAndOptionsAndFindsThem) {
  const Profile profile(
      "p", {},
      {{1, 0, InstructionKind::kForward, {OptionAt(900, 3, 1)}},
       {0, 1, InstructionKind::kBackward, {OptionAt(900, 2, 1)}},
       {0, 1, InstructionKind::kForward, {OptionAt(900, 2, 1), OptionAt(1400, 1, 2)}},
       {0, 0, InstructionKind::kForward, {OptionAt(900, 2, 1)}}});
  EXPECT_EQ(profile.pp_ranks(), 2);
  EXPECT_EQ(profile.chunks(), 2);
  const ProfileEntry* entry = profile.Find(0, 1, InstructionKind::kForward);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry, &profile.entries()[1]);
  EXPECT_EQ(entry->options.front().frequency_mhz, 1400);
  EXPECT_EQ(profile.Find(1, 0, InstructionKind::kBackward), nullptr);
  EXPECT_EQ(profile.Find(2, 0, InstructionKind::kForward), nullptr);
}

TEST(Profile, WithoutEntriesHasNoRanks) {
  const Profile profile("p", {}, {});
  EXPECT_EQ(profile.pp_ranks(), 0);
  EXPECT_EQ(profile.chunks(), 0);
}

TEST(FormatProfile, WritesExactTimesAndEnergies) {
  const Profile profile("p", {},
                        {{0,
                          0,
                          InstructionKind::kForward,
                          {OptionAt(1410, 50'161'667, 0.1 + 0.2), OptionAt(1395, 2'000'000'000, 23),
                           OptionAt(877, 1, 1e-9)}}});
  EXPECT_EQ(FormatProfile(profile),
            "stage,instruction,frequency,time,energy\n"
            "0,forward,1410,0.050161667,0.30000000000000004\n"
            "0,forward,1395,2,23\n"
            "0,forward,877,0.000000001,1e-09\n");
}

TEST(FormatProfile, WritesChunksAndKnobsIfTheProfileHasThem) {
  Option option = OptionAt(1410, 1'500'000'000, 3);
  option.other_knobs = {108, -0.5};
  const Profile profile(
      "p", {"sm_count", "a, \"b\""},
      {{0, 0, InstructionKind::kForward, {option}}, {0, 1, InstructionKind::kForward, {option}}});
  const std::string text = FormatProfile(profile);
  EXPECT_EQ(text,
            "pp_rank,chunk,instruction,frequency,sm_count,\"a, \"\"b\"\"\",time,energy\n"
            "0,0,forward,1410,108,-0.5,1.5,3\n"
            "0,1,forward,1410,108,-0.5,1.5,3\n");
  const Result<Profile> read = ParseProfile(text, "p");
  ASSERT_TRUE(read) << read.error().Message();
  EXPECT_EQ(read->other_knob_names(), profile.other_knob_names());
  EXPECT_EQ(FormatProfile(*read), text);
}

TEST(FormatProfile, TheLongestTimeIsExactToTheNanosecond) {
  const auto longest = static_cast<Nanoseconds>(kLongestSeconds * kNanosecondsPerSecond);
  for (const Nanoseconds time : {longest, longest - 1, longest / 3, Nanoseconds{1}}) {
    const Profile profile("p", {}, {{0, 0, InstructionKind::kForward, {OptionAt(1, time, 1)}}});
    const Result<Profile> read = ParseProfile(FormatProfile(profile), "p");
    ASSERT_TRUE(read) << read.error().Message();
    EXPECT_EQ(read->entries()[0].options[0].time, time);
  }
}

}  // namespace
}  // namespace perseus::profile
