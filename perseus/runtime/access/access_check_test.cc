#include "perseus/runtime/access/access_check.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "perseus/base/file_descriptor.h"
#include "perseus/runtime/access/child_descriptors.h"
#include "tests/support/device_cgroup.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uid_t kOtherUser = 54'321;
constexpr gid_t kOtherGroup = 54'322;
constexpr gid_t kVideo = 54'323;

class AccessCheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may become another user";
    fs::permissions(directory_.path(), fs::perms(0755));
  }

  // Creates a file that replaces a device. The kernel checks the permissions of both in the same
  // way.
  fs::path File(const std::string& name, mode_t mode, gid_t group) {
    const fs::path path = directory_.path() / name;
    std::ofstream(path) << "";
    EXPECT_EQ(::chown(path.c_str(), 0, group), 0);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }

  TemporaryDirectory directory_;
  AccessChecker checker_;
};

TEST_F(AccessCheckTest, AppliesTheFilesPermissionsToTheUserAndTheGroups) {
  const fs::path open_to_all = File("all", 0666, 0);
  const fs::path of_root = File("root", 0600, 0);
  const fs::path of_video = File("video", 0660, kVideo);
  const fs::path readable = File("readable", 0644, 0);
  const std::vector<fs::path> files = {open_to_all, of_root, of_video, readable,
                                       directory_.path() / "missing"};

  const Identity stranger{kOtherUser, kOtherGroup, {}, {}};
  EXPECT_THAT(ValueOf(checker_.Check(stranger, files)),
              ElementsAre(0, EACCES, EACCES, EACCES, ENOENT));

  const Identity member{kOtherUser, kOtherGroup, {kOtherGroup, kVideo}, {}};
  EXPECT_THAT(ValueOf(checker_.Check(member, files)), ElementsAre(0, EACCES, 0, EACCES, ENOENT));
}

TEST_F(AccessCheckTest, TheAgentKeepsItsOwnUserGroupsAndCgroup) {
  ASSERT_TRUE(checker_.Check({kOtherUser, kOtherGroup, {kVideo}, {}}, {"/dev/null"}));
  EXPECT_EQ(::getuid(), 0U);
  EXPECT_EQ(::geteuid(), 0U);
  gid_t groups[64];
  const int count = ::getgroups(64, groups);
  for (int i = 0; i < count; ++i) EXPECT_NE(groups[i], kVideo);
}

class DeviceCgroupTest : public AccessCheckTest,
                         public ::testing::WithParamInterface<DeviceCgroup::Version> {};

// /dev/null represents a GPU of the job, and /dev/zero a GPU of another job.
TEST_P(DeviceCgroupTest, AppliesTheDeviceRulesOfTheCgroup) {
  const auto cgroup = DeviceCgroup::DenyingZero(GetParam());
  if (!cgroup) GTEST_SKIP() << "this system has no such cgroups, or lets nobody make one";
  const std::vector<fs::path> devices = {"/dev/null", "/dev/zero"};
  EXPECT_THAT(ValueOf(checker_.Check({kOtherUser, kOtherGroup, {}, {}}, devices)),
              ElementsAre(0, 0));
  EXPECT_THAT(ValueOf(checker_.Check({kOtherUser, kOtherGroup, {}, {cgroup->procs()}}, devices)),
              ElementsAre(0, EPERM));
}

INSTANTIATE_TEST_SUITE_P(Versions, DeviceCgroupTest,
                         ::testing::Values(DeviceCgroup::kVersion1, DeviceCgroup::kVersion2),
                         [](const auto& version) {
                           return version.param == DeviceCgroup::kVersion1 ? "V1" : "V2";
                         });

TEST_F(AccessCheckTest, AFrozenCgroupMakesItFailInTime) {
  const auto cgroup = DeviceCgroup::DenyingZero(DeviceCgroup::kVersion2);
  if (!cgroup) GTEST_SKIP() << "this system has no cgroup v2, or lets nobody make one";
  ASSERT_TRUE(cgroup->Freeze());
  EXPECT_THAT(checker_.Check({kOtherUser, kOtherGroup, {}, {cgroup->procs()}}, {"/dev/null"},
                             std::chrono::milliseconds(50)),
              FailsWith(HasSubstr("frozen")));
  EXPECT_TRUE(cgroup->IsEmpty()) << "the child is gone";
}

