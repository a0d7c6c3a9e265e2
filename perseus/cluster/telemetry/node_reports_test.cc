// Steps that nodes report, judged by one of two replicas over one database.
#include "perseus/cluster/telemetry/node_reports.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/postgres_server.h"

namespace perseus::telemetry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kNodeReportsJob = R"({"key": "run", "pipelines": 2,
  "schedule": {"kind": "1f1b", "pp_ranks": 4, "microbatches": 12}})";

struct Replica {
  explicit Replica(const std::string& address) : store(*store::OpenStore(address)) {
    const auto listens = store->Listen([this](const store::Notice& notice) {
      if (notice.kind != store::Notice::Kind::kSteps) return;
      const auto taken = reports.TakeFromReplica(*ParseReplicaMessage(notice.name), now);
      EXPECT_TRUE(taken) << taken.error().message;
      ++heard;
    });
    EXPECT_TRUE(listens);
  }
  // Its notices are heard on a thread of the store's, which goes first.
  ~Replica() { store.reset(); }

  std::atomic<store::Milliseconds> now = 0;
  std::atomic<int> heard = 0;
  JobWatches watches;
  std::unique_ptr<store::Store> store;
  NodeReports reports{*store, watches};
};

// Each pipeline has two nodes, the first and the second half of it.
class NodeReportsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!PostgresServer::WhyNot().empty()) GTEST_SKIP() << PostgresServer::WhyNot();
    server_ = std::make_unique<PostgresServer>();
    const std::string address = server_->MakeDatabase();
    one_ = std::make_unique<Replica>(address);
    other_ = std::make_unique<Replica>(address);
    const auto created = one_->store->CreateJob(
        {.key = "run", .body = std::string(kNodeReportsJob), .target = ""}, now_);
    job_ = created->job.id;
    for (const char* node : {"a0", "b0", "a1", "b1"}) Attach(node);
  }

  void Attach(const std::string& node) {
    const std::string ranks = fmt::format(R"([{{"dp_rank": {}, "pp_rank": {}, "tp_rank": 0}}])",
                                          node[1] - '0', node[0] == 'a' ? 0 : 2);
    ASSERT_TRUE(one_->store->AttachNode(job_, node, ranks, now_));
  }
  // Whether it is attached.
  bool Report(Replica& replica, const std::string& node, std::int64_t step, double busy_s) {
    protocol::JobReport report;
    report.job = job_;
    report.steps = {{.step = step,
                     .dp_rank = node[1] - '0',
                     .time_s = 3,
                     .busy_s = busy_s,
                     .energy_j = 100,
                     .version = 1,
                     .ranks = 2}};
    const auto not_attached = replica.reports.Take(node, {report}, now_);
    EXPECT_TRUE(not_attached) << not_attached.error().message;
    return not_attached && not_attached->empty();
  }
  // Nodes of both pipelines at each replica, the first node's at `first`.
  void Steps(Replica& first, Replica& second, int count, double slowdown_of_1) {
    for (int i = 0; i < count; ++i) {
      const std::int64_t step = next_step_++;
      now_ += 3000;
      one_->now = other_->now = now_;
      const int heard = first.heard;
      EXPECT_TRUE(Report(first, "a0", step, 2.9));
      EXPECT_TRUE(Report(second, "b0", step, 2.4));
      EXPECT_TRUE(Report(first, "b1", step, 2.4 * slowdown_of_1));
      EXPECT_TRUE(Report(second, "a1", step, 2.9 * slowdown_of_1));
      // What is not heard in ten seconds is not coming.
      for (int wait = 0; &first != &second && first.heard < heard + 2 && wait < 1000; ++wait) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  }
  std::vector<int> Detected() {
    std::vector<int> pipelines;
    const auto stragglers = one_->store->ListStragglers(job_);
    for (const store::StragglerRecord& straggler : *stragglers) {
      pipelines.push_back(straggler.dp_rank);
    }
    return pipelines;
  }

  std::unique_ptr<PostgresServer> server_;
  std::unique_ptr<Replica> one_;
  std::unique_ptr<Replica> other_;
  store::Milliseconds now_ = 1'000'000;
  std::int64_t next_step_ = 0;
  std::string job_;
};

TEST_F(NodeReportsTest, PipelinesAreHeardWholeHoweverNodesAreSpread) {
  Steps(*one_, *other_, 12, 1);
  EXPECT_THAT(Detected(), IsEmpty());
  EXPECT_EQ((*one_->store->FindJob(job_))->last_step, 11);
  Steps(*one_, *other_, 5, 1.3);
  EXPECT_THAT(Detected(), ElementsAre(1));
  EXPECT_TRUE(other_->watches.Find(job_)->Stragglers().empty()) << "one judges";

  // The first node goes over to the other replica, which takes over what was said.
  for (int i = 0; i < 5; ++i) Report(*other_, "a0", next_step_ - 1, 2.9);
  now_ += 20'000;
  Steps(*other_, *one_, 12, 1.3);
  EXPECT_THAT(Detected(), ElementsAre(1));
  Steps(*other_, *one_, 12, 1);
  EXPECT_THAT(Detected(), IsEmpty());
}

