#include "perseus/cluster/node/rank_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "perseus/base/units.h"
#include "tests/support/rank_logs.h"
#include "tests/support/sparse_file.h"
#include "tests/support/temporary_directory.h"

namespace perseus::node {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Following = RankFollower::Following;

class RankFollowerTest : public testing::Test {
 protected:
  RankFollower::News Look() {
    now_ += kSecond;
    // In this test, a version of assignment.json is the server's version plus 10.
    return follower_.Look([](std::int64_t version) { return version < 10 ? 0 : version - 10; },
                          now_);
  }

  TemporaryDirectory directory_;
  RankLogs logs_{directory_.path()};
  RankFollower follower_{directory_.path()};
  Nanoseconds now_ = 0;
};

TEST_F(RankFollowerTest, ARankIsAliveOnceItsLogGrowsOrHasNoStepYet) {
  EXPECT_FALSE(Look().have_ranks_changed);
  logs_.Begin({0, 0, 0}, 100);
  logs_.Begin({0, 1, 0}, 101);  // This log is from an earlier run.
  logs_.End({0, 1, 0}, 5000, 17);
  EXPECT_TRUE(Look().have_ranks_changed);
  ASSERT_THAT(follower_.Alive(), SizeIs(1));
  EXPECT_EQ(follower_.Alive()[0].gpu, "GPU-dp0-pp0-tp0");
  EXPECT_EQ(follower_.progress().last_step, -1);

  logs_.Begin({0, 1, 0}, 102);
  const auto news = Look();
  EXPECT_TRUE(news.have_ranks_changed);
  EXPECT_TRUE(news.has_restarted);
  EXPECT_THAT(follower_.Alive(), SizeIs(2));
}

// A killed rank leaves its log, so only the lock shows that it has ended.
TEST_F(RankFollowerTest, ARankRunsUntilTheLockOfItsLogIsGone) {
  logs_.Begin({0, 0, 0}, 100);
  logs_.Begin({0, 1, 0}, 101);  // This log has no lock, as on a file system without locks.
  auto process = logs_.Lock({0, 0, 0});
  Look();
  EXPECT_EQ(follower_.running(), 2);
  process = FileDescriptor();
  Look();
  EXPECT_EQ(follower_.running(), 1);
  EXPECT_THAT(follower_.Alive(), SizeIs(2)) << "they stay attached";

  process = logs_.Lock({0, 0, 0});  // A look at the log leaves no lock.
  logs_.Begin({0, 0, 0}, 102);
  EXPECT_TRUE(Look().has_restarted);
  EXPECT_EQ(follower_.running(), 2);
}

TEST_F(RankFollowerTest, ATrainingHasEndedIfAllItsRanksClosedTheirLogs) {
  std::vector<FileDescriptor> processes;
  for (int rank = 0; rank < 2; ++rank) {
    logs_.Begin({0, rank, 0}, 100 + rank);
    processes.push_back(logs_.Lock({0, rank, 0}));
  }
  Look();
  for (int rank = 0; rank < 2; ++rank) logs_.End({0, rank, 0}, 1, 16);
  logs_.Close({0, 0, 0});
  processes[0] = FileDescriptor();
  Look();
  EXPECT_EQ(follower_.running(), 2) << "the other rank runs, so nothing is wrong";
  EXPECT_FALSE(follower_.HaveEnded());
  processes[1] = FileDescriptor();
  Look();
  EXPECT_EQ(follower_.running(), 1) << "this rank was killed";
  logs_.Close({0, 1, 0});
  Look();
  EXPECT_EQ(follower_.running(), 2);
  EXPECT_FALSE(follower_.HaveEnded()) << "its step is not reported yet";
  EXPECT_THAT(follower_.TakeReports(now_), SizeIs(1));
  EXPECT_TRUE(follower_.HaveEnded());

  // Another session of the process continues the log.
  logs_.Append({0, 1, 0}, RankLogs::Header({0, 1, 0}, 101));
  Look();
  EXPECT_FALSE(follower_.HaveEnded());
  logs_.Close({0, 1, 0});
  Look();
  follower_.ForgetEnded();
  EXPECT_THAT(follower_.Alive(), IsEmpty());
  EXPECT_FALSE(follower_.HaveEnded());
  logs_.Begin({0, 0, 0}, 200);
  EXPECT_TRUE(Look().has_restarted);
  EXPECT_THAT(follower_.Alive(), SizeIs(1));
}

// The rank renames its log and begins another one.
TEST_F(RankFollowerTest, ContinuesWithTheNextLogAfterTheRankRotatesIt) {
  const protocol::RankId rank{0, 0, 0};
  logs_.Begin(rank, 100);
  Look();
  logs_.End(rank, 1, 0);
  EXPECT_THAT(follower_.TakeReports(now_), IsEmpty());
  Look();
  EXPECT_THAT(follower_.TakeReports(now_), SizeIs(1));
  logs_.End(rank, 2, 0);
  const auto path = protocol::RankLogPath(directory_.path(), rank);
  std::filesystem::rename(path, protocol::OlderRankLogPath(path));
  logs_.Begin(rank, 100);
  logs_.End(rank, 3, 0);
  std::vector<protocol::StepReport> reports;
  for (int i = 0; i < 2; ++i) {
    const auto news = Look();
    EXPECT_FALSE(news.has_restarted);
    EXPECT_FALSE(news.have_ranks_changed);
    for (const protocol::StepReport& report : follower_.TakeReports(now_))
      reports.push_back(report);
  }
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_EQ(reports[0].step, 2);
  EXPECT_EQ(reports[1].step, 3);
  EXPECT_THAT(follower_.Alive(), SizeIs(1));
}

TEST_F(RankFollowerTest, ReportsProgressAndTheVersionThatRanksFollow) {
  for (int rank = 0; rank < 2; ++rank) logs_.Begin({0, rank, 0}, 100 + rank);
  Look();
  EXPECT_EQ(follower_.following(), (Following{0, -1}));
  for (int rank = 0; rank < 2; ++rank) {
    logs_.End({0, rank, 0}, 8, 16);
    logs_.End({0, rank, 0}, 9, 16);
  }
  Look();
  EXPECT_EQ(follower_.progress().last_step, 9);
  EXPECT_EQ(follower_.progress().step_time, RankLogs::kStepTime);
  EXPECT_EQ(follower_.following(), (Following{6, 8}));
  logs_.End({0, 0, 0}, 10, 17);
  Look();
  EXPECT_EQ(follower_.following(), (Following{6, 8}));  // Not all ranks follow version 7 yet.
  logs_.End({0, 1, 0}, 10, 16);
  logs_.End({0, 0, 0}, 11, 17);
  logs_.End({0, 1, 0}, 11, 17);
  Look();
  EXPECT_EQ(follower_.following(), (Following{7, 11}));
  EXPECT_THAT(follower_.TakeReports(now_), SizeIs(4));
}

TEST_F(RankFollowerTest, ARestartedJobHasTheProgressOfItsNewRanks) {
  for (int rank = 0; rank < 2; ++rank) {
    logs_.Begin({0, rank, 0}, 100 + rank);
  }
  Look();
  for (int rank = 0; rank < 2; ++rank) logs_.End({0, rank, 0}, 500, 16);
  Look();
  logs_.Begin({0, 0, 0}, 200);  // The restarted job has one rank less.
  EXPECT_TRUE(Look().has_restarted);
  EXPECT_EQ(follower_.progress().last_step, -1);
  logs_.End({0, 0, 0}, 0, 16);
  EXPECT_FALSE(Look().has_restarted);
  EXPECT_EQ(follower_.progress().last_step, 0);
  EXPECT_EQ(follower_.following(), (Following{6, 0}));
}

TEST_F(RankFollowerTest, ForgetsARankWhoseLogIsDeleted) {
  for (int rank = 0; rank < 2; ++rank) logs_.Begin({0, rank, 0}, 100 + rank);
  Look();
  for (int rank = 0; rank < 2; ++rank) logs_.End({0, rank, 0}, 10 * rank, 16);
  Look();
  const auto log = protocol::RankLogPath(directory_.path(), {0, 1, 0});
  std::filesystem::rename(log, directory_ / "log");
  EXPECT_FALSE(Look().have_ranks_changed) << "the rank may be about to begin another log";
  std::filesystem::rename(directory_ / "log", log);
  EXPECT_FALSE(Look().have_ranks_changed);
  std::filesystem::remove(log);
  EXPECT_FALSE(Look().have_ranks_changed);
  EXPECT_TRUE(Look().have_ranks_changed);
  ASSERT_THAT(follower_.Alive(), SizeIs(1));
  EXPECT_EQ(follower_.Alive()[0].name, (protocol::RankId{0, 0, 0}));
  EXPECT_EQ(follower_.progress().last_step, 0);
  std::filesystem::remove_all(directory_ / "ranks");
  Look();
  EXPECT_TRUE(Look().have_ranks_changed);
  EXPECT_THAT(follower_.Alive(), IsEmpty());
}

TEST_F(RankFollowerTest, KeepsItsRanksIfTheDirectoryCannotBeListed) {
  logs_.Begin({0, 0, 0}, 100);
  Look();
  std::filesystem::rename(directory_ / "ranks", directory_ / "away");
  std::ofstream(directory_ / "ranks") << "no directory";
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Look().troubles, Contains(HasSubstr("ranks: cannot read: Not a directory")));
  }
  EXPECT_THAT(follower_.Alive(), SizeIs(1));
}

