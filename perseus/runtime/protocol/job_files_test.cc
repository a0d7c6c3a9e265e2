#include "perseus/runtime/protocol/job_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/temporary_directory.h"

namespace perseus::protocol {
namespace {

using ::testing::HasSubstr;

class JobFilesTest : public testing::Test {
 protected:
  std::filesystem::path Outside() const { return directory_ / "outside"; }
  std::filesystem::path Job() const { return directory_ / "job"; }
  void SetUp() override {
    std::filesystem::create_directories(Outside());
    std::filesystem::create_directories(Job());
    std::ofstream(Outside() / "victim") << "secret";
  }
  std::string Victim() const { return *ReadFile(Outside() / "victim"); }

  TemporaryDirectory directory_;
};

TEST_F(JobFilesTest, WritesAndReplacesAFile) {
  ASSERT_TRUE(WriteJobFile(Job() / "new", "plans/a.json", "1"));
  ASSERT_TRUE(WriteJobFile(Job() / "new", "plans/a.json", "22"));
  EXPECT_EQ(*ReadJobFile(Job() / "new/plans/a.json"), "22");
  const std::filesystem::directory_iterator files(Job() / "new/plans");
  EXPECT_EQ(std::distance(files, {}), 1) << "no temporary file remains";
  struct stat status {};
  ASSERT_EQ(::stat((Job() / "new/plans/a.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0644U);
}

TEST_F(JobFilesTest, ReplacesALinkAndNotItsTarget) {
  std::filesystem::create_symlink(Outside() / "victim", Job() / "assignment.json");
  ASSERT_TRUE(WriteJobFile(Job(), "assignment.json", "mine"));
  EXPECT_EQ(Victim(), "secret");
  EXPECT_EQ(*ReadJobFile(Job() / "assignment.json"), "mine");
}

TEST_F(JobFilesTest, FollowsNoLinkToAFolder) {
  std::filesystem::create_symlink(Outside(), Job() / "plans");
  const auto written = WriteJobFile(Job(), "plans/victim", "mine");
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("plans: is a symbolic link"));
  EXPECT_EQ(Victim(), "secret");
  EXPECT_FALSE(OpenJobFolder(Job(), "plans"));
}

TEST_F(JobFilesTest, TheJobDirectoryItselfMayBeALink) {
  std::filesystem::create_symlink(Job(), directory_ / "link");
  ASSERT_TRUE(WriteJobFile(directory_ / "link", "plans/a.json", "1"));
  EXPECT_EQ(*ReadJobFile(Job() / "plans/a.json"), "1");
  EXPECT_TRUE(OpenJobFolder(directory_ / "link", "plans"));
}

TEST_F(JobFilesTest, ReadsOnlyARegularFile) {
  std::filesystem::create_symlink(Outside() / "victim", Job() / "link");
  ASSERT_EQ(::mkfifo((Job() / "pipe").c_str(), 0600), 0);
  const auto link = ReadJobFile(Job() / "link");
  ASSERT_FALSE(link);
  EXPECT_THAT(link.error().message, HasSubstr("is a symbolic link"));
  EXPECT_FALSE(ReadJobFile(Job() / "pipe"));
  EXPECT_FALSE(ReadJobFile(Job()));
  EXPECT_FALSE(ReadJobFile(Job() / "none"));
  EXPECT_FALSE(ReadJobFile(Outside() / "victim", 5));
  EXPECT_EQ(*ReadJobFile(Outside() / "victim", 6), "secret");
}

}  // namespace
}  // namespace perseus::protocol
