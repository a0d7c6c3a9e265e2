#include "perseus/runtime/agent/access_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "tests/support/device_cgroup.h"
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

  // A file in place of a device: the file's permissions are checked alike.
  fs::path File(const std::string& name, mode_t mode, gid_t group) {
    const fs::path path = directory_.path() / name;
    std::ofstream(path) << "";
    EXPECT_EQ(::chown(path.c_str(), 0, group), 0);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }

  TemporaryDirectory directory_;
};

TEST_F(AccessCheckTest, AppliesTheFilesPermissionsToTheUserAndTheGroups) {
  const fs::path open_to_all = File("all", 0666, 0);
  const fs::path of_root = File("root", 0600, 0);
  const fs::path of_video = File("video", 0660, kVideo);
  const fs::path readable = File("readable", 0644, 0);
  const std::vector<fs::path> files = {open_to_all, of_root, of_video, readable,
                                       directory_.path() / "missing"};

  const Identity stranger{kOtherUser, kOtherGroup, {}, {}};
  const auto refused = CheckAccess(stranger, files);
  ASSERT_TRUE(refused) << refused.error().message;
  EXPECT_THAT(*refused, ElementsAre(0, EACCES, EACCES, EACCES, ENOENT));

  const Identity member{kOtherUser, kOtherGroup, {kOtherGroup, kVideo}, {}};
  const auto allowed = CheckAccess(member, files);
  ASSERT_TRUE(allowed) << allowed.error().message;
  EXPECT_THAT(*allowed, ElementsAre(0, EACCES, 0, EACCES, ENOENT));
}

TEST_F(AccessCheckTest, TheAgentKeepsItsOwnUserGroupsAndCgroup) {
  ASSERT_TRUE(CheckAccess({kOtherUser, kOtherGroup, {kVideo}, {}}, {"/dev/null"}));
  EXPECT_EQ(::getuid(), 0U);
  EXPECT_EQ(::geteuid(), 0U);
  gid_t groups[64];
  const int count = ::getgroups(64, groups);
  for (int i = 0; i < count; ++i) EXPECT_NE(groups[i], kVideo);
}

class DeviceCgroupTest : public AccessCheckTest,
                         public ::testing::WithParamInterface<DeviceCgroup::Version> {};

// /dev/null stands for a GPU that a job was given, /dev/zero for another job's.
TEST_P(DeviceCgroupTest, AppliesTheDeviceRulesOfTheCgroup) {
  const auto cgroup = DeviceCgroup::DenyingZero(GetParam());
  if (!cgroup) GTEST_SKIP() << "this system has no such cgroups, or lets nobody make one";
  const std::vector<fs::path> devices = {"/dev/null", "/dev/zero"};
  const auto outside = CheckAccess({kOtherUser, kOtherGroup, {}, {}}, devices);
  ASSERT_TRUE(outside) << outside.error().message;
  EXPECT_THAT(*outside, ElementsAre(0, 0));
  const auto inside = CheckAccess({kOtherUser, kOtherGroup, {}, {cgroup->procs()}}, devices);
  ASSERT_TRUE(inside) << inside.error().message;
  EXPECT_THAT(*inside, ElementsAre(0, EPERM));
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
  const auto checked = CheckAccess({kOtherUser, kOtherGroup, {}, {cgroup->procs()}}, {"/dev/null"},
                                   {.answer = std::chrono::milliseconds(50)});
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message, HasSubstr("frozen"));
  EXPECT_TRUE(cgroup->IsEmpty()) << "the child is gone";
}

// Right after its start, the child wants a core, as on a node whose cores are all busy.
TEST_F(AccessCheckTest, AChildThatWaitsForACoreHasMoreTime) {
  const Identity stranger{kOtherUser, kOtherGroup, {}, {}};
  for (int i = 0; i < 20; ++i) {
    const auto checked =
        CheckAccess(stranger, {"/dev/null"},
                    {.answer = std::chrono::milliseconds(0), .longest = std::chrono::minutes(1)});
    ASSERT_TRUE(checked) << checked.error().message;
    EXPECT_THAT(*checked, ElementsAre(0));
  }
}

TEST_F(AccessCheckTest, ACgroupThatIsGoneIsAnError) {
  const auto checked = CheckAccess(
      {kOtherUser, kOtherGroup, {}, {directory_.path() / "gone/cgroup.procs"}}, {"/dev/null"});
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message, HasSubstr("cannot join"));
}

}  // namespace
}  // namespace perseus::agent
