// Tests what exists only with SQLite.
#include <sqlite3.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/schema.h"
#include "tests/support/store_fixture.h"

namespace perseus::store {
namespace {

using testing::HasSubstr;

// Runs SQL directly on the file, without the store.
void RunSql(const std::filesystem::path& path, const std::string& sql) {
  sqlite3* database = nullptr;
  ::sqlite3_open(path.c_str(), &database);
  char* complaint = nullptr;
  ::sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &complaint);
  EXPECT_EQ(complaint, nullptr) << complaint;
  ::sqlite3_free(complaint);
  ::sqlite3_close(database);
}

class SqliteTest : public testing::Test {
 protected:
  const TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_ / "perseus.db";
  const std::string address_ = "sqlite:" + path_.string();
};

TEST_F(SqliteTest, RefusesASecondServer) {
  auto store = Get(OpenStore(address_));
  const auto second = OpenStore(address_);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().Message(), HasSubstr("another server uses the database"));
  EXPECT_THAT(second.error().Message(), HasSubstr("use postgresql:// for several"));
  store.reset();
  EXPECT_TRUE(OpenStore(address_).has_value());
}

TEST_F(SqliteTest, RefusesOtherFilesWithARemedy) {
  RunSql(path_, "CREATE TABLE t (a)");
  std::filesystem::resize_file(path_, 0);
  std::FILE* file = std::fopen(path_.c_str(), "w");
  for (int i = 0; i < 1000; ++i) std::fputs("no database, but a text\n", file);
  std::fclose(file);
  const auto text = OpenStore(address_);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().kind, ErrorKind::kInput);
  EXPECT_THAT(text.error().Message(), HasSubstr("file is not a database (name another file)"));

  const auto nowhere = OpenStore("sqlite:" + (directory_ / "none/perseus.db").string());
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().kind, ErrorKind::kSystem);
  EXPECT_THAT(nowhere.error().Message(), HasSubstr("does its directory exist"));

  for (const char* address : {"", "sqlite:", "mysql://user:secret@host/db", "perseus.db"}) {
    const auto wrong = OpenStore(address);
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().kind, ErrorKind::kInput);
    EXPECT_THAT(wrong.error().Message(), testing::Not(HasSubstr("secret")));
  }
}

TEST_F(SqliteTest, OnlyTheOwnerReadsANewFile) {
  namespace fs = std::filesystem;
  const auto store = Get(OpenStore(address_));
  for (const char* end : {"", "-wal", "-shm"}) {
    const fs::perms mode = fs::status(path_.string() + end).permissions();
    EXPECT_EQ(mode, fs::perms::owner_read | fs::perms::owner_write) << path_ << end;
  }
}

// Changes the current tables back to the tables of version 1, with a token for agents.
TEST_F(SqliteTest, UpgradesTheTablesOfAnOlderProgram) {
  Succeed(CreateTables(*Get(OpenSqlite(path_)), 1));
  RunSql(path_, "INSERT INTO tokens VALUES ('t-1', 'hash', 'agent', '', 'nodes', 1, 0)");
  const auto store = Get(OpenStore(address_));
  const auto tokens = Get(store->ListTokens());
  ASSERT_EQ(tokens.size(), 1U);
  EXPECT_EQ(tokens[0].nodes, "*") << "it stays good for every node";
  const auto job = Get(store->CreateJob({.key = "run", .body = "{}", .target = "{}"}, 1));
  EXPECT_EQ(Get(store->ListAudit({})).size(), 1U);
}

