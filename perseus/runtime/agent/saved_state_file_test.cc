#include "perseus/runtime/agent/saved_state_file.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <regex>

#include "perseus/base/file.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::agent {
namespace {

namespace fs = std::filesystem;
using protocol::Refusal;
using ::testing::HasSubstr;

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

  // If an agent dies before the restore is done, the next agent comes to the same result.
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
  // A second lease would find the setting of the first lease.
  state.Take(GpuOf("lease-2", {{device::Control::kSmClock, {{true, kOther}, false}},
                               {device::Control::kPowerLimit, {kKnown, false}}}));
  const SavedGpu& gpu = state.gpus.at("GPU-a");
  EXPECT_EQ(gpu.lease, "lease-2");
  EXPECT_EQ(gpu.controls.at(device::Control::kSmClock), (SavedControl{kKnown, true}));
  EXPECT_EQ(gpu.controls.at(device::Control::kPowerLimit), (SavedControl{kKnown, false}));
}

TEST(SavedState, AGpuIsRestoredOnlyWhenNoControlIsChanged) {
  SavedState state = With(kKnown, false, false);
  for (const auto control : {device::Control::kSmClock, device::Control::kMemoryClock}) {
    state.gpus.at("GPU-a").controls[control] = {kUnknown, true};
  }
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

// Returns a state with one of each thing that a state can contain.
SavedState Everything() {
  SavedState state;
  state.boot_id = "9b2d61c4-7f0e-4a1b-9c3d-2e5f6a7b8c9d";
  SavedGpu gpu;
  gpu.uuid = "GPU-1f";
  gpu.lease = "9b2d61c4-5265c00-12";
  gpu.owner = {{4242, ~std::uint64_t{0}}, ~uid_t{0}, "\"llama\" 7b \xC3\xA9"};
  gpu.controls = {
      {device::Control::kSmClock, {{false, std::nullopt}, true}},
      {device::Control::kMemoryClock, {{true, std::nullopt}, false}},
      {device::Control::kPowerLimit, {{true, device::Setting{300'000, 300'000}}, true}}};
  state.Take(gpu);
  gpu.uuid = "GPU-2a";
  gpu.controls.erase(device::Control::kMemoryClock);
  state.Take(gpu);
  EXPECT_TRUE(state.Add({{"GPU-1f", "GPU-2a"}, 1000, std::nullopt}));
  EXPECT_TRUE(state.Add({{"GPU-1f"}, std::nullopt, "/slurm/job_17"}));
  state.DeclareResting("GPU-1f", device::Control::kSmClock, device::Setting{210, 1410});
  state.DeclareResting("GPU-1f", device::Control::kPowerLimit, device::Setting{400'000, 400'000});
  return state;
}

std::string Replaced(std::string text, std::string_view what, std::string_view by) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

// Returns the text as an agent of version 1 of the format would have written it.
std::string AsVersion1(const std::string& text) {
  return std::regex_replace(text, std::regex(R"("version": 2,\s*"checksum": "\w{8}")"),
                            R"("version": 1)");
}

class SavedStateFileTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
  fs::path path_ = directory_ / "deep" / "state.json";
};

TEST_F(SavedStateFileTest, EverythingIsReadBack) {
  auto file = ValueOf(SavedStateFile::Open(path_, "boot-1"));
  ASSERT_TRUE(file.Save(Everything()));
  EXPECT_EQ(file.state(), Everything());
  EXPECT_EQ(ValueOf(SavedStateFile::Open(path_, "boot-2")).state(), Everything())
      << "with the boot it was saved in";
}

TEST_F(SavedStateFileTest, AFileOfVersion1IsReadAndReplaced) {
  fs::create_directories(path_.parent_path());
  ASSERT_TRUE(WriteFileAtomically(path_, AsVersion1(FormatSavedState(Everything()))));
  auto file = ValueOf(SavedStateFile::Open(path_, "boot-1"));
  EXPECT_EQ(file.state(), Everything());
  ASSERT_TRUE(file.Save(Everything()));
  EXPECT_EQ(*ReadFile(path_), FormatSavedState(Everything()));
}

