#include "perseus/runtime/protocol/job_directory/job_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/results.h"
#include "tests/support/sparse_file.h"
#include "tests/support/temporary_directory.h"

namespace perseus::protocol {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

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
  EXPECT_EQ(*ReadJobFile(Job() / "new", "plans/a.json"), "22");
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
  EXPECT_EQ(*ReadJobFile(Job(), "assignment.json"), "mine");
}

TEST_F(JobFilesTest, FollowsNoLinkToAFolder) {
  std::filesystem::create_symlink(Outside(), Job() / "plans");
  EXPECT_THAT(WriteJobFile(Job(), "plans/victim", "mine"),
              FailsWith(HasSubstr("plans: is a symbolic link")));
  EXPECT_EQ(Victim(), "secret");
  EXPECT_FALSE(OpenJobFolder(Job(), "plans"));
}

TEST_F(JobFilesTest, TheJobDirectoryItselfMayBeALink) {
  std::filesystem::create_symlink(Job(), directory_ / "link");
  ASSERT_TRUE(WriteJobFile(directory_ / "link", "plans/a.json", "1"));
  EXPECT_EQ(*ReadJobFile(Job(), "plans/a.json"), "1");
  EXPECT_TRUE(OpenJobFolder(directory_ / "link", "plans"));
}

