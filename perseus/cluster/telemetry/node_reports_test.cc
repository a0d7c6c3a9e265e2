// Tests two replicas that share a database. One of them judges the steps that nodes report to both.
#include "perseus/cluster/telemetry/node_reports.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/postgres_server.h"
#include "tests/support/watched_database.h"

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
      EXPECT_TRUE(taken) << taken.error().Message();
      ++received;
    });
    EXPECT_TRUE(listens);
  }
  // The store calls the listener on its own thread, so the store has to end first.
  ~Replica() { store.reset(); }

  std::atomic<Milliseconds> now{0};
  std::atomic<int> received = 0;
  JobWatches watches;
  std::unique_ptr<store::Store> store;
  NodeReports reports{*store, watches};
};

// A job in which each pipeline has two nodes. One node has the first half of the pipeline, and the
// other node has the second half.
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
  // Returns whether the node is attached.
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
    EXPECT_TRUE(not_attached) << not_attached.error().Message();
    return not_attached && not_attached->empty();
  }
  // Each replica receives reports of both pipelines. `first` receives the reports of the first
  // node.
  void Steps(Replica& first, Replica& second, int count, double slowdown_of_1) {
    for (int i = 0; i < count; ++i) {
      const std::int64_t step = next_step_++;
      now_ += 3000;
      one_->now = other_->now = now_;
      const int received = first.received;
      EXPECT_TRUE(Report(first, "a0", step, 2.9));
      EXPECT_TRUE(Report(second, "b0", step, 2.4));
      EXPECT_TRUE(Report(first, "b1", step, 2.4 * slowdown_of_1));
      EXPECT_TRUE(Report(second, "a1", step, 2.9 * slowdown_of_1));
      // A message that takes longer than ten seconds is lost.
      for (int wait = 0; &first != &second && first.received < received + 2 && wait < 1000;
           ++wait) {
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
  Milliseconds now_ = 1'000'000;
  std::int64_t next_step_ = 0;
  std::string job_;
};

TEST_F(NodeReportsTest, TheJudgeReceivesWholePipelines) {
  Steps(*one_, *other_, 12, 1);
  EXPECT_THAT(Detected(), IsEmpty());
  EXPECT_EQ((*one_->store->FindJob(job_))->last_step, 11);
  Steps(*one_, *other_, 5, 1.3);
  EXPECT_THAT(Detected(), ElementsAre(1));
  EXPECT_TRUE(other_->watches.Find(job_)->Stragglers().empty()) << "only one replica judges";

  // The first node moves to the other replica, which takes over the detected stragglers.
  for (int i = 0; i < 5; ++i) Report(*other_, "a0", next_step_ - 1, 2.9);
  now_ += 20'000;
  Steps(*other_, *one_, 12, 1.3);
  EXPECT_THAT(Detected(), ElementsAre(1));
  Steps(*other_, *one_, 12, 1);
  EXPECT_THAT(Detected(), IsEmpty());
}

TEST_F(NodeReportsTest, TheJudgeReceivesRestarts) {
  Steps(*one_, *other_, 12, 1);
  Steps(*one_, *other_, 5, 1.3);
  ASSERT_THAT(Detected(), ElementsAre(1));
  ASSERT_TRUE(other_->reports.Restart(job_));
  next_step_ = 0;
  Steps(*one_, *other_, 12, 1);
  EXPECT_THAT(Detected(), IsEmpty());
  EXPECT_EQ(one_->watches.Find(job_)->last_step(), 11);
}

TEST_F(NodeReportsTest, IgnoresNodesThatAreNotAttached) {
  EXPECT_FALSE(Report(*one_, "c0", 5, 2.9));
  ASSERT_TRUE(one_->store->DetachNode(job_, "a0"));
  now_ += JobWatch::kReadNodesEvery;
  EXPECT_FALSE(Report(*one_, "a0", 6, 2.9));
  EXPECT_EQ((*one_->store->FindJob(job_))->last_step, -1);
}

// The job continues without the machines of a1 and b1. These nodes were not detached, and may still
// report.
TEST_F(NodeReportsTest, AReplacedNodeLeavesNoStraggler) {
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
    EXPECT_FALSE(Report(*one_, "a1", 5000, 9)) << "another node has its ranks";
  }
  EXPECT_THAT(Detected(), IsEmpty());
}

// Thousands of nodes begin to report within a second. One report reads the nodes of the job for all
// reports.
TEST(NodeReports, ReadNodesOnceForReportsAtTheSameTime) {
  constexpr int kReporting = 8;
  std::atomic<int> reads = 0;
  auto database = std::make_unique<store::WatchedDatabase>();
  database->after_read = [&reads](std::string_view sql) {
    if (sql.find("FROM nodes WHERE job = $1 ORDER BY node") == std::string_view::npos) return;
    ++reads;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // So that the threads overlap.
  };
  store::Store store(std::move(database));
  const std::string job =
      store.CreateJob({.key = "run", .body = std::string(kNodeReportsJob), .target = ""}, 0)
          ->job.id;
  for (int i = 0; i < kReporting; ++i) {
    ASSERT_TRUE(store.AttachNode(
        job, fmt::format("n{}", i),
        fmt::format(R"([{{"dp_rank": {}, "pp_rank": {}, "tp_rank": 0}}])", i / 4, i % 4), 0));
  }
  JobWatches watches;
  NodeReports reports(store, watches);
  std::atomic<int> attached = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kReporting; ++i) {
      threads.emplace_back([&, i] {
        protocol::JobReport report;
        report.job = job;
        const auto not_attached = reports.Take(fmt::format("n{}", i), {report}, 0);
        if (not_attached && not_attached->empty()) ++attached;
      });
    }
  }
  EXPECT_EQ(attached, kReporting);
  EXPECT_EQ(reads, 1);
}

TEST(ReplicaMessage, IsSplitIntoSeveralTexts) {
  ReplicaMessage message{.replica = "0123456789abcdef",
                         .job = "j-0123456789abcdef",
                         .node = std::string(253, 'n'),
                         .steps = {},
                         .restarted = false};
  for (int i = 0; i < 100; ++i) {
    message.steps.push_back({.step = (std::int64_t{1} << 52) + i,
                             .dp_rank = 999'999,
                             .time_s = 1.0 / 3e5,
                             .busy_s = 2.0 / 3e5,
                             .energy_j = 1e11 / 3,
                             .version = std::int64_t{1} << 52,
                             .ranks = 999'999});
  }
  std::vector<protocol::StepReport> steps;
  for (const std::string& text : FormatReplicaMessage(message)) {
    EXPECT_LE(text.size(), store::Store::kMaxReplicaTextBytes);
    const auto part = ParseReplicaMessage(text);
    ASSERT_TRUE(part) << part.error().Message();
    EXPECT_EQ(part->node, message.node);
    EXPECT_EQ(part->job, message.job);
    steps.insert(steps.end(), part->steps.begin(), part->steps.end());
  }
  ASSERT_EQ(steps.size(), message.steps.size());
  EXPECT_EQ(steps.back().step, message.steps.back().step);
  EXPECT_EQ(steps.back().busy_s, message.steps.back().busy_s);
  EXPECT_EQ(steps.back().energy_j, message.steps.back().energy_j);
}

}  // namespace
}  // namespace perseus::telemetry