TEST_F(NodeReportsTest, WhoeverJudgesHearsOfNewRanksAndOfWhatWasTakenBack) {
  Steps(*one_, *other_, 12, 1);
  Steps(*one_, *other_, 5, 1.3);
  ASSERT_THAT(Detected(), ElementsAre(1));
  ASSERT_TRUE(*other_->store->DeleteStraggler(job_, 1, "detected", now_));
  ASSERT_TRUE(other_->reports.Forget(job_, 1));
  Steps(*one_, *other_, 5, 1.3);
  EXPECT_THAT(Detected(), ElementsAre(1)) << "it still holds, and is said again";

  ASSERT_TRUE(other_->reports.Restart(job_));
  next_step_ = 0;
  Steps(*one_, *other_, 12, 1);
  EXPECT_THAT(Detected(), IsEmpty());
  EXPECT_EQ(one_->watches.Find(job_)->last_step(), 11);
}

TEST_F(NodeReportsTest, StepsOfANodeThatIsNotAttachedAreNotTaken) {
  EXPECT_FALSE(Report(*one_, "c0", 5, 2.9));
  ASSERT_TRUE(one_->store->DetachNode(job_, "a0"));
  now_ += JobWatch::kReadNodesEvery;
  EXPECT_FALSE(Report(*one_, "a0", 6, 2.9));
  EXPECT_EQ((*one_->store->FindJob(job_))->last_step, -1);
}

// The job goes on without the machines of a1 and b1, and nobody took their ranks back; what runs
// there may go on reporting.
TEST_F(NodeReportsTest, AReplacedNodeKeepsNoStraggler) {
  Steps(*one_, *one_, 12, 1);
  Steps(*one_, *one_, 5, 1.3);
  ASSERT_THAT(Detected(), ElementsAre(1));
  ASSERT_TRUE(one_->store->AttachNode(
      job_, "c1",
      R"([{"dp_rank":1,"pp_rank":0,"tp_rank":0},{"dp_rank":1,"pp_rank":2,"tp_rank":0}])", now_));
  ASSERT_TRUE(one_->reports.Restart(job_));
  for (std::int64_t step = 0; step < 12; ++step) {
    now_ += 3000;
    EXPECT_TRUE(Report(*one_, "a0", step, 2.9));
    EXPECT_TRUE(Report(*one_, "b0", step, 2.4));
    EXPECT_TRUE(Report(*one_, "c1", step, 2.9));
    EXPECT_FALSE(Report(*one_, "a1", 5000, 9)) << "its ranks are elsewhere";
  }
  EXPECT_THAT(Detected(), IsEmpty());
}

TEST(ReplicaMessage, ComesBackWholeFromAsManyTextsAsItTakes) {
  ReplicaMessage heard{.replica = "0123456789abcdef",
                       .job = "j-0123456789abcdef",
                       .node = std::string(253, 'n'),
                       .steps = {},
                       .restarted = false,
                       .forgotten = {}};
  for (int i = 0; i < 100; ++i) {
    heard.steps.push_back({.step = (std::int64_t{1} << 52) + i,
                           .dp_rank = 999'999,
                           .time_s = 1.0 / 3e5,
                           .busy_s = 2.0 / 3e5,
                           .energy_j = 1e11 / 3,
                           .version = std::int64_t{1} << 52,
                           .ranks = 999'999});
  }
  std::vector<protocol::StepReport> steps;
  for (const std::string& text : FormatReplicaMessage(heard)) {
    EXPECT_LE(text.size(), store::Store::kMaxReplicaTextBytes);
    const auto part = ParseReplicaMessage(text);
    ASSERT_TRUE(part) << part.error().message;
    EXPECT_EQ(part->node, heard.node);
    EXPECT_EQ(part->job, heard.job);
    steps.insert(steps.end(), part->steps.begin(), part->steps.end());
  }
  ASSERT_EQ(steps.size(), heard.steps.size());
  EXPECT_EQ(steps.back().step, heard.steps.back().step);
  EXPECT_EQ(steps.back().busy_s, heard.steps.back().busy_s);
  EXPECT_EQ(steps.back().energy_j, heard.steps.back().energy_j);
}

}  // namespace
}  // namespace perseus::telemetry