// SIGKILL does not end a process in a frozen cgroup before the cgroup is thawed.
TEST_F(AccessCheckTest, AChildThatCannotBeKilledIsLeftAndHoldsUpItsUserOnly) {
  const auto cgroup = FreezerCgroup::Make();
  if (!cgroup) GTEST_SKIP() << "this system has no freezer of cgroup v1, or lets nobody use it";
  ASSERT_TRUE(cgroup->Freeze());
  const Identity frozen{kOtherUser, kOtherGroup, {}, {cgroup->procs()}, kOtherUser};
  EXPECT_THAT(checker_.Check(frozen, {"/dev/null"}, std::chrono::milliseconds(50)),
              FailsWith(HasSubstr("did not answer")));
  ASSERT_FALSE(cgroup->IsEmpty()) << "the child has ended, so this test shows nothing";

  const Identity elsewhere{kOtherUser, kOtherGroup, {}, {}, kOtherUser};
  EXPECT_THAT(checker_.Check(elsewhere, {"/dev/null"}),
              FailsWith(HasSubstr("earlier check of user 54321")));
  EXPECT_TRUE(checker_.Check({kOtherUser + 1, kOtherGroup, {}, {}}, {"/dev/null"}));

  ASSERT_TRUE(cgroup->Thaw());
  while (!cgroup->IsEmpty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(checker_.Check(elsewhere, {"/dev/null"}));
}

TEST_F(AccessCheckTest, AnAgentThatStopsDoesNotWaitForACheck) {
  const auto cgroup = DeviceCgroup::DenyingZero(DeviceCgroup::kVersion2);
  if (!cgroup) GTEST_SKIP() << "this system has no cgroup v2, or lets nobody make one";
  ASSERT_TRUE(cgroup->Freeze());
  std::thread stops([&] {
    while (cgroup->IsEmpty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    checker_.Stop();
  });
  const auto checked = checker_.Check({kOtherUser, kOtherGroup, {}, {cgroup->procs()}},
                                      {"/dev/null"}, std::chrono::hours(1));
  stops.join();
  EXPECT_THAT(checked, FailsWith(HasSubstr("is stopping")));
}

// The test delays the child, as a heavily loaded node does.
TEST_F(AccessCheckTest, AChildThatIsHeldUpForAWhileStillAnswers) {
  const auto cgroup = DeviceCgroup::DenyingZero(DeviceCgroup::kVersion2);
  if (!cgroup) GTEST_SKIP() << "this system has no cgroup v2, or lets nobody make one";
  ASSERT_TRUE(cgroup->Freeze());
  std::thread thaws([&] {
    while (cgroup->IsEmpty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(cgroup->Thaw());
  });
  const auto checked = checker_.Check({kOtherUser, kOtherGroup, {}, {cgroup->procs()}},
                                      {"/dev/null", "/dev/zero"}, std::chrono::minutes(1));
  thaws.join();
  ASSERT_TRUE(checked) << checked.error().Message();
  EXPECT_THAT(*checked, ElementsAre(0, EPERM));
}

// The user may send signals to the child.
TEST_F(AccessCheckTest, AKilledChildFailsTheCheckAtOnce) {
  const auto cgroup = DeviceCgroup::DenyingZero(DeviceCgroup::kVersion2);
  if (!cgroup) GTEST_SKIP() << "this system has no cgroup v2, or lets nobody make one";
  ASSERT_TRUE(cgroup->Freeze());
  std::thread kills([&] {
    pid_t child = 0;
    while (!(std::ifstream(cgroup->procs()) >> child)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(::kill(child, SIGKILL), 0);
  });
  // Without the kill, the check would take longer than a test may take.
  const auto checked = checker_.Check({kOtherUser, kOtherGroup, {}, {cgroup->procs()}},
                                      {"/dev/null"}, std::chrono::hours(1));
  kills.join();
  EXPECT_THAT(checked, FailsWith(HasSubstr("was killed")));
}

// If the child had a copy, it would delay the end of a client's connection. On kernels before 6.16,
// the child might even be the last process to close a socket whose close waits for a hostile
// client.
TEST_F(AccessCheckTest, TheChildHoldsNoClientsSocket) {
  const LowDescriptors low;
  std::atomic<bool> is_over = false;
  std::thread checks([&] {
    while (!is_over) {
      EXPECT_TRUE(checker_.Check({kOtherUser, kOtherGroup, {}, {}}, {"/dev/null"}));
    }
  });
  int held = 0;
  for (int i = 0; i < 20'000; ++i) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    const FileDescriptor reading(ends[0]);
    std::this_thread::yield();
    ::close(ends[1]);
    // read() returns the end of the file, unless another process holds the pipe.
    char byte = 0;
    if (::read(reading.get(), &byte, 1) != 0) ++held;
  }
  is_over = true;
  checks.join();
  EXPECT_EQ(held, 0);
}

TEST_F(AccessCheckTest, ACgroupThatIsGoneIsAnError) {
  EXPECT_THAT(
      checker_.Check({kOtherUser, kOtherGroup, {}, {directory_.path() / "gone/cgroup.procs"}},
                     {"/dev/null"}),
      FailsWith(HasSubstr("cannot join")));
}

}  // namespace
}  // namespace perseus::agent
