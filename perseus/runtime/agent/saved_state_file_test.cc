#include "perseus/runtime/agent/saved_state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <regex>

#include "perseus/base/file.h"
#include "tests/support/temporary_directory.h"

namespace perseus::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A state with one of everything that it can hold.
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

// As an agent of version 1 of the format would have written it.
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
  auto file = SavedStateFile::Open(path_, "boot-1");
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->Save(Everything()));
  EXPECT_EQ(file->state(), Everything());
  const auto again = SavedStateFile::Open(path_, "boot-2");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->state(), Everything()) << "with the boot it was saved in";
}

TEST_F(SavedStateFileTest, AFileOfVersion1IsReadAndReplaced) {
  fs::create_directories(path_.parent_path());
  ASSERT_TRUE(WriteFileAtomically(path_, AsVersion1(FormatSavedState(Everything()))));
  auto file = SavedStateFile::Open(path_, "boot-1");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->state(), Everything());
  ASSERT_TRUE(file->Save(Everything()));
  EXPECT_EQ(*ReadFile(path_), FormatSavedState(Everything()));
}

TEST_F(SavedStateFileTest, WithoutAFileThereIsNothingToRestore) {
  const auto file = SavedStateFile::Open(path_, "boot-1");
  ASSERT_TRUE(file);
  SavedState empty;
  empty.boot_id = "boot-1";
  EXPECT_EQ(file->state(), empty);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(SavedStateFileTest, AFileThatCannotBeReadIsAnError) {
  fs::create_directories(path_);
  const auto directory = SavedStateFile::Open(path_, "boot-1");
  ASSERT_FALSE(directory);
  EXPECT_THAT(directory.error().message, HasSubstr("the agent changes no GPU"));
  fs::remove(path_);
  fs::create_symlink("nowhere", path_);
  EXPECT_FALSE(SavedStateFile::Open(path_, "boot-1"));
}

TEST_F(SavedStateFileTest, AFailedSaveLeavesTheState) {
  bool is_disk_full = false;
  std::string on_disk;
  auto file = SavedStateFile::Open(path_, "boot-1",
                                   [&](const fs::path&, std::string_view text) -> Result<void> {
                                     if (is_disk_full) return FailAs(ErrorKind::kSystem, "full");
                                     on_disk = text;
                                     return {};
                                   });
  ASSERT_TRUE(file);
  const SavedState first = Everything();
  ASSERT_TRUE(file->Save(first));
  SavedState second = first;
  second.Restored("GPU-1f", device::Control::kSmClock);
  is_disk_full = true;
  const Result<void> failed = file->Save(second);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::kSystem);
  EXPECT_EQ(file->state(), first);

  // The content of the disk is now unknown, so the same state is written again.
  is_disk_full = false;
  on_disk.clear();
  ASSERT_TRUE(file->Save(first));
  EXPECT_EQ(on_disk, FormatSavedState(first));
  on_disk.clear();
  ASSERT_TRUE(file->Save(first));
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
  auto file = SavedStateFile::Open(path_, "boot-1");
  ASSERT_TRUE(file);
  for (const auto& [name, state] : unreadable) {
    SCOPED_TRACE(name);
    const Result<void> saved = file->Save(state);
    ASSERT_FALSE(saved);
    EXPECT_THAT(saved.error().message, HasSubstr("not written"));
    EXPECT_FALSE(fs::exists(path_));
  }
}

TEST(ParseSavedState, ATruncatedFileIsNeverAState) {
  const std::string text = FormatSavedState(Everything());
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    const auto state = ParseSavedState(std::string_view(text).substr(0, length), "state.json");
    ASSERT_FALSE(state) << length;
    EXPECT_THAT(state.error().message, HasSubstr("the agent changes no GPU"));
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
  const auto state = ParseSavedState(std::regex_replace(text, std::regex("\n *"), ""), "state");
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(*state, Everything());
}

TEST(ParseSavedState, TheErrorHasTheChecksumOfWhatAPersonHasWritten) {
  const std::string edited =
      Replaced(FormatSavedState(Everything()), "\"/slurm/job_17\"", "\"/slurm/job_18\"");
  const auto refused = ParseSavedState(edited, "state.json");
  ASSERT_FALSE(refused);
  std::smatch checksums;
  ASSERT_TRUE(std::regex_search(refused.error().message, checksums,
                                std::regex("checksum is (\"\\w+\"), .* is (\"\\w+\"):")))
      << refused.error().message;
  const auto state =
      ParseSavedState(Replaced(edited, checksums[1].str(), checksums[2].str()), "state.json");
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(state->grants[1].cgroup, "/slurm/job_18");
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
    ASSERT_FALSE(state);
    EXPECT_THAT(state.error().message, HasSubstr(row.message));
    EXPECT_THAT(state.error().message, HasSubstr("the agent changes no GPU"));
    EXPECT_EQ(state.error().message.find('\n'), std::string::npos);
  }
}

// A process replaces the file as fast as it can and is killed at some moment. The file must then be
// complete, and no older than the last state that the process reported as saved.
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
        // The state is sometimes short and sometimes long.
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

    const auto file = SavedStateFile::Open(path_, "boot-1");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_GE(file->state().resting.at("GPU-1f").at(device::Control::kSmClock).upper, last);
  }
}

}  // namespace
}  // namespace perseus::agent
