#include "perseus/runtime/tuner/job_logs.h"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::tuner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JobLogsTest : public testing::Test {
 protected:
  JobLogsTest() { std::filesystem::create_directory(directory_ / "ranks"); }

  void Begin(const protocol::RankId& name, int pid = 1) const {
    protocol::RankHeader header;
    header.name = name;
    header.host = "n7";
    header.pid = pid;
    header.epoch = 1;
    std::ofstream(protocol::RankLogPath(directory_, name)) << protocol::FormatRecord(header);
  }
  // Steps take 100 ms. The counter is read in the middle of each step, and grows by 50 J for each
  // step.
  void Add(const protocol::RankId& name, std::int64_t number) const {
    protocol::RanStep step;
    step.step = number;
    step.on_plan = true;
    step.begin = (1 + number * 100) * kMillisecond;
    step.end = step.begin + 99 * kMillisecond;
    step.energy.push_back(
        {50 * kMillisecond, 50 * kMillisecond, 50.0 * static_cast<double>(number)});
    std::ofstream(protocol::RankLogPath(directory_, name), std::ios::app)
        << protocol::FormatRecord(step);
  }
  Result<void> Await(JobLogs& logs, const std::set<protocol::RankId>& ranks, std::int64_t step) {
    return logs.AwaitStep(
        ranks, step, kMillisecond, [] { return false; }, clock_);
  }

  TemporaryDirectory directory_;
  FakeClock clock_;
  const protocol::RankId first_{0, 0, 0};
  const protocol::RankId second_{1, 2, 0};
};

TEST_F(JobLogsTest, ALogThatGrowsIsActive) {
  Begin(first_);
  Add(first_, 0);
  auto logs = ValueOf(JobLogs::Open(directory_, JobLogs::Job::kIsRunning));
  EXPECT_TRUE(logs.Alive().empty());
  Add(first_, 1);
  ASSERT_TRUE(logs.ReadNew());
  EXPECT_THAT(logs.Alive(), ElementsAre(first_));
  EXPECT_EQ(logs.LastStep({first_}), 1);
  EXPECT_NEAR(*logs.StepTime({first_}), 0.1, 1e-12);
  EXPECT_NEAR(*logs.ranks().at(first_).energy.Between(51 * kMillisecond, 101 * kMillisecond), 25,
              1e-9);
}

TEST_F(JobLogsTest, HeaderOfTheSameProcessIsNoRestart) {
  Begin(first_);
  Add(first_, 0);
  auto logs = ValueOf(JobLogs::Open(directory_, JobLogs::Job::kIsRunning));
  protocol::RankHeader lent = logs.ranks().at(first_).header;
  lent.may_set_clocks = true;
  std::ofstream(protocol::RankLogPath(directory_, first_), std::ios::app)
      << protocol::FormatRecord(lent);
  Add(first_, 1);
  ASSERT_TRUE(logs.ReadNew());
  const LoggedRank& rank = logs.ranks().at(first_);
  EXPECT_TRUE(rank.header.may_set_clocks);
  EXPECT_FALSE(rank.has_restarted);
  EXPECT_EQ(rank.steps.size(), 2U);
}

TEST_F(JobLogsTest, RanksThatNeverAppearAreNamedWithTheReason) {
  Begin(first_);
  Add(first_, 0);
  auto logs = JobLogs::Open(directory_, JobLogs::Job::kIsRunning);
  EXPECT_THAT(
      logs->AwaitRanks(
          {first_, second_}, kMillisecond, [] { return false; }, clock_),
      FailsAs(ErrorKind::kSystem,
              ::testing::AllOf(HasSubstr("2 of 2 ranks"),
                               HasSubstr("dp0-pp0-tp0 (its log ends at step 0; process 1 on n7)"),
                               HasSubstr("dp1-pp2-tp0 (no log)"))));
}

TEST_F(JobLogsTest, RankThatStopsIsNamed) {
  for (const protocol::RankId& name : {first_, second_}) Begin(name);
  auto logs = JobLogs::Open(directory_, JobLogs::Job::kIsRunning);
  for (const protocol::RankId& name : {first_, second_}) Add(name, 0);
  EXPECT_TRUE(Await(*logs, {first_, second_}, 0));
  Add(first_, 1);
  EXPECT_THAT(Await(*logs, {first_, second_}, 1),
              FailsWith(::testing::AllOf(HasSubstr("by dp1-pp2-tp0 (its log ends at step 0"),
                                         Not(HasSubstr("dp0-pp0")))));
}

TEST_F(JobLogsTest, RankThatStartsAgainIsNamed) {
  Begin(first_);
  auto logs = JobLogs::Open(directory_, JobLogs::Job::kIsRunning);
  for (int i = 0; i < 4; ++i) Add(first_, i);
  ASSERT_TRUE(Await(*logs, {first_}, 3));
  Begin(first_, 2);
  Add(first_, 0);
  EXPECT_THAT(Await(*logs, {first_}, 4), FailsWith(HasSubstr("dp0-pp0-tp0 has restarted")));
}