// The plans of the older program have no numbers. Both programs may use the tables.
TEST_F(SqliteTest, UpgradesTheTableOfPlans) {
  constexpr std::int64_t kBefore = 5;
  Succeed(CreateTables(*Get(OpenSqlite(path_)), kBefore));
  RunSql(path_,
         "INSERT INTO jobs (id, key, body, target, created) VALUES ('j', 'run', '{}', '', 1)");
  const auto insert = [](std::string_view id) {
    return fmt::format(
        "INSERT INTO plans (id, job, slug, profile_version, body, created) VALUES "
        "('{}', 'j', 'edp', 0, '{{}}', 1)",
        id);
  };
  RunSql(path_, insert("p-1"));
  const auto store = Get(OpenStore(address_));
  RunSql(path_, insert("p-2"));
  for (const char* id : {"p-1", "p-2"}) {
    EXPECT_EQ(
        Get(store->FindPlanById(id)),
        (PlanRecord{.id = id, .job = "j", .slug = "edp", .body = "{}", .created = 1, .time_s = 0}));
  }
}

// A newer program may have written words that this program does not know.
TEST_F(SqliteTest, UnknownWordsAreErrorsAndAnUnknownScopeIsOneOfItsToken) {
  const auto store = Get(OpenStore(address_));
  Get(store->CreateJob({.key = "run", .body = "{}", .target = "{}"}, 1));
  Succeed(store->AddToken({.id = "t-1", .scope = Scope::kRead}));
  RunSql(path_,
         "UPDATE jobs SET status = 'paused'; UPDATE tokens SET scope = 'auditor'; "
         "UPDATE audit SET role = 'auditor'");
  const auto failure = [](const auto& result) {
    EXPECT_EQ(result.error().kind, ErrorKind::kSystem);
    return result.error().Message();
  };
  EXPECT_EQ(
      failure(store->FindJob("run")),
      "\"paused\" in the database is none of waiting, planned, failed (use the version of the "
      "program that wrote it)");
  EXPECT_THAT(failure(store->CreateJob({.key = "run", .body = "{}", .target = "{}"}, 1)),
              HasSubstr("\"paused\""));
  EXPECT_THAT(failure(store->ListAudit({})),
              HasSubstr("\"auditor\" in the database is none of operator, "));
  EXPECT_EQ(Get(store->ListTokens()).at(0).scope, std::nullopt);
}

TEST_F(SqliteTest, AFailedMigrationWritesNothing) {
  // Prevents the creation of the store's table `tokens`.
  RunSql(path_, "CREATE TABLE tokens (somebody TEXT)");
  ASSERT_FALSE(OpenStore(address_));
  RunSql(path_, "CREATE TABLE jobs (these TEXT); DROP TABLE jobs; DROP TABLE tokens");
  EXPECT_TRUE(OpenStore(address_).has_value());
}

TEST_F(SqliteTest, AFailedTransactionUndoesOnlyItsOwnChanges) {
  const auto database = Get(OpenSqlite(path_));
  Succeed(CreateTables(*database));
  const auto add = [](Transaction& transaction, std::string_view id) -> Result<void> {
    const auto added = transaction.Run(
        "INSERT INTO tokens (id, hash, scope, job, name, created, expires) VALUES ($1, '', '', '', "
        "'', $2, $3)",
        {id, 1, 2.0});
    if (!added) return Fail(added);
    return {};
  };
  Succeed(database->Transact([&](Transaction& transaction) { return add(transaction, "kept"); }));
  const Result<void> failed = database->Transact([&](Transaction& transaction) -> Result<void> {
    Succeed(add(transaction, "gone"));
    return add(transaction, "kept");
  });
  EXPECT_THAT(failed.error().Message(), HasSubstr("UNIQUE constraint failed"));
  EXPECT_THROW((void)database->Transact([&](Transaction& transaction) -> Result<void> {
    Succeed(add(transaction, "gone, too"));
    throw std::bad_alloc();
  }),
               std::bad_alloc);
  const Rows rows = Get(database->Read("SELECT id FROM tokens", {}));
  ASSERT_EQ(rows.size(), 1u);
}

