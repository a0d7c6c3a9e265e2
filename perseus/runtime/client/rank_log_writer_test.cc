#include "perseus/runtime/client/rank_log_writer.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "perseus/base/file.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "tests/support/reader_lock.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::client {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// The job directory is one into which other users may write, too.
class RankLogWriterTest : public testing::Test {
 protected:
  RankLogWriterTest() { std::ofstream(Victim()) << "secret"; }

  std::filesystem::path Victim() const { return directory_ / "victim"; }
  std::filesystem::path Ranks() const { return directory_ / "job/ranks"; }
  std::filesystem::path Log() const { return Ranks() / "dp0-pp0-tp0.jsonl"; }
  std::filesystem::path Beside(const std::string& ending) const { return Log().string() + ending; }

  Result<RankLogWriter> Create(std::uint64_t pipeline = 0) {
    return RankLogWriter::Create(Log(), live_, pipeline);
  }
  void ExpectRefused(const std::string& why) {
    EXPECT_THAT(Create(),
                FailsWith(::testing::AllOf(
                    HasSubstr(why), EndsWith("; steps are not recorded; check PERSEUS_JOB_DIR"))))
        << why;
    EXPECT_EQ(*ReadFile(Victim()), "secret");
  }

  TemporaryDirectory directory_;
  LiveSession live_;
};

TEST_F(RankLogWriterTest, BeginsAgainWithAnOwnFileAndDeletesTheOlderPart) {
  std::filesystem::create_directories(Ranks());
  std::ofstream(Log()) << "of an earlier run";
  std::ofstream(Beside(".1")) << "older";
  auto log = ValueOf(Create());
  EXPECT_EQ(*ReadFile(Log()), "");
  EXPECT_FALSE(std::filesystem::exists(Beside(".1")));
  ASSERT_TRUE(log.Append("a\n"));
  ASSERT_TRUE(log.BeginAnew("b\n"));
  ASSERT_TRUE(log.Append("c\n"));
  EXPECT_EQ(*ReadFile(Log()), "b\nc\n");
  EXPECT_EQ(*ReadFile(Beside(".1")), "a\n");
  EXPECT_EQ(log.size(), 4U);
  EXPECT_THAT(Create(), FailsWith(HasSubstr("another process records as dp0-pp0-tp0")));
  EXPECT_EQ(*ReadFile(Log()), "b\nc\n");
  EXPECT_FALSE(log.IsDeleted());
  std::filesystem::remove_all(directory_ / "job");
  EXPECT_TRUE(log.IsDeleted());
}

TEST_F(RankLogWriterTest, ALaterSessionOfTheProcessContinuesTheLog) {
  const auto write = [this](std::uint64_t pipeline, const char* line) {
    auto log = ValueOf(Create(pipeline));
    const auto continued = log.continued();
    EXPECT_TRUE(log.Append(line));
    log.Remember(continued ? continued->next_step + 1 : 7, 5);
    return continued;
  };
  EXPECT_FALSE(write(1, "a\n"));
  std::ofstream(Beside(".1")) << "older\n";
  const auto second = write(1, "b\n");
  ASSERT_TRUE(second);
  EXPECT_EQ(second->next_step, 7);
  EXPECT_EQ(second->epoch, 5);
  EXPECT_EQ(*ReadFile(Log()), "a\nb\n");
  EXPECT_EQ(*ReadFile(Beside(".1")), "older\n");
  // Another pipeline of this rank, and a log that another process has written, begin again.
  EXPECT_FALSE(write(2, "c\n"));
  EXPECT_FALSE(std::filesystem::exists(Beside(".1")));
  EXPECT_TRUE(write(2, "d\n"));
  std::ofstream(Log()) << "of another process\n";
  EXPECT_FALSE(write(2, "e\n"));
  EXPECT_EQ(*ReadFile(Log()), "e\n");
  // The file system may use the number of a deleted file again.
  std::filesystem::remove(Log());
  EXPECT_FALSE(write(2, "f\n"));
  // A log that this process did not remember.
  static_cast<void>(ValueOf(Create(2)).Append("g\n"));
  EXPECT_FALSE(write(2, "h\n"));
}