TEST_F(JobLogsTest, LogOfAnEarlierRunThatBeginsAgainHasNotRestarted) {
  Begin(first_);
  for (int i = 0; i < 4; ++i) Add(first_, i);
  auto logs = JobLogs::Open(directory_, JobLogs::Job::kIsRunning);
  Begin(first_, 2);
  Add(first_, 0);
  Add(first_, 1);
  const auto waited = Await(*logs, {first_}, 1);
  EXPECT_TRUE(waited) << waited.error().Message();
}

TEST_F(JobLogsTest, HeaderOfTheSameProcessIsAnUpdate) {
  Begin(first_);
  auto logs = JobLogs::Open(directory_, JobLogs::Job::kIsRunning);
  Add(first_, 0);
  ASSERT_TRUE(logs->ReadNew());
  protocol::RankHeader header = logs->ranks().at(first_).header;
  EXPECT_FALSE(header.may_set_clocks);
  header.may_set_clocks = true;
  std::ofstream(protocol::RankLogPath(directory_, first_), std::ios::app)
      << protocol::FormatRecord(header);
  Add(first_, 1);
  EXPECT_TRUE(Await(*logs, {first_}, 1));
  EXPECT_TRUE(logs->ranks().at(first_).header.may_set_clocks);
  EXPECT_NE(logs->ranks().at(first_).Find(0), nullptr);
}

TEST_F(JobLogsTest, RankThatWasReplacedAloneIsNamed) {
  for (const protocol::RankId& name : {first_, second_}) Begin(name);
  auto logs = JobLogs::Open(directory_, JobLogs::Job::kIsRunning);
  for (int i = 5000; i < 5003; ++i) Add(first_, i);
  for (int i = 0; i < 3; ++i) Add(second_, i);
  EXPECT_THAT(logs->AwaitRanks(
                  {first_, second_}, kMillisecond, [] { return false; }, clock_),
              FailsWith(::testing::AllOf(HasSubstr("rank dp1-pp2-tp0 is at step 2"),
                                         HasSubstr("step 5002"))));
}

// A reader reads 16 MiB at a time.
TEST_F(JobLogsTest, LogsOfAnySizeAreReadToTheirEnd) {
  Begin(first_);
  const std::string long_remark =
      protocol::FormatRecord(protocol::Remark{std::string(1U << 20U, 'x')});
  for (int i = 0; i < 20; ++i) {
    std::ofstream(protocol::RankLogPath(directory_, first_), std::ios::app) << long_remark;
  }
  for (int i = 0; i < 4; ++i) Add(first_, i);
  const auto over = JobLogs::Open(directory_, JobLogs::Job::kIsOver);
  EXPECT_EQ(over->LastStep({first_}), 3);
  auto running = JobLogs::Open(directory_, JobLogs::Job::kIsRunning);
  EXPECT_EQ(running->LastStep({first_}), 3);
  ASSERT_TRUE(running->ReadNew());
  EXPECT_TRUE(running->Alive().empty());
}

TEST_F(JobLogsTest, WrongLineOfAnInactiveRankIsSkipped) {
  Begin(first_);
  Add(first_, 0);
  std::ofstream(protocol::RankLogPath(directory_, first_), std::ios::app) << "{\"step\":}\n";
  Add(first_, 1);
  auto logs = ValueOf(JobLogs::Open(directory_, JobLogs::Job::kIsRunning));
  EXPECT_EQ(logs.LastStep({first_}), 1);
  EXPECT_THAT(logs.ranks().at(first_).remarks.back(), HasSubstr("dp0-pp0-tp0.jsonl:3"));
}

TEST_F(JobLogsTest, MissingDirectoryIsAnError) {
  EXPECT_THAT(JobLogs::Open(directory_ / "no", JobLogs::Job::kIsRunning).error().Message(),
              HasSubstr("is not a directory"));
  EXPECT_THAT(JobLogs::Open(directory_, JobLogs::Job::kIsOver).error().Message(),
              HasSubstr("has no rank log"));
}

TEST_F(JobLogsTest, ForgetsPastRecords) {
  Begin(first_);
  for (int i = 0; i < 10; ++i) Add(first_, i);
  auto logs = JobLogs::Open(directory_, JobLogs::Job::kIsOver);
  logs->ForgetBefore(7);
  const LoggedRank& rank = logs->ranks().at(first_);
  EXPECT_EQ(rank.Find(5), nullptr);
  ASSERT_NE(rank.Find(7), nullptr);
  EXPECT_EQ(rank.Find(7)->step, 7);
}

}  // namespace
}  // namespace perseus::tuner