TEST_F(RankFollowerTest, ARepeatedHeaderIsNotANewProcess) {
  logs_.Begin({0, 0, 0}, 100);
  Look();
  logs_.End({0, 0, 0}, 3, 16);
  logs_.Append({0, 0, 0}, RankLogs::Header({0, 0, 0}, 100));
  EXPECT_FALSE(Look().has_restarted);
  EXPECT_EQ(follower_.progress().last_step, 3);
}

TEST_F(RankFollowerTest, NamesAPipeAndIgnoresOtherFiles) {
  std::filesystem::create_directories(directory_ / "ranks");
  ASSERT_EQ(::mkfifo((directory_ / "ranks/dp0-pp0-tp0.jsonl").c_str(), 0600), 0);
  logs_.Text("notes.jsonl", "{}\n");
  EXPECT_THAT(Look().troubles, Contains(HasSubstr("dp0-pp0-tp0.jsonl: is not a regular file")));
  EXPECT_THAT(follower_.Alive(), IsEmpty());
}

TEST_F(RankFollowerTest, AFileOfAnySizeIsOneTrouble) {
  logs_.Begin({0, 0, 0}, 100);
  LengthenWithHole(protocol::RankLogPath(directory_.path(), {0, 0, 0}));
  EXPECT_THAT(Look().troubles, ElementsAre(HasSubstr("the line is longer than")));
  EXPECT_THAT(Look().troubles, IsEmpty());
}

