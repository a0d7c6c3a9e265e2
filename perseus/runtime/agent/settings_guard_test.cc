#include "perseus/runtime/agent/settings_guard.h"

#include <gmock/gmock.h>

#include <optional>

#include "perseus/base/file.h"
#include "perseus/runtime/agent/saved_state_file.h"
#include "tests/support/fake_device.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::agent {
namespace {

using device::Control;
using device::Setting;
using ::testing::HasSubstr;

class SettingsGuardTest : public ::testing::Test {
 protected:
  SettingsGuardTest() : first_("GPU-1"), second_("GPU-2") {
    devices_.push_back(first_.Open());
    devices_.push_back(second_.Open());
  }
  Result<SettingsGuard> Take() {
    return SettingsGuard::Take({devices_[0].get(), devices_[1].get()}, where_);
  }
  std::size_t SavedGpus() const {
    return SavedStateFile::Open(where_.state, "boot")->state().gpus.size();
  }

  TemporaryDirectory directory_;
  FakeGpu first_, second_;
  std::vector<std::unique_ptr<device::Device>> devices_;
  SettingsGuard::Where where_{directory_.path() / "agent.json", "boot", "perseus qualify", 2};
};

TEST_F(SettingsGuardTest, RestoresEveryGpuWhateverItWasSetTo) {
  first_.Set(Control::kSmClock, Setting{600, 900});
  {
    const auto guard = Take();
    ASSERT_TRUE(guard) << guard.error().Message();
    EXPECT_EQ(SavedGpus(), 2U);  // It is on disk before the first change.
    for (auto& device : devices_) ASSERT_TRUE(device->Apply(Control::kSmClock, Setting{500, 500}));
  }
  EXPECT_EQ(first_.setting(Control::kSmClock), (Setting{600, 900}));
  EXPECT_EQ(second_.setting(Control::kSmClock), std::nullopt);
  EXPECT_EQ(SavedGpus(), 0U);
}

TEST_F(SettingsGuardTest, AFailedRestoreDoesNotPreventTheOthers) {
  auto guard = ValueOf(Take());
  for (auto& device : devices_) ASSERT_TRUE(device->Apply(Control::kSmClock, Setting{500, 500}));
  first_.Break(device::DeviceErrorKind::kGone, "fell off the bus");
  EXPECT_THAT(guard.Restore(), FailsWith(HasSubstr("GPU-1 was not restored: fell off the bus")));
  EXPECT_EQ(second_.setting(Control::kSmClock), std::nullopt);
  EXPECT_EQ(SavedGpus(), 1U);  // The next agent restores this GPU.
  first_.Repair();
}

TEST_F(SettingsGuardTest, WithoutAChangeNothingIsWritten) {
  {
    auto guard = ValueOf(Take());
    EXPECT_TRUE(guard.Forget());
    EXPECT_EQ(SavedGpus(), 0U);
  }
  EXPECT_TRUE(first_.history().empty());
  EXPECT_TRUE(second_.history().empty());
}

TEST_F(SettingsGuardTest, OnlyOneHolderAtATime) {
  const auto guard = Take();
  ASSERT_TRUE(guard);
  EXPECT_THAT(Take(), FailsAs(ErrorKind::kSystem));
}

TEST_F(SettingsGuardTest, RefusesGpusThatStillHaveToBeRestored) {
  SavedState state;
  state.boot_id = "boot";
  SavedGpu gpu;
  gpu.uuid = "GPU-2";
  gpu.lease = "lease";
  gpu.owner = {{1, 1}, 0, "job"};
  gpu.controls[Control::kSmClock] = {{true, Setting{600, 900}}, true};
  state.Take(std::move(gpu));
  ASSERT_TRUE(WriteFileAtomically(where_.state, FormatSavedState(state)));
  EXPECT_THAT(Take(), FailsWith(HasSubstr("perseus gpu restore")));
  EXPECT_TRUE(first_.history().empty());
}

}  // namespace
}  // namespace perseus::agent
