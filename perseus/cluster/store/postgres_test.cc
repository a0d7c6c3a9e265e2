// Tests what exists only with PostgreSQL: replicas, and a database server that stops.
#include <fmt/core.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/postgres_listener.h"
#include "tests/support/store_fixture.h"

namespace perseus::store {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class PostgresTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!PostgresServer::WhyNot().empty()) GTEST_SKIP() << PostgresServer::WhyNot();
    address_ = SharedPostgres().MakeDatabase();
  }
  // Runs a transaction that locks job `first`, calls `between`, and then locks the other job.
  static Result<void> ChangeBoth(
      Database& database, const std::string (&jobs)[2], std::size_t first,
      const std::function<void()>& between = [] {}) {
    return database.Transact([&](Transaction& transaction) -> Result<void> {
      for (std::size_t k = 0; k < 2; ++k) {
        PERSEUS_RETURN_IF_ERROR(
            transaction.Run("UPDATE jobs SET generation = generation + 1 WHERE id = $1",
                            {std::string_view(jobs[(first + k) % 2])}));
        if (k == 0) between();
      }
      return {};
    });
  }

  std::string address_;
};

TEST_F(PostgresTest, TwoReplicasClaimEachTaskOnce) {
  constexpr int kTasks = 200;
  std::unique_ptr<Store> replicas[] = {Get(OpenStore(address_)), Get(OpenStore(address_))};
  std::set<std::string> jobs;
  for (int i = 0; i < kTasks; ++i) {
    const std::string job = Register(*replicas[0], fmt::format("k{}", i));
    Succeed(replicas[0]->RequestPlanning(job, 1));
    jobs.insert(job);
  }
  std::vector<std::vector<std::string>> claimed(4);
  RunInThreads(claimed.size(), [&](std::size_t i) {
    Store& store = *replicas[i % 2];
    const std::string worker = fmt::format("w{}", i);
    while (const auto task = Get(store.ClaimPlanning(worker, 1, 1000))) {
      claimed[i].push_back(task->job);
      if (!Get(store.CompletePlanning(*task, {}, 1))) throw std::runtime_error("lost a claim");
    }
  });
  std::multiset<std::string> all;
  for (const auto& mine : claimed) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all, std::multiset<std::string>(jobs.begin(), jobs.end()));
}

TEST_F(PostgresTest, ReplicasThatStartAtOnceCreateTheTablesOnce) {
  std::atomic<int> opened = 0;
  RunInThreads(6, [&](std::size_t) {
    if (Get(OpenStore(address_))->Ping()) ++opened;
  });
  EXPECT_EQ(opened, 6);
}

TEST_F(PostgresTest, ANoticeReachesTheOtherReplicaAfterTheChange) {
  const auto one = Get(OpenStore(address_));
  const auto other = Get(OpenStore(address_));
  const std::string job = Register(*one, "k");
  ReceivedNotices received;
  std::vector<std::int64_t> seen;
  Succeed(other->Listen([&](const Notice& notice) {
    seen.push_back(Get(other->FindJob(job))->generation);
    received.Add(notice);
  }));
  for (int i = 1; i <= 50; ++i) {
    Succeed(one->SetTarget(job, "u", 1));
    EXPECT_EQ(received.Next().kind, Notice::Kind::kPlanning);
    ASSERT_EQ(seen.back(), i);
  }
}