TEST_F(JobFilesTest, ReadsOnlyARegularFile) {
  std::filesystem::create_symlink(Outside() / "victim", Job() / "link");
  ASSERT_EQ(::mkfifo((Job() / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(ReadJobFile(Job(), "link"), FailsWith(HasSubstr("is a symbolic link")));
  EXPECT_FALSE(ReadJobFile(Job(), "pipe"));
  EXPECT_FALSE(ReadJobFile(directory_.path(), "job"));
  EXPECT_FALSE(ReadJobFile(Job(), "none"));
  EXPECT_FALSE(ReadJobFile(Outside(), "victim", 5));
  EXPECT_EQ(*ReadJobFile(Outside(), "victim", 6), "secret");
}

TEST_F(JobFilesTest, AFileOfAnySizeTakesLittleMemory) {
  std::ofstream(Job() / "sparse") << "x";
  LengthenWithHole(Job() / "sparse");
  EXPECT_THAT(ReadJobFile(Job(), "sparse", 1000),
              FailsWith(HasSubstr("is larger than 1000 bytes")));
}

TEST_F(JobFilesTest, ReadsNoHardLink) {
  std::filesystem::create_hard_link(Outside() / "victim", Job() / "hard");
  EXPECT_THAT(ReadJobFile(Job(), "hard"),
              FailsAs(ErrorKind::kFile, HasSubstr("is a hard link of another file")));
}

// A user moves or links a file of another user into the job directory.
TEST_F(JobFilesTest, ReadsOnlyFilesThatTheOwnerOfTheDirectoryMayHaveWritten) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const auto give = [this](const char* name, uid_t user) {
    EXPECT_EQ(::chown((Job() / name).c_str(), user, user), 0) << name;
  };
  constexpr uid_t kAnn = 65533;
  constexpr uid_t kBob = 65532;
  ASSERT_TRUE(WriteJobFile(Job(), "ranks/a", "1"));
  give("", kAnn);
  give("ranks", kAnn);
  give("ranks/a", kAnn);
  EXPECT_EQ(*ReadJobFile(Job(), "ranks/a"), "1");
  give("ranks/a", kBob);
  EXPECT_THAT(ReadJobFile(Job(), "ranks/a"),
              FailsAs(ErrorKind::kFile, HasSubstr("a: belongs to user 65532, but its directory")));
  give("ranks", kBob);
  const auto refuses = FailsAs(ErrorKind::kFile, HasSubstr("ranks: belongs to user 65532"));
  EXPECT_THAT(ReadJobFile(Job(), "ranks/a"), refuses);
  EXPECT_THAT(ListJobFolder(Job(), "ranks"), refuses);
  // Root made both directories.
  give("", 0);
  EXPECT_EQ(*ReadJobFile(Job(), "ranks/a"), "1");
  // Every user may have made this directory.
  ASSERT_EQ(::chmod(Job().c_str(), 0707), 0);
  EXPECT_THAT(ReadJobFile(Job(), "ranks/a"), refuses);
  // A group may write, as an earlier version of Perseus needed.
  ASSERT_EQ(::chmod(Job().c_str(), 0770), 0);
  give("", kAnn);
  EXPECT_EQ(*ReadJobFile(Job(), "ranks/a"), "1");
}

TEST_F(JobFilesTest, ListsAFolder) {
  EXPECT_THAT(*ListJobFolder(Job(), "ranks"), IsEmpty());
  EXPECT_THAT(*ListJobFolder(Job() / "none", "ranks"), IsEmpty());
  ASSERT_TRUE(WriteJobFile(Job(), "ranks/a", "1"));
  ASSERT_TRUE(WriteJobFile(Job(), "ranks/b", "1"));
  EXPECT_THAT(*ListJobFolder(Job(), "ranks"), UnorderedElementsAre("a", "b"));
  std::filesystem::create_directory_symlink("ranks", Job() / "link");
  EXPECT_THAT(ListJobFolder(Job(), "link"), FailsWith(HasSubstr("is a symbolic link")));
  std::ofstream(Job() / "file") << "1";
  EXPECT_THAT(ListJobFolder(Job(), "file"), FailsWith(HasSubstr("file: cannot read: Not a dir")));
}

TEST_F(JobFilesTest, ALockIsAFileOfItsOwn) {
  ASSERT_TRUE(OpenJobLock(Job() / "new", "a.lock"));
  ASSERT_TRUE(OpenJobLock(Job() / "new", "a.lock"));
  std::filesystem::permissions(Outside() / "victim", std::filesystem::perms::owner_read);
  std::filesystem::create_hard_link(Outside() / "victim", Job() / "hard.lock");
  std::filesystem::create_symlink(Outside() / "victim", Job() / "soft.lock");
  ASSERT_EQ(::mkfifo((Job() / "pipe.lock").c_str(), 0600), 0);
  for (const char* name : {"hard.lock", "soft.lock", "pipe.lock"}) {
    EXPECT_FALSE(OpenJobLock(Job(), name)) << name;
  }
  EXPECT_EQ(std::filesystem::status(Outside() / "victim").permissions(),
            std::filesystem::perms::owner_read);
}

// ---- OwnFolder ----

class OwnFolderTest : public JobFilesTest {
 protected:
  OwnFolder Ranks() const { return *OwnFolder::Open(Job(), "ranks"); }
  // Expects that the file is refused, and that the victim has not changed.
  void ExpectRefused(const std::string& name, const std::string& why) const {
    EXPECT_THAT(Ranks().OpenFile(name),
                FailsAs(ErrorKind::kSystem, HasSubstr("ranks/" + name + ": " + why)))
        << name;
    EXPECT_EQ(Victim(), "secret");
  }
  static void Append(const Result<FileDescriptor>& file, std::string_view text) {
    ASSERT_TRUE(file) << file.error().Message();
    ASSERT_EQ(::write(file->get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
};

TEST_F(OwnFolderTest, OpensAndKeepsCreatesAndReplaces) {
  const auto folder = ValueOf(OwnFolder::Open(directory_ / "a/b", "ranks"));
  Append(folder.OpenFile("log"), "1");
  Append(folder.OpenFile("log"), "2");
  EXPECT_EQ(*ReadFile(directory_ / "a/b/ranks/log"), "12");
  Append(folder.CreateFile("log"), "3");
  EXPECT_EQ(*ReadFile(directory_ / "a/b/ranks/log"), "3");
  ASSERT_TRUE(folder.Rename("log", "older"));
  EXPECT_EQ(*ReadFile(directory_ / "a/b/ranks/older"), "3");
  EXPECT_FALSE(folder.Rename("log", "older"));
  ASSERT_TRUE(folder.Remove("older"));
  ASSERT_TRUE(folder.Remove("older"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "a/b/ranks/older"));
  Append(OwnFolder::Open(directory_ / "a")->OpenFile("lock"), "4");
  EXPECT_EQ(*ReadFile(directory_ / "a/lock"), "4");
}

// Otherwise, another user could lock the file before its owner does.
TEST_F(OwnFolderTest, NobodyElseReadsANewFileBeforeItIsLocked) {
  const auto file = ValueOf(Ranks().OpenFile("log"));
  const auto mode = [&] { return std::filesystem::status(Job() / "ranks/log").permissions(); };
  EXPECT_EQ(mode(), std::filesystem::perms(0600));
  ASSERT_EQ(LockForWriting(file.get()), WriteLock::kTaken);
  PublishLocked(file.get());
  EXPECT_EQ(mode(), std::filesystem::perms(0644));
  const auto other = ValueOf(Ranks().OpenFile("log"));
  EXPECT_EQ(LockForWriting(other.get()), WriteLock::kOfAnother);
  EXPECT_EQ(IsLockedForWriting(other.get()), true);
  Unlock(file.get());
  EXPECT_EQ(IsLockedForWriting(other.get()), false);
}

TEST_F(OwnFolderTest, WritesThroughNoLink) {
  std::filesystem::create_directory(Job() / "ranks");
  const auto make = [&](const std::string& name) { return Job() / "ranks" / name; };
  std::filesystem::create_symlink(Outside() / "victim", make("soft"));
  std::filesystem::create_symlink(Outside() / "new", make("dangling"));
  std::filesystem::create_hard_link(Outside() / "victim", make("hard"));
  ExpectRefused("soft", "is a symbolic link (put a file in its place)");
  ExpectRefused("dangling", "is a symbolic link (put a file in its place)");
  ExpectRefused("hard", "is a hard link of another file");
  EXPECT_FALSE(std::filesystem::exists(Outside() / "new"));
  for (const char* name : {"soft", "dangling", "hard"}) Append(Ranks().CreateFile(name), "mine");
  EXPECT_EQ(Victim(), "secret");
  EXPECT_FALSE(std::filesystem::exists(Outside() / "new"));
}

TEST_F(OwnFolderTest, OpensOnlyARegularFileAndNeverWaits) {
  std::filesystem::create_directories(Job() / "ranks/folder");
  ASSERT_EQ(::mkfifo((Job() / "ranks/pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((Job() / "ranks/read").c_str(), 0600), 0);
  const FileDescriptor reader(::open((Job() / "ranks/read").c_str(), O_RDONLY | O_NONBLOCK));
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{AF_UNIX, {}};
  (Job() / "ranks/socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ExpectRefused("pipe", "is not a regular file");
  ExpectRefused("read", "is not a regular file");
  ExpectRefused("socket", "is not a regular file");
  ExpectRefused("folder", "cannot write: Is a directory");
}

TEST_F(OwnFolderTest, TheFolderIsNoLinkButTheJobDirectoryMayBeOne) {
  std::filesystem::create_symlink(Outside(), Job() / "ranks");
  EXPECT_THAT(OwnFolder::Open(Job(), "ranks"), FailsWith(HasSubstr("ranks: is a symbolic link")));
  std::filesystem::create_symlink(Outside(), directory_ / "link");
  Append(OwnFolder::Open(directory_ / "link", "ranks")->OpenFile("log"), "mine");
  EXPECT_EQ(*ReadFile(Outside() / "ranks/log"), "mine");
}

TEST_F(OwnFolderTest, ItStaysTheSameFolderIfALinkReplacesIt) {
  const OwnFolder ranks = Ranks();
  Append(ranks.OpenFile("log"), "mine");
  std::filesystem::rename(Job() / "ranks", Job() / "moved");
  std::filesystem::create_symlink(Outside(), Job() / "ranks");
  Append(ranks.CreateFile("victim"), "new");
  ASSERT_TRUE(ranks.Rename("victim", "log"));
  ASSERT_TRUE(ranks.Remove("victim"));
  EXPECT_EQ(Victim(), "secret");
  EXPECT_EQ(*ReadFile(Job() / "moved/log"), "new");
}

TEST_F(OwnFolderTest, ADirectoryOrAFileOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give files to another user";
  constexpr uid_t kOther = 65534;
  const auto give = [](const std::filesystem::path& path, uid_t user) {
    ASSERT_EQ(::chown(path.c_str(), user, static_cast<gid_t>(-1)), 0);
  };
  Append(Ranks().OpenFile("log"), "theirs");
  give(Job() / "ranks/log", kOther);
  ExpectRefused("log", "belongs to user 65534, but this process runs as user 0 (");
  EXPECT_EQ(*ReadFile(Job() / "ranks/log"), "theirs");
  for (const std::filesystem::path& path : {Job(), Job() / "ranks"}) {
    give(path, kOther);
    EXPECT_THAT(OwnFolder::Open(Job(), "ranks"),
                FailsWith(HasSubstr(path.string() +
                                    ": belongs to user 65534, but this process runs as user "
                                    "0 (make it as the user that trains, or")))
        << path;
    give(path, 0);
  }
  std::filesystem::create_directory_symlink(Job(), directory_ / "link");
  ASSERT_EQ(::lchown((directory_ / "link").c_str(), kOther, static_cast<gid_t>(-1)), 0);
  EXPECT_FALSE(OwnFolder::Open(directory_ / "link", "ranks")) << "its owner may change it";
  // All users may use a directory of root, such as a volume of Kubernetes.
  std::filesystem::permissions(directory_, std::filesystem::perms::all);
  std::filesystem::permissions(Job(), std::filesystem::perms::all);
  std::filesystem::permissions(Job() / "ranks", std::filesystem::perms::all);
  ASSERT_EQ(::seteuid(kOther), 0);
  const auto folder = OwnFolder::Open(Job(), "ranks");
  const bool is_open = folder && folder->OpenFile("own");
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_TRUE(is_open);
}

// Another user may rename a file of this user to the name of a lock.
TEST_F(OwnFolderTest, OnlyAnEmptyLockIsOpenToEverybody) {
  namespace fs = std::filesystem;
  const fs::perms everybody = fs::perms::others_read;
  ASSERT_TRUE(OpenJobLock(Job(), "new.lock"));
  EXPECT_EQ(fs::status(Job() / "new.lock").permissions(), fs::perms(0644));
  std::ofstream(Job() / "moved.lock") << "secret";
  fs::permissions(Job() / "moved.lock", fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_TRUE(OpenJobLock(Job(), "moved.lock"));
  EXPECT_EQ(fs::status(Job() / "moved.lock").permissions() & everybody, fs::perms::none);
  EXPECT_EQ(*ReadFile(Job() / "moved.lock"), "secret");
}

}  // namespace
}  // namespace perseus::protocol