TEST_F(SavedStateFileTest, WithoutAFileThereIsNothingToRestore) {
  const auto file = ValueOf(SavedStateFile::Open(path_, "boot-1"));
  SavedState empty;
  empty.boot_id = "boot-1";
  EXPECT_EQ(file.state(), empty);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(SavedStateFileTest, AFileThatCannotBeReadIsAnError) {
  fs::create_directories(path_);
  EXPECT_THAT(SavedStateFile::Open(path_, "boot-1"),
              FailsWith(HasSubstr("the agent changes no GPU")));
  fs::remove(path_);
  fs::create_symlink("nowhere", path_);
  EXPECT_FALSE(SavedStateFile::Open(path_, "boot-1"));
}

TEST_F(SavedStateFileTest, AFailedSaveLeavesTheState) {
  bool is_disk_full = false;
  std::string on_disk;
  auto file = ValueOf(SavedStateFile::Open(
      path_, "boot-1", [&](const fs::path&, std::string_view text) -> Result<void> {
        if (is_disk_full) return FailAs(ErrorKind::kSystem, "full");
        on_disk = text;
        return {};
      }));
  const SavedState first = Everything();
  ASSERT_TRUE(file.Save(first));
  SavedState second = first;
  second.Restored("GPU-1f", device::Control::kSmClock);
  is_disk_full = true;
  EXPECT_THAT(file.Save(second), FailsAs(ErrorKind::kSystem));
  EXPECT_EQ(file.state(), first);

  // The content of the disk is now unknown, so the same state is written again.
  is_disk_full = false;
  on_disk.clear();
  ASSERT_TRUE(file.Save(first));
  EXPECT_EQ(on_disk, FormatSavedState(first));
  on_disk.clear();
  ASSERT_TRUE(file.Save(first));
  EXPECT_EQ(on_disk, "") << "nothing new, nothing flushed";
}

TEST_F(SavedStateFileTest, NothingIsWrittenThatCouldNotBeReadBack) {
  std::vector<std::pair<const char*, SavedState>> unreadable(6, {"", Everything()});
  unreadable[0] = {"no boot", SavedState{}};
  unreadable[1].first = "not UTF-8";
  unreadable[1].second.gpus.at("GPU-1f").owner.job = "\xFF";
  unreadable[2].first = "too long a cgroup";
  EXPECT_TRUE(unreadable[2].second.Add({{"GPU-1f"}, std::nullopt, "/" + std::string(5000, 'x')}));
  unreadable[3].first = "a range upside down";
  unreadable[3].second.DeclareResting("GPU-1f", device::Control::kSmClock, device::Setting{2, 1});
  unreadable[4].first = "an empty name";
  unreadable[4].second.gpus.at("GPU-1f").lease = "";
  unreadable[5].first = "a GPU under another's name";
  unreadable[5].second.gpus.at("GPU-1f").uuid = "GPU-3b";
  auto file = ValueOf(SavedStateFile::Open(path_, "boot-1"));
  for (const auto& [name, state] : unreadable) {
    SCOPED_TRACE(name);
    EXPECT_THAT(file.Save(state), FailsWith(HasSubstr("not written")));
    EXPECT_FALSE(fs::exists(path_));
  }
}

TEST(ParseSavedState, ATruncatedFileIsNeverAState) {
  const std::string text = FormatSavedState(Everything());
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    EXPECT_THAT(ParseSavedState(std::string_view(text).substr(0, length), "state.json"),
                FailsWith(HasSubstr("the agent changes no GPU")))
        << length;
  }
}

TEST(ParseSavedState, AChangedByteIsAnErrorOrChangesNothing) {
  const std::string text = FormatSavedState(Everything());
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      const auto state = ParseSavedState(damaged, "state.json");
      EXPECT_TRUE(!state || *state == Everything()) << "byte " << at << ": " << damaged[at];
    }
  }
}

TEST(ParseSavedState, AnEditorMayReformatTheFile) {
  const std::string text = FormatSavedState(Everything());
  EXPECT_EQ(ValueOf(ParseSavedState(std::regex_replace(text, std::regex("\n *"), ""), "state")),
            Everything());
}

TEST(ParseSavedState, TheErrorHasTheChecksumOfWhatAPersonHasWritten) {
  const std::string edited =
      Replaced(FormatSavedState(Everything()), "\"/slurm/job_17\"", "\"/slurm/job_18\"");
  const auto refused = ParseSavedState(edited, "state.json");
  ASSERT_FALSE(refused);
  std::smatch checksums;
  const std::string message = refused.error().Message();
  ASSERT_TRUE(std::regex_search(message, checksums,
                                std::regex("checksum is (\"\\w+\"), .* is (\"\\w+\"):")))
      << message;
  EXPECT_EQ(ValueOf(ParseSavedState(Replaced(edited, checksums[1].str(), checksums[2].str()),
                                    "state.json"))
                .grants[1]
                .cgroup,
            "/slurm/job_18");
}