TEST_F(PostgresTest, ReconnectsToARestartedServer) {
  PostgresServer server;  // Not the shared server, which the other tests need.
  auto store = Get(OpenStore(server.MakeDatabase()));
  const std::string job = Register(*store, "k");
  ReceivedNotices received;
  Succeed(store->Listen([&](const Notice& notice) { received.Add(notice); }));

  server.Stop();
  for (int i = 0; i < 3; ++i) {
    const Result<void> set = store->SetTarget(job, "away", 1);
    ASSERT_FALSE(set);
    EXPECT_EQ(set.error().kind, ErrorKind::kSystem);
    EXPECT_THAT(set.error().Message(),
                AllOf(HasSubstr("the database at postgresql:///"), HasSubstr(" does not answer: "),
                      Not(HasSubstr("\n"))));
    EXPECT_EQ(store->Ping().error().kind, ErrorKind::kSystem);
  }
  server.Start();
  EXPECT_EQ(received.Next().kind, Notice::Kind::kReadAgain);
  EXPECT_EQ(Get(store->FindJob(job))->target, "t");
  Succeed(store->SetTarget(job, "back", 1));
  EXPECT_EQ(received.Next().kind, Notice::Kind::kPlanning);

  // All connections are broken. The next call opens a new connection.
  server.Restart();
  Succeed(store->SetTarget(job, "again", 1));
  EXPECT_EQ(Get(store->FindJob(job))->target, "again");
  EXPECT_EQ(Get(store->FindJob(job))->generation, 2);

  // A store may be destroyed while it tries to connect again.
  server.Stop();
  store.reset();
}

// With its default settings, PostgreSQL keeps the locks of a lost connection for two hours.
TEST_F(PostgresTest, TransactionsOfALostReplicaEndSoon) {
  const auto database = Get(OpenPostgres(address_));
  Rows rows =
      Get(database->Read("SELECT current_setting('idle_in_transaction_session_timeout')", {}));
  EXPECT_EQ(rows.at(0).TakeText(0), "20s");
}

TEST_F(PostgresTest, AFailedTransactionWritesAndSendsNothing) {
  const auto store = Get(OpenStore(address_));
  const auto database = Get(OpenPostgres(address_));
  ReceivedNotices received;
  Succeed(store->Listen([&](const Notice& notice) { received.Add(notice); }));
  const auto write = [&](const std::string& id, bool fails) {
    return database->Transact([&](Transaction& transaction) -> Result<void> {
      PERSEUS_RETURN_IF_ERROR(transaction.Run(
          "INSERT INTO tokens VALUES ($1, '', '', '', '', 1, 1)", {std::string_view(id)}));
      PERSEUS_RETURN_IF_ERROR(transaction.Notify({.kind = Notice::Kind::kNode, .name = id}));
      if (fails) return Fail("on purpose");
      return {};
    });
  };
  EXPECT_EQ(write("a", true).error().Message(), "on purpose");
  Succeed(write("b", false));
  EXPECT_EQ(received.Next().name, "b");
  EXPECT_EQ(Get(store->ListTokens()).size(), 1u);
  EXPECT_THAT(write("b", false).error().Message(), HasSubstr("refuses: duplicate key"));
}

TEST_F(PostgresTest, OnlyWhatNodesReportAgainDoesNotWaitForTheDisk) {
  const auto database = Get(OpenPostgres(address_));
  const auto setting = [&](Durability durability) {
    std::string value;
    Succeed(database->Transact(
        [&](Transaction& transaction) -> Result<void> {
          value = Get(transaction.Run("SHOW synchronous_commit", {})).at(0).TakeText(0);
          return {};
        },
        durability));
    return value;
  };
  const std::string usual = setting(Durability::kOnDisk);
  EXPECT_NE(usual, "off");
  EXPECT_EQ(setting(Durability::kInMemory), "off");
  EXPECT_EQ(setting(Durability::kOnDisk), usual);
}

TEST_F(PostgresTest, RetriesTransactionsAfterADeadlock) {
  const auto store = Get(OpenStore(address_));
  const auto database = Get(OpenPostgres(address_));
  const std::string jobs[] = {Register(*store, "a"), Register(*store, "b")};
  // Each transaction locks one job, waits for the other transaction, and then locks the other job.
  // This is a deadlock.
  std::atomic<int> locked = 0;
  std::atomic<int> runs = 0;
  RunInThreads(2, [&](std::size_t i) {
    Succeed(ChangeBoth(*database, jobs, i, [&] {
      ++runs;
      ++locked;
      while (locked < 2) std::this_thread::yield();
    }));
  });
  EXPECT_GT(runs, 2);
  for (const std::string& job : jobs) EXPECT_EQ(Get(store->FindJob(job))->generation, 2);
}

