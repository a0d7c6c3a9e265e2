#include "perseus/runtime/agent/saved_state.h"

#include <gtest/gtest.h>

namespace perseus::agent {
namespace {

using protocol::Refusal;

constexpr device::Setting kAdministratorSetting{1200, 1200};
constexpr device::Setting kOther{900, 900};  // Another program locked this later.
constexpr device::Setting kResting{210, 1410};
const SettingBefore kUnknown{};
const SettingBefore kDefault{true, std::nullopt};
const SettingBefore kKnown{true, kAdministratorSetting};

const device::SettingReading kReadsDefault{true, std::nullopt, ""};
const device::SettingReading kReadsAdministratorSetting{true, kAdministratorSetting, ""};
const device::SettingReading kReadsOther{true, kOther, ""};
const device::SettingReading kCannotTell{false, std::nullopt, ""};
const device::SettingReading kSeemsLocked{false, std::nullopt,
                                          "the SM clock stands at 900 of 1980 MHz"};

SavedGpu GpuOf(std::string lease, std::map<device::Control, SavedControl> controls) {
  SavedGpu gpu;
  gpu.uuid = "GPU-a";
  gpu.lease = std::move(lease);
  gpu.controls = std::move(controls);
  return gpu;
}

SavedState With(const SettingBefore& before, bool is_changed, bool has_resting) {
  SavedState state;
  state.boot_id = "boot-1";
  state.Take(GpuOf("lease-1", {{device::Control::kSmClock, {before, is_changed}}}));
  if (has_resting) state.DeclareResting("GPU-a", device::Control::kSmClock, kResting);
  return state;
}

constexpr std::optional<device::Setting> kDriversDefault;
struct StartCase {
  const char* name;
  SettingBefore before;
  bool has_resting;
  bool is_same_boot;
  std::optional<device::SettingReading> reading;  // Empty if the GPU or the control cannot be read.
  // The setting to restore. Empty if the agent leaves the control alone.
  std::optional<std::optional<device::Setting>> restored;
};

class RestoresAfterStartTest : public ::testing::TestWithParam<StartCase> {};

TEST_P(RestoresAfterStartTest, Case) {
  const StartCase& given = GetParam();
  Readings readings;
  if (given.reading) readings["GPU-a"][device::Control::kSmClock] = *given.reading;
  const char* boot = given.is_same_boot ? "boot-1" : "boot-2";

  std::vector<Restore> expected;
  if (given.restored) expected.push_back({"GPU-a", device::Control::kSmClock, *given.restored});
  const SavedState state = With(given.before, true, given.has_resting);
  EXPECT_EQ(RestoresAfterStart(state, boot, readings), expected);
  EXPECT_TRUE(
      RestoresAfterStart(With(given.before, false, given.has_resting), boot, readings).empty())
      << "what we did not change is nobody's business";

  // An agent that dies before the restore is done comes to the same result the next time.
  SavedState next = state;
  next.BeginBoot(boot, expected);
  EXPECT_EQ(RestoresAfterStart(next, boot, {}), expected);
  EXPECT_EQ(next.gpus.size(), expected.size());
}

INSTANTIATE_TEST_SUITE_P(
    SameBoot, RestoresAfterStartTest,
    ::testing::Values(
        StartCase{"known_still_ours", kKnown, false, true, kReadsOther, kAdministratorSetting},
        StartCase{"known_driver_was_reloaded", kKnown, false, true, kReadsDefault,
                  kAdministratorSetting},
        StartCase{"known_already_back", kKnown, false, true, kReadsAdministratorSetting,
                  kAdministratorSetting},
        StartCase{"known_is_not_overruled_by_resting", kKnown, true, true, kReadsOther,
                  kAdministratorSetting},
        StartCase{"default_still_ours", kDefault, false, true, kReadsOther, kDriversDefault},
        StartCase{"default_is_not_overruled_by_resting", kDefault, true, true, kCannotTell,
                  kDriversDefault},
        StartCase{"default_already_back", kDefault, false, true, kReadsDefault, kDriversDefault},
        StartCase{"unknown_has_only_the_default", kUnknown, false, true, kCannotTell,
                  kDriversDefault},
        StartCase{"unknown_goes_to_resting", kUnknown, true, true, kCannotTell, kResting},
        StartCase{"a_hint_is_of_our_own_lock", kUnknown, true, true, kSeemsLocked, kResting},
        StartCase{"gpu_is_away", kKnown, false, true, std::nullopt, kAdministratorSetting}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    AnotherBoot, RestoresAfterStartTest,
    ::testing::Values(
        StartCase{"known_and_reset", kKnown, false, false, kReadsDefault, kAdministratorSetting},
        StartCase{"known_and_driver_cannot_tell", kKnown, false, false, kCannotTell,
                  kAdministratorSetting},
        StartCase{"known_and_gpu_is_away", kKnown, false, false, std::nullopt,
                  kAdministratorSetting},
        StartCase{"known_and_somebody_locked_it", kKnown, false, false, kReadsOther, std::nullopt},
        StartCase{"known_and_somebody_put_it_back", kKnown, false, false,
                  kReadsAdministratorSetting, std::nullopt},
        StartCase{"known_and_seems_locked", kKnown, false, false, kSeemsLocked, std::nullopt},
        StartCase{"default_and_reset", kDefault, false, false, kReadsDefault, std::nullopt},
        StartCase{"default_and_somebody_locked_it", kDefault, false, false, kReadsOther,
                  std::nullopt},
        StartCase{"default_and_resting", kDefault, true, false, kReadsDefault, std::nullopt},
        StartCase{"unknown_and_reset", kUnknown, false, false, kCannotTell, std::nullopt},
        StartCase{"unknown_and_resting", kUnknown, true, false, kCannotTell, kResting},
        StartCase{"unknown_and_resting_and_reset", kUnknown, true, false, kReadsDefault, kResting},
        StartCase{"unknown_and_resting_and_seems_locked", kUnknown, true, false, kSeemsLocked,
                  std::nullopt}),
    [](const auto& test) { return test.param.name; });

TEST(NotRestoredAfterStart, HasWhatTheStateForgetsUnlessItIsBack) {
  struct Row {
    const char* name;
    SettingBefore before;
    std::optional<device::SettingReading> reading;
    bool is_listed;
  };
  for (const Row& row : {
           Row{"somebody locked it", kDefault, kReadsOther, true},
           Row{"somebody locked it, and it had a setting", kKnown, kReadsOther, true},
           Row{"seems locked", kUnknown, kSeemsLocked, true},
           Row{"the driver cannot tell", kUnknown, kCannotTell, true},
           Row{"cannot be read", kDefault, std::nullopt, true},
           Row{"the boot has reset it", kDefault, kReadsDefault, false},
           Row{"somebody put it back", kKnown, kReadsAdministratorSetting, false},
           Row{"is restored", kKnown, kReadsDefault, false},
       }) {
    SCOPED_TRACE(row.name);
    Readings readings;
    if (row.reading) readings["GPU-a"][device::Control::kSmClock] = *row.reading;
    for (const bool is_changed : {true, false}) {
      const SavedState state = With(row.before, is_changed, false);
      const auto left =
          NotRestoredAfterStart(state, RestoresAfterStart(state, "boot-2", readings), readings);
      ASSERT_EQ(left.size(), row.is_listed && is_changed ? 1U : 0U);
      if (left.empty()) continue;
      EXPECT_EQ(left[0].wanted, (Restore{"GPU-a", device::Control::kSmClock, row.before.setting}));
      EXPECT_EQ(left[0].reading.has_value(), row.reading.has_value());
    }
    const SavedState state = With(row.before, true, false);
    EXPECT_TRUE(
        NotRestoredAfterStart(state, RestoresAfterStart(state, "boot-1", readings), readings)
            .empty())
        << "in the same boot, all is restored";
  }
}

TEST(SavedState, EveryChangedControlOfAGpuIsRestoredWhenTheLeaseEnds) {
  SavedState state = With(kKnown, true, false);
  state.gpus["GPU-a"].controls[device::Control::kMemoryClock] = {kDefault, false};
  state.gpus["GPU-a"].controls[device::Control::kPowerLimit] = {kDefault, true};
  EXPECT_EQ(RestoresAfterLease(state, "GPU-a"),
            (std::vector<Restore>{{"GPU-a", device::Control::kSmClock, kAdministratorSetting},
                                  {"GPU-a", device::Control::kPowerLimit, std::nullopt}}));
  EXPECT_TRUE(RestoresAfterLease(state, "GPU-b").empty());
}

TEST(SavedState, BeforeHasThreeCases) {
  EXPECT_EQ(Before(kCannotTell), kUnknown);
  EXPECT_EQ(Before({false, kOther, "meaningless"}), kUnknown);
  EXPECT_EQ(Before(kReadsDefault), kDefault);
  EXPECT_EQ(Before(kReadsAdministratorSetting), kKnown);
}

TEST(SavedState, TheFirstReadingStaysWhileTheControlIsChanged) {
  SavedState state = With(kKnown, true, false);
  // A second lease would find the setting of the first.
  state.Take(GpuOf("lease-2", {{device::Control::kSmClock, {{true, kOther}, false}},
                               {device::Control::kPowerLimit, {kKnown, false}}}));
  const SavedGpu& gpu = state.gpus.at("GPU-a");
  EXPECT_EQ(gpu.lease, "lease-2");
  EXPECT_EQ(gpu.controls.at(device::Control::kSmClock), (SavedControl{kKnown, true}));
  EXPECT_EQ(gpu.controls.at(device::Control::kPowerLimit), (SavedControl{kKnown, false}));
}

TEST(SavedState, AGpuIsRestoredOnlyWhenNoControlIsChanged) {
  SavedState state = With(kKnown, false, false);
  EXPECT_FALSE(state.WillChange("GPU-b", device::Control::kSmClock, kUnknown)) << "never taken";
  // Another program restored the default after the GPU was leased.
  EXPECT_TRUE(state.WillChange("GPU-a", device::Control::kSmClock, kDefault));
  EXPECT_TRUE(state.WillChange("GPU-a", device::Control::kSmClock, {true, kOther}));
  EXPECT_TRUE(state.WillChange("GPU-a", device::Control::kMemoryClock, kUnknown));
  EXPECT_EQ(state.gpus.at("GPU-a").controls.at(device::Control::kSmClock),
            (SavedControl{kDefault, true}))
      << "the second time it found our own setting";
  state.Restored("GPU-a", device::Control::kSmClock);
  EXPECT_FALSE(state.GiveBack("GPU-a"));
  state.Restored("GPU-a", device::Control::kMemoryClock);
  state.Restored("GPU-a", device::Control::kPowerLimit);
  EXPECT_TRUE(state.GiveBack("GPU-a"));
  EXPECT_TRUE(state.gpus.empty());
  EXPECT_TRUE(state.GiveBack("GPU-a"));
}

TEST(SavedState, GrantsToOneUserMerge) {
  SavedState state;
  const protocol::Grant user{{"GPU-b", "GPU-a", "GPU-b"}, 1000, std::nullopt};
  const protocol::Grant more{{"GPU-c"}, 1000, std::nullopt};
  const protocol::Grant job{{"GPU-a"}, std::nullopt, "/slurm/job_17"};
  for (const protocol::Grant& grant : {user, more, job, job}) ASSERT_TRUE(state.Add(grant));
  EXPECT_EQ(state.grants,
            (std::vector<protocol::Grant>{{{"GPU-a", "GPU-b", "GPU-c"}, 1000, std::nullopt}, job}));

  EXPECT_EQ(state.Remove({{"GPU-a", "GPU-x"}, 1000, std::nullopt}).error().message,
            "\"GPU-x\" is not granted to user 1000 (nothing was revoked)");
  EXPECT_FALSE(state.Remove({{"GPU-a"}, std::nullopt, "/slurm/job_1"}));
  EXPECT_EQ(state.grants[0].gpus.size(), 3U);
  EXPECT_TRUE(state.Remove({{"GPU-c", "GPU-a"}, 1000, std::nullopt}));
  EXPECT_EQ(state.grants[0].gpus, std::vector<std::string>{"GPU-b"});
  EXPECT_TRUE(state.Remove({{"GPU-b"}, 1000, std::nullopt}));
  EXPECT_EQ(state.grants, std::vector<protocol::Grant>{job});
}

TEST(SavedState, AGrantNeedsExactlyOneOfUserAndCgroup) {
  SavedState state;
  EXPECT_EQ(state.Add({{"GPU-a"}, std::nullopt, std::nullopt}).error().code, Refusal::kMalformed);
  EXPECT_EQ(state.Add({{"GPU-a"}, 0, "/"}).error().code, Refusal::kMalformed);
  EXPECT_EQ(state.Add({{}, 0, std::nullopt}).error().code, Refusal::kMalformed);
  EXPECT_FALSE(state.Remove({{"GPU-a"}, std::nullopt, std::nullopt}));
  EXPECT_TRUE(state.grants.empty());
}

TEST(SavedState, RestingSettingsCanBeDeclaredAndRemoved) {
  SavedState state;
  state.DeclareResting("GPU-a", device::Control::kSmClock, std::nullopt);
  EXPECT_TRUE(state.resting.empty());
  state.DeclareResting("GPU-a", device::Control::kSmClock, kResting);
  state.DeclareResting("GPU-a", device::Control::kPowerLimit, kAdministratorSetting);
  state.DeclareResting("GPU-a", device::Control::kSmClock, std::nullopt);
  EXPECT_EQ(state.resting.at("GPU-a").size(), 1U);
  state.DeclareResting("GPU-a", device::Control::kPowerLimit, std::nullopt);
  EXPECT_TRUE(state.resting.empty());
}

}  // namespace
}  // namespace perseus::agent