TEST_F(SqliteTest, OnlyWhatNodesReportAgainDoesNotWaitForTheDisk) {
  const auto database = Get(OpenSqlite(path_));
  constexpr std::int64_t kNormal = 1;  // The values of SQLite's PRAGMA synchronous.
  constexpr std::int64_t kFull = 2;
  const auto setting = [&](Durability durability) {
    std::int64_t value = -1;
    Succeed(database->Transact(
        [&](Transaction& transaction) -> Result<void> {
          value = Get(transaction.Run("PRAGMA synchronous", {})).at(0).Integer(0);
          return {};
        },
        durability));
    return value;
  };
  EXPECT_EQ(setting(Durability::kOnDisk), kFull);
  EXPECT_EQ(setting(Durability::kInMemory), kNormal);
  EXPECT_EQ(setting(Durability::kOnDisk), kFull);
}

// The third transaction waits until the second, long transaction is committed. If both were in the
// same commit, the third transaction would wait forever.
TEST_F(SqliteTest, ACommitEndsAfterLongWork) {
  const auto database = Get(OpenSqlite(":memory:"));
  bool is_in_order = false;
  bool was_committed = false;
  // The test cannot observe that a transaction waits. On a busy machine, the transactions may start
  // in another order. Then the test repeats them with longer pauses.
  for (std::chrono::milliseconds pause(20); !is_in_order && pause < std::chrono::seconds(10);
       pause *= 2) {
    std::promise<void> queued;
    std::promise<void> committed;
    const auto is_queued = queued.get_future().share();
    const auto is_committed = committed.get_future().share();
    bool was_long = false;
    RunInThreads(3, [&](std::size_t i) {
      std::this_thread::sleep_for(i * pause);  // The transactions start in the order of `i`.
      if (i == 2) queued.set_value();
      Succeed(database->Transact([&](Transaction&) -> Result<void> {
        if (i == 0) {  // In the meantime, the other transactions begin to wait.
          is_queued.wait();
          std::this_thread::sleep_for(pause);
        }
        if (i == 1) {
          was_long = true;
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        if (i == 2 && was_long) {
          is_in_order = true;
          was_committed =
              is_committed.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
        }
        return {};
      }));
      if (i == 1) committed.set_value();
    });
  }
  EXPECT_TRUE(was_committed);
}

TEST_F(SqliteTest, StoresNulls) {
  const auto database = Get(OpenSqlite(path_));
  Rows rows = Get(database->Read("SELECT $1, $2, $1", {std::monostate(), ""}));
  EXPECT_EQ(rows[0].At(0), Value());
  EXPECT_EQ(rows[0].At(1), Value(""));
  EXPECT_EQ(rows[0].At(2), Value());
  EXPECT_EQ(rows[0].Integer(0), 0);
  EXPECT_EQ(rows[0].TakeText(0), "");
}

TEST_F(SqliteTest, TheFileShrinksWhenJobsArePruned) {
  {
    const auto store = Get(OpenStore(address_));
    const std::string job = Register(*store, "k");
    Get(store->PutProfile(job, std::string(20'000'000, 'x'), 1));
    Succeed(store->EndJob(job, 2));
    EXPECT_EQ(Get(store->Prune(3, 10)), 1);
  }
  EXPECT_LT(std::filesystem::file_size(path_), 1'000'000u);
}

TEST_F(SqliteTest, ALockedDatabaseGivesAnErrorAndLosesNothing) {
  const auto store = Get(OpenStore(address_));
  const std::string job = Register(*store, "k");
  // Another program, such as sqlite3, holds the file for longer than the store waits.
  sqlite3* other_program = nullptr;
  ASSERT_EQ(::sqlite3_open(path_.c_str(), &other_program), SQLITE_OK);
  ASSERT_EQ(::sqlite3_exec(other_program, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  const Result<void> refused = store->SetTarget(job, "u", 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kSystem);
  EXPECT_THAT(refused.error().Message(), HasSubstr("another program uses it"));
  EXPECT_EQ(Get(store->FindJob(job))->target, "t");
  ::sqlite3_close(other_program);
  Succeed(store->SetTarget(job, "u", 1));
  EXPECT_EQ(Get(store->FindJob(job))->target, "u");
}

}  // namespace
}  // namespace perseus::store