// Eight transactions at a time lock the same two jobs, half of them in the opposite order. Most
// attempts end in a deadlock. By default, PostgreSQL looks for deadlocks after 1 s. In this test it
// does so after 1 ms, so that more deadlocks occur.
TEST_F(PostgresTest, ManyTransactionsThatDeadlockAllSucceed) {
  constexpr int kThreads = 8;
  constexpr int kTransactions = 10;
  const auto store = Get(OpenStore(address_));
  const std::string jobs[] = {Register(*store, "a"), Register(*store, "b")};
  const std::string eager = address_ + "&options=-c%20deadlock_timeout%3D1ms";
  // Each database object has four connections.
  const std::unique_ptr<Database> databases[] = {Get(OpenPostgres(eager)),
                                                 Get(OpenPostgres(eager))};
  std::atomic<int> runs = 0;
  RunInThreads(kThreads, [&](std::size_t i) {
    for (int n = 0; n < kTransactions; ++n) {
      Succeed(ChangeBoth(*databases[i / 4], jobs, i, [&] { ++runs; }));
    }
  });
  EXPECT_GT(runs, kThreads * kTransactions);
  for (const std::string& job : jobs) {
    EXPECT_EQ(Get(store->FindJob(job))->generation, kThreads * kTransactions);
  }
}

TEST_F(PostgresTest, ATextThatIsTooLongIsAnInputError) {
  const auto store = Get(OpenStore(address_));
  const std::string job = Register(*store, "k");
  // The notice would be longer than PostgreSQL allows.
  const auto attached = store->AttachNode(job, std::string(9000, 'n'), "[]", 1);
  ASSERT_FALSE(attached);
  EXPECT_EQ(attached.error().kind, ErrorKind::kInput);
  EXPECT_TRUE(Get(store->ListNodesOfJob(job)).empty());
}

TEST(PostgresAddressTest, NoMessageContainsThePassword) {
  for (const char* url : {
           "postgresql://u:secret@127.0.0.1:1/db",
           "postgresql://u@127.0.0.1:1/db?password=secret",
           "postgresql://u:x@secret@127.0.0.1:1/db",
           "postgresql://u:x/secret@127.0.0.1:1/db",
           "postgresql://u:x?secret@127.0.0.1:1/db",
           "postgresql://u:x%secret@127.0.0.1:1/db",
           "postgresql://u:p@127.0.0.1:1/db?secret=secret",
           "postgresql://u:p@127.0.0.1:secret@/db",
       }) {
    const auto store = OpenStore(url);
    ASSERT_FALSE(store);
    EXPECT_THAT(store.error().Message(), Not(HasSubstr("secret")));
  }
  const auto refused = OpenStore("postgresql://u:secret@127.0.0.1:1/db");
  EXPECT_EQ(refused.error().kind, ErrorKind::kSystem);
  EXPECT_THAT(refused.error().Message(),
              HasSubstr("the database at postgresql://127.0.0.1:1/db does not answer: "));
}

TEST(PostgresNoticeTest, ReadsItsOwnText) {
  for (const Notice& notice : {Notice{.kind = Notice::Kind::kAssignment, .name = "j-1"},
                               Notice{.kind = Notice::Kind::kNode, .name = "a node of many words"},
                               Notice{.kind = Notice::Kind::kPlanning, .name = ""},
                               Notice{.kind = Notice::Kind::kTokens, .name = ""}}) {
    EXPECT_EQ(ParseNotice(NoticeText(notice)), notice);
  }
  EXPECT_EQ(NoticeText({.kind = Notice::Kind::kAssignment, .name = "j-1"}), "assignment j-1");
  for (const char* text : {"", "news of tomorrow", "order j-1"}) {
    EXPECT_EQ(ParseNotice(text).kind, Notice::Kind::kReadAgain);
  }
}

}  // namespace
}  // namespace perseus::store
