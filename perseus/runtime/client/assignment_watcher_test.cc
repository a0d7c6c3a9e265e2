#include "perseus/runtime/client/assignment_watcher.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "perseus/base/clock.h"
#include "perseus/base/file.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_plan.h"

namespace perseus::client {
namespace {

using ::testing::HasSubstr;

constexpr Nanoseconds kTurn = 10'000'000;

class AssignmentWatcherTest : public testing::Test {
 protected:
  void Assign(std::int64_t version) const {
    protocol::Assignment assignment;
    assignment.version = version;
    assignment.own = true;
    ASSERT_TRUE(protocol::WriteAssignment(directory_.path(), assignment));
  }
  // The version that the next turn finds. 0: none.
  std::int64_t Turn() {
    now_ += kTurn;
    const AssignmentWatcher::News news = watcher_.LookForNew(now_);
    EXPECT_EQ(news.problem, "");
    return news.table == nullptr ? 0 : news.table->version;
  }

  TemporaryDirectory directory_;
  AssignmentWatcher watcher_{directory_.path(), {0, 0, 0}};
  Nanoseconds now_ = 0;
};

TEST_F(AssignmentWatcherTest, TheFileSystemIsAskedTwiceASecond) {
  Assign(1);
  EXPECT_EQ(Turn(), 1);
  const int before = watcher_.asked();
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(Turn(), 0);  // Ten seconds.
  EXPECT_LE(watcher_.asked() - before, 21);
  EXPECT_GE(watcher_.asked() - before, 19);
}

TEST_F(AssignmentWatcherTest, AChangeOnThisNodeIsFoundByTheNextTurn) {
  EXPECT_EQ(Turn(), 0);
  for (std::int64_t version = 1; version <= 30; ++version) {
    Assign(version);
    EXPECT_EQ(Turn(), version);
  }
}

// The node writes into a directory of its own, which may appear later.
TEST_F(AssignmentWatcherTest, AnAssignmentOfTheNodeIsFoundByTheNextTurn) {
  const std::filesystem::path node = directory_ / "nodes/17";
  std::filesystem::create_directory_symlink("nodes/17", directory_ / protocol::kNodeLink);
  EXPECT_EQ(Turn(), 0);
  Assign(1);
  EXPECT_EQ(Turn(), 1);
  std::filesystem::create_directories(node);
  now_ += AssignmentWatcher::kAskEvery;
  EXPECT_EQ(Turn(), 0);
  protocol::Assignment assignment;
  assignment.server = protocol::ServerOrigin{"j-1", 1};
  assignment.plan = "plans/p-1.json";
  ASSERT_TRUE(protocol::WriteJobFile(node, assignment.plan, node::TinyPlan()));
  for (std::int64_t version = 2; version <= 10; version += 2) {
    assignment.version = version;
    ASSERT_TRUE(protocol::WriteAssignment(node, assignment));
    EXPECT_EQ(Turn(), version);
    Assign(version + 1);
    EXPECT_EQ(Turn(), version + 1);
  }
}

TEST_F(AssignmentWatcherTest, FollowsNoLinkInPlaceOfAPlan) {
  protocol::Assignment assignment;
  assignment.plan = "plans/p.json";
  ASSERT_TRUE(protocol::WriteJobFile(directory_.path(), "elsewhere.json", node::TinyPlan()));
  std::filesystem::create_directory(directory_ / "plans");
  std::filesystem::create_symlink("../elsewhere.json", directory_ / assignment.plan);
  ASSERT_TRUE(protocol::WriteAssignment(directory_.path(), assignment));
  EXPECT_THAT(watcher_.LookForNew(now_ += kTurn).problem, HasSubstr("is a symbolic link"));
}

// The log of a rank and the files of plans are in other directories.
TEST_F(AssignmentWatcherTest, OtherFilesAreNoReasonToAsk) {
  EXPECT_EQ(Turn(), 0);
  const int before = watcher_.asked();
  ASSERT_TRUE(WriteFileAtomically((directory_ / "tuner.json").string(), "{}"));
  EXPECT_EQ(Turn(), 0);
  EXPECT_EQ(watcher_.asked(), before);
}

// A directory that appears later, or again, is found within the time between two questions.
TEST_F(AssignmentWatcherTest, ADirectoryThatIsMadeAgainIsWatchedAgain) {
  const std::filesystem::path job = directory_ / "job";
  AssignmentWatcher watcher(job, {0, 1, 0});
  std::int64_t version = 0;
  for (int round = 0; round < 2; ++round) {
    std::filesystem::remove_all(job);
    static_cast<void>(watcher.LookForNew(now_ += AssignmentWatcher::kAskEvery));
    static_cast<void>(watcher.LookForNew(now_ += AssignmentWatcher::kAskEvery));
    std::filesystem::create_directory(job);
    static_cast<void>(watcher.LookForNew(now_ += AssignmentWatcher::kAskEvery));
    protocol::Assignment assignment;
    assignment.version = ++version;
    assignment.own = true;
    ASSERT_TRUE(protocol::WriteAssignment(job, assignment));
    const AssignmentWatcher::News news = watcher.LookForNew(now_ += kTurn);
    ASSERT_NE(news.table, nullptr) << round;
    EXPECT_EQ(news.table->version, version);
  }
}

}  // namespace
}  // namespace perseus::client