// Otherwise, one job's files would delay all jobs of the node.
TEST_F(RankFollowerTest, OneLookReadsOnlyAPartOfManyLargeLogs) {
  constexpr int kLarge = 8;
  for (int rank = 0; rank < kLarge; ++rank) {
    logs_.Begin({rank, 0, 0}, 100);
    LengthenWithHole(protocol::RankLogPath(directory_.path(), {rank, 0, 0}));
  }
  logs_.Begin({kLarge, 0, 0}, 100);
  std::size_t most = 0;
  int looks = 0;
  for (; follower_.Alive().empty() && looks < 100; ++looks) {
    most = std::max(most, Look().troubles.size());
  }
  EXPECT_THAT(follower_.Alive(), SizeIs(1));
  EXPECT_GT(looks, 1);
  EXPECT_LE(most, 2U);
}

TEST_F(RankFollowerTest, FollowsNoLinkInPlaceOfRanks) {
  logs_.Begin({0, 0, 0}, 100);
  std::filesystem::rename(directory_ / "ranks", directory_ / "elsewhere");
  std::filesystem::create_directory_symlink("elsewhere", directory_ / "ranks");
  EXPECT_THAT(Look().troubles, ElementsAre(HasSubstr("ranks: is a symbolic link")));
  EXPECT_THAT(follower_.Alive(), IsEmpty());
}

TEST_F(RankFollowerTest, ReportsAnInvalidLineAndContinues) {
  logs_.Begin({0, 0, 0}, 100);
  Look();
  logs_.Text("dp0-pp0-tp0.jsonl", "nonsense\n");
  logs_.End({0, 0, 0}, 3, 16);
  const auto news = Look();
  ASSERT_THAT(news.troubles, SizeIs(1));
  EXPECT_THAT(news.troubles[0], HasSubstr("dp0-pp0-tp0.jsonl:2"));
  Look();
  EXPECT_EQ(follower_.progress().last_step, 3);
}

}  // namespace
}  // namespace perseus::node