// Any user who may read a log can lock it.
TEST_F(RankLogWriterTest, AReaderDoesNotKeepTheWriterFromItsLog) {
  std::filesystem::create_directories(Ranks());
  std::ofstream(Log()) << "of an earlier run";
  const auto is_written = [this] { return protocol::RankLogReader(Log()).IsBeingWritten(); };
  const FileDescriptor first = LockAsReader(Log());
  EXPECT_EQ(is_written(), false);
  {
    auto log = ValueOf(Create());
    EXPECT_TRUE(log.Append("a\n"));
    EXPECT_EQ(*ReadFile(Log()), "a\n");
    EXPECT_EQ(is_written(), true);
    EXPECT_THAT(Create(), FailsWith(HasSubstr("another process records as dp0-pp0-tp0")));
    EXPECT_THROW(LockAsReader(Log()), std::runtime_error);
    ASSERT_TRUE(log.BeginAnew("b\n"));
    EXPECT_THROW(LockAsReader(Log()), std::runtime_error);
    EXPECT_EQ(is_written(), true);
    log.Remember(7, 5);
  }
  EXPECT_EQ(is_written(), false);
  const FileDescriptor second = LockAsReader(Log());
  auto log = ValueOf(Create());
  EXPECT_TRUE(log.continued());
  EXPECT_TRUE(log.Append("c\n"));
  EXPECT_EQ(log.size(), 2U);
  EXPECT_EQ(*ReadFile(Log()), "c\n");
  EXPECT_EQ(*ReadFile(Beside(".1")), "b\n") << "a reader continues with the new log";
  EXPECT_EQ(is_written(), true);
  EXPECT_EQ(std::filesystem::status(Log()).permissions(), std::filesystem::perms(0644));
}

TEST_F(RankLogWriterTest, TruncatesNoFileBehindALink) {
  std::filesystem::create_directories(Ranks());
  std::filesystem::create_symlink(Victim(), Log());
  ExpectRefused("dp0-pp0-tp0.jsonl: is a symbolic link");
  std::filesystem::remove(Log());
  std::filesystem::create_symlink(directory_ / "new", Log());
  ExpectRefused("dp0-pp0-tp0.jsonl: is a symbolic link");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "new"));
  std::filesystem::remove(Log());
  std::filesystem::create_hard_link(Victim(), Log());
  ExpectRefused("dp0-pp0-tp0.jsonl: is a hard link of another file");
  std::filesystem::remove(Log());
  ASSERT_EQ(::mkfifo(Log().c_str(), 0600), 0);
  ExpectRefused("dp0-pp0-tp0.jsonl: is not a regular file");
  std::filesystem::remove(Log());
  EXPECT_TRUE(Create());
}

TEST_F(RankLogWriterTest, ALongLogFollowsNoLinkEither) {
  auto log = ValueOf(Create());
  ASSERT_TRUE(log.Append("a\n"));
  for (const char* ending : {".new", ".1"}) {
    std::filesystem::create_symlink(Victim(), Beside(ending));
  }
  ASSERT_TRUE(log.BeginAnew("b\n"));
  std::filesystem::create_hard_link(Victim(), Beside(".new"));
  ASSERT_TRUE(log.BeginAnew("c\n"));
  EXPECT_EQ(*ReadFile(Victim()), "secret");
  EXPECT_EQ(*ReadFile(Log()), "c\n");
  EXPECT_EQ(*ReadFile(Beside(".1")), "b\n");
  EXPECT_FALSE(std::filesystem::is_symlink(Beside(".1")));
}

TEST_F(RankLogWriterTest, ADirectoryOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give files to another user";
  std::filesystem::create_directories(Ranks());
  ASSERT_EQ(::chown(Ranks().c_str(), 65534, 65534), 0);
  ExpectRefused("ranks: belongs to user 65534, but this process runs as user 0");
  ASSERT_EQ(::chown((directory_ / "job").c_str(), 65534, 65534), 0);
  ExpectRefused("job: belongs to user 65534, but this process runs as user 0");
}

}  // namespace
}  // namespace perseus::client