TEST(ParseSavedState, ErrorsNameTheDamage) {
  struct Row {
    const char* what;
    const char* by;
    const char* message;
  };
  const std::string text = FormatSavedState(Everything());
  for (const Row& row : {
           Row{"perseus-agent-state", "perseus-plan", "is not a saved state of the agent"},
           Row{"\"version\": 2", "\"version\": 3", "has version 3, from a newer perseus"},
           Row{"\"version\": 2", "\"version\": 0", "version is 0"},
           Row{"\"version\": 2", "\"version\": -1", "version is not a whole number"},
           Row{"\"version\": 2", "\"version\": 2, \"version\": 2", "appears twice"},
           Row{"\"version\": 2", "\"version\": 1", "the file was damaged or changed by hand"},
           Row{"\"checksum\"", "\"boot\": \"\", \"checksum\"", "has no key \"boot\""},
           Row{"\"9b2d61c4-7", "\"9b2d61c4-6", "the file was damaged or changed by hand"},
           Row{"\"grants\"", "\"grnts\"", "did you mean \"grants\"?"},
           Row{"\"unknown\"", "\"unkown\"", "gpus[0].controls.sm_clock.before is neither"},
           Row{"\"unknown\"", "null", "gpus[0].controls.sm_clock.before is neither"},
           Row{"\"changed\": true", "\"changed\": 1", "changed is neither true nor false"},
           Row{"\"memory_clock\"", "\"sm_clock\"", "appears twice"},
           Row{"\"lower\": 300000", "\"lower\": 300001", "upper is not a number from 300001"},
           Row{"\"lower\": 300000", "\"lower\": 0.5", "lower is not a whole number"},
           Row{"\"lower\": 300000,", "", "lower is missing"},
           Row{"\"pid\": 4242", "\"pid\": 2147483648", "owner.pid is not a number"},
           Row{"\"uid\": 4294967295", "\"uid\": 4294967296", "owner.uid is not a whole number"},
           Row{"\"uid\": 1000", "\"uid\": 1000, \"cgroup\": \"/\"", "for a user or for a cgroup"},
           Row{"\"/slurm", "\"slurm", "grants[1].cgroup does not begin with /"},
           Row{"\"uuid\": \"GPU-2a\"", "\"uuid\": \"GPU-1f\"",
               "gpus[1].uuid: GPU-1f appears twice"},
           Row{"\"lease\": \"", "\"lease\": \"\\u0007", "gpus[0].lease is not 1 to 200 printable"},
       }) {
    SCOPED_TRACE(row.by);
    const auto state = ParseSavedState(Replaced(text, row.what, row.by), "state.json");
    ASSERT_THAT(state, FailsWith(::testing::AllOf(HasSubstr(row.message),
                                                  HasSubstr("the agent changes no GPU"))));
    EXPECT_EQ(state.error().Message().find('\n'), std::string::npos);
  }
}

// A process replaces the file as fast as it can, and is killed at a random moment. After that, the
// file must be complete, and no older than the last state that the process reported as saved.
TEST_F(SavedStateFileTest, SigkillAtAnyMomentLeavesAStateThatWasSaved) {
  std::mt19937_64 random(1);
  for (int run = 0; run < 30; ++run) {
    int saved[2];
    ASSERT_EQ(::pipe(saved), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto file = SavedStateFile::Open(path_, "boot-1");
      for (int round = 1; file; ++round) {
        SavedState state = Everything();
        state.DeclareResting("GPU-1f", device::Control::kSmClock, device::Setting{0, round});
        // The text of the state is sometimes short and sometimes long.
        state.boot_id = std::string(static_cast<std::size_t>(1 + round % 200), 'b');
        if (!file->Save(std::move(state))) break;
        if (::write(saved[1], &round, sizeof round) != sizeof round) break;
      }
      ::_exit(1);
    }
    ::close(saved[1]);
    int last = 0;
    for (std::uint64_t rounds = 1 + random() % 20; rounds > 0; --rounds) {
      ASSERT_EQ(::read(saved[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
    }
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    ::close(saved[0]);

    EXPECT_GE(ValueOf(SavedStateFile::Open(path_, "boot-1"))
                  .state()
                  .resting.at("GPU-1f")
                  .at(device::Control::kSmClock)
                  .upper,
              last);
  }
}

}  // namespace
}  // namespace perseus::agent
