// Backups, on every database and from one to the other.
#include "perseus/cluster/store/dump.h"

#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/schema.h"
#include "perseus/cluster/store/statements.h"
#include "perseus/cluster/store/store_fixture.h"

namespace perseus::store {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class DumpTest : public StoreTest {
 protected:
  std::string file() const { return (directory_ / "perseus.backup").string(); }
  std::string NewSqlite(const std::string& name) const {
    return "sqlite:" + (directory_ / name).string();
  }
  std::string Text() const {
    std::ifstream in(file(), std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void Replace(const std::string& text) const { std::ofstream(file(), std::ios::binary) << text; }
  // Records in every table, some of them with long texts and odd ones.
  void Fill() {
    Get(store_->PutProfile(job_, "csv \"with\" ü and \n\t\\ \x7f", 1));
    EXPECT_TRUE(Get(store_->AddMeasurements(job_, "[]", 2)));
    const auto task = Get(store_->ClaimPlanning("w", 10, 1000));
    PlanningOutcome outcome;
    outcome.generation = Job().generation;
    outcome.frontier = "{}";
    outcome.plans = {NewPlan("a", 1, LongText(3'000'000)), NewPlan("b", 1)};
    outcome.plans[0].id = "p-1";
    outcome.plans[1].id = "p-2";
    outcome.assignment = R"({"pipelines":[{"plan":"p-1"},{"plan":"p-2"}]})";
    EXPECT_TRUE(Get(store_->CompletePlanning(*task, outcome, 20)));
    // More than one page of rows, with several of each job.
    for (int i = 0; i < 130; ++i) {
      Succeed(store_->AttachNode(job_, "node" + std::to_string(i),
                                 R"([{"dp_rank":)" + std::to_string(i) + R"(,"pp_rank":0}])", 30));
    }
    EXPECT_THAT(Get(store_->ClaimNodes({{"node1", "abc"}}, 31, 0)), IsEmpty());
    for (const double slowdown : {1.1, 1.0 / 3 + 1, 2.0}) {
      Succeed(store_->PutStraggler({.job = job_,
                                    .dp_rank = 1,
                                    .source = "report",
                                    .slowdown = slowdown,
                                    .starts = 40,
                                    .expires = 4'000'000'000'000},
                                   40));
    }
    const JobRecord job = Job();
    EXPECT_TRUE(Get(store_->PutGuard({.job = job_,
                                      .state = "trial",
                                      .profile_version = job.profile_version,
                                      .target = job.target,
                                      .with_plan = 1.1,
                                      .since = 50},
                                     "", 50)));
    EXPECT_TRUE(Get(store_->PutZeusRank(job_, 0, 0, "{}")));
    TokenRecord token;
    token.id = "t-1";
    token.hash = "1234";
    token.scope = "read";
    Succeed(store_->AddToken(token));
  }
  void ExpectSame(Store& other) {
    EXPECT_EQ(Get(other.FindJob(job_)), Job());
    EXPECT_EQ(Get(other.FindProfile(job_))->csv, Get(store_->FindProfile(job_))->csv);
    EXPECT_EQ(Get(other.FindPlanById("p-1")), Get(store_->FindPlanById("p-1")));
    EXPECT_EQ(Get(other.ListAssignments(job_, 9)), Get(store_->ListAssignments(job_, 9)));
    EXPECT_EQ(Get(other.ListNodesOfJob(job_)).size(), 130U);
    EXPECT_EQ(Get(other.ListStragglers(job_)), Get(store_->ListStragglers(job_)));
    EXPECT_EQ(Get(other.ListPastStragglers(job_, 9)), Get(store_->ListPastStragglers(job_, 9)));
    EXPECT_EQ(Get(other.FindGuard(Job())), Get(store_->FindGuard(Job())));
    EXPECT_EQ(Get(other.ListTokens()), Get(store_->ListTokens()));
    EXPECT_EQ(Get(other.ListAudit({})), Get(store_->ListAudit({})));
    // It goes on: serial keys count from where they were.
    const std::string id =
        Get(other.CreateJob({.key = "new", .body = "{}", .target = ""}, 60)).job.id;
    EXPECT_EQ(Get(other.ListJobs(Store::Which::kRunning, job_, 9)).front().id, id);
    EXPECT_EQ(Get(other.PutProfile(job_, "other", 61)), 2);
  }
};

INSTANTIATE_TEST_SUITE_P(Every, DumpTest, testing::Values(Backend::kSqlite, Backend::kPostgres),
                         NameOf);

TEST_P(DumpTest, IsRestoredInEveryDatabaseWhileTheServerRuns) {
  Fill();
  const DumpSummary saved = Get(Backup(address_, file(), 1000));
  EXPECT_EQ(saved.schema, kSchemaVersion);
  EXPECT_GT(saved.rows(), 260);
  struct stat status {};
  ASSERT_EQ(::stat(file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  std::vector<std::string> targets = {NewSqlite("copy.db")};
  if (PostgresServer::WhyNot().empty()) targets.push_back(SharedPostgres().MakeDatabase());
  for (const std::string& target : targets) {
    EXPECT_EQ(Get(Restore(file(), target)).rows(), saved.rows());
    EXPECT_THAT(Get(CheckStore(target)).problems, IsEmpty());
    // A backup of the copy has the same rows.
    const std::string before = Text();
    Get(Backup(target, file(), 1000));
    EXPECT_TRUE(Text() == before) << "the copy differs";
    const auto again = Restore(file(), target);
    ASSERT_FALSE(again);
    EXPECT_THAT(again.error().message, HasSubstr("restore into a new database"));
    const auto copy = Get(OpenStore(target));
    ExpectSame(*copy);
  }
}

TEST_P(DumpTest, SeesOneMomentWhileRecordsAreWritten) {
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    for (int i = 0; !ends; ++i) {
      const auto made =
          store_->CreateJob({.key = "k" + std::to_string(i), .body = "{}", .target = ""}, i);
      if (!made) ADD_FAILURE() << made.error().message;
    }
  });
  for (int i = 0; i < 3; ++i) {
    Get(Backup(address_, file(), i));
    const std::string copy = NewSqlite("copy" + std::to_string(i));
    Get(Restore(file(), copy));
    // Each job has one audit record. These and their number fit only within one moment.
    const CheckedStore checked = Get(CheckStore(copy));
    EXPECT_THAT(checked.problems, IsEmpty());
    EXPECT_EQ(checked.contents.tables.front().rows, checked.audit_records);
  }
  ends = true;
  writer.join();
}

TEST_P(DumpTest, RefusesWhatIsNoWholeBackup) {
  Fill();
  Get(Backup(address_, file(), 1000));
  const std::string whole = Text();
  const auto refuses = [&](const std::string& text, const std::string& why) {
    Replace(text);
    const std::string target = NewSqlite("refused.db");
    const auto restored = Restore(file(), target);
    ASSERT_FALSE(restored) << why;
    EXPECT_THAT(restored.error().message, HasSubstr(why));
    EXPECT_FALSE(CheckStore(target)) << "nothing was made";
  };
  refuses("", "its end is missing");
  refuses(whole.substr(0, whole.size() / 2), "the line is wrong");
  refuses(whole.substr(0, whole.rfind("{\"end\"")), "its end is missing");
  refuses(whole + "[1]\n", "there is a line after its end");
  std::string edited = whole;
  edited.replace(edited.find("run7"), 4, "run8");
  refuses(edited, "its rows or its hash are wrong");
  std::string newer = whole;
  newer.replace(newer.find("\"schema\":") + 9, 1, "99");
  refuses(newer, "this program knows version");
  EXPECT_FALSE(Restore((directory_ / "missing").string(), NewSqlite("x.db")));
}

TEST_P(DumpTest, ChecksFindWhatWasChanged) {
  Fill();
  EXPECT_THAT(Get(CheckStore(address_)).problems, IsEmpty());
  const auto change = [&](std::string_view sql) {
    store_.reset();
    const auto database = Get(OpenDatabase(address_));
    Succeed(database->Transact([&](Transaction& transaction) -> Result<void> {
      PERSEUS_RETURN_IF_ERROR(transaction.Run(sql, {}));
      return {};
    }));
  };
  change("DELETE FROM plans WHERE id = 'p-2'");
  EXPECT_THAT(Get(CheckStore(address_)).problems,
              testing::ElementsAre(HasSubstr("names plan \"p-2\", which does not exist")));
  change("DELETE FROM audit WHERE number = 2");
  EXPECT_THAT(Get(CheckStore(address_)).problems,
              testing::Contains(HasSubstr("records, but 8 were written")));
}

TEST_P(DumpTest, ABackupOfAnOlderVersionIsUpgraded) {
  constexpr std::int64_t kOlder = 3;
  const std::string older =
      GetParam() == Backend::kPostgres ? SharedPostgres().MakeDatabase() : NewSqlite("older.db");
  {
    const auto database = Get(OpenDatabase(older));
    Succeed(CreateTables(*database, kOlder));
    // Each record of that version had the hash of itself and of the one before.
    Succeed(database->Transact([](Transaction& transaction) {
      return RunAll(transaction,
                    {{"INSERT INTO audit VALUES (1, 1000, 'job.end', 'j-1', 'run7', '', 't-1', "
                      "'ann', 'operator', '', '', '', '', 'it diverged', '5af7c225')",
                      {}},
                     {"UPDATE audit_head SET number = 1, hash = '5af7c225'", {}}});
    }));
  }
  EXPECT_EQ(Get(Backup(older, file(), 1000)).schema, kOlder);
  const std::string upgraded = NewSqlite("upgraded.db");
  Get(Restore(file(), upgraded));
  for (const std::string& address : {older, upgraded}) {
    const auto store = Get(OpenStore(address));
    Get(store->CreateJob({.key = "new", .body = "{}", .target = ""}, 60));
    const auto records = Get(store->ListAudit({}));
    ASSERT_EQ(records.size(), 2U);
    EXPECT_EQ(records[0].by.reason, "it diverged");
    EXPECT_EQ(records[1].number, 2);
    const CheckedStore checked = Get(CheckStore(address));
    EXPECT_EQ(checked.contents.schema, kSchemaVersion);
    EXPECT_THAT(checked.problems, IsEmpty());
  }
}

// It would be lost.
TEST(Dump, ABackupDoesNotReplaceTheDatabase) {
  const TemporaryDirectory directory;
  const std::string file = (directory / "perseus.db").string();
  const auto store = OpenStore("sqlite:" + file);
  ASSERT_TRUE(store);
  std::filesystem::create_symlink(file, directory / "link.db");
  std::filesystem::create_directory(directory / "other");
  for (const std::string& path :
       {file, file + "-wal", file + "-journal", file + ".lock", (directory / "link.db").string(),
        (directory / "other/../perseus.db").string()}) {
    const auto backup = Backup("sqlite:" + file, path, 1);
    ASSERT_FALSE(backup) << path;
    EXPECT_EQ(backup.error().message,
              path + " is a file of the database itself (give the backup another name)");
  }
  EXPECT_TRUE(CheckStore("sqlite:" + file));
  EXPECT_TRUE(Backup("sqlite:" + file, file + ".backup", 1));
}

TEST(Dump, SaysWhatIsNoStore) {
  const TemporaryDirectory directory;
  const std::string missing = "sqlite:" + (directory / "missing.db").string();
  EXPECT_FALSE(Backup(missing, (directory / "backup").string(), 1));
  EXPECT_FALSE(CheckStore(missing));
  EXPECT_FALSE(std::filesystem::exists(directory / "missing.db")) << "it is not made";
  EXPECT_FALSE(std::filesystem::exists(directory / "backup"));
}

}  // namespace
}  // namespace perseus::store
