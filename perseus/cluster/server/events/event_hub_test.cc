// Tests the events that streams receive, with a database in memory. In this test, a stream is a
// text.
#include "perseus/cluster/server/events/event_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <future>
#include <nlohmann/json.hpp>
#include <utility>

namespace perseus::server {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kPlanA = "p-00000000000000aa";
constexpr const char* kPlanB = "p-00000000000000bb";
constexpr const char* kRanksOf0 = R"([{"dp_rank": 0, "pp_rank": 0}])";
constexpr const char* kRanksOfBoth =
    R"([{"dp_rank": 0, "pp_rank": 0}, {"dp_rank": 1, "pp_rank": 0}])";

struct TextStream : http::Stream {
  void Send(std::shared_ptr<const std::string> part) override { text += *part; }
  bool IsOpen() const override { return is_open; }
  void Close() override { is_open = false; }
  void OnClose(std::function<void()> closed) override { on_close = std::move(closed); }

  // Returns the name ("assignment" or "ended") and the data of the events since the last call.
  std::vector<std::pair<std::string, json>> TakeEvents() {
    std::vector<std::pair<std::string, json>> events;
    for (std::size_t end = 0; (end = text.find("\n\n")) != std::string::npos;) {
      const std::string event = text.substr(0, end);
      text.erase(0, end + 2);
      const std::size_t id = event.find("\nid: ");
      const std::size_t data = event.find("\ndata: ");
      last_id = event.substr(id + 5, data - id - 5);
      events.emplace_back(event.substr(7, id - 7), json::parse(event.substr(data + 7)));
    }
    return events;
  }

  std::string text;
  std::string last_id;
  bool is_open = true;
  std::function<void()> on_close;
};

class EventHubTest : public testing::Test {
 protected:
  ~EventHubTest() override {
    hub_->CloseAll();
    pool_.join();
  }

  std::string Register(const std::string& key) {
    return store_->CreateJob({.key = key, .body = "{}", .target = ""}, 1)->job.id;
  }
  // Stores a new assignment: pipeline 0 follows plan A, pipeline 1 follows plan B.
  void Assign(const std::string& job) {
    ASSERT_TRUE(store_->RequestPlanning(job, 1));
    const auto task = store_->ClaimPlanning("w", 1, 1000);
    ASSERT_TRUE(task && *task);
    store::PlannedAssignment assignment;
    assignment.pipelines = {{.plan = kPlanA, .time_s = 1, .energy_j = 1},
                            {.plan = kPlanB, .time_s = 1, .energy_j = 1}};
    store::PlanningOutcome outcome;
    outcome.assignment = std::move(assignment);
    ASSERT_TRUE(store_->CompletePlanning(**task, outcome, 1));
  }
  void Attach(const std::string& job, const char* ranks) {
    ASSERT_TRUE(store_->AttachNode(job, "n0", ranks, 1));
  }
  // Starts a job with an assignment. Its pipeline 0 runs on the node.
  std::string StartJob() {
    std::string job = Register("run");
    Assign(job);
    Attach(job, kRanksOf0);
    return job;
  }
  std::shared_ptr<TextStream> Open(const std::string& last_event_id = "",
                                   const std::string& instance = "a") {
    const store::NodeClaim claim{.node = "n0", .instance = instance};
    EXPECT_THAT(*store_->ClaimNodes({claim}, 1, 0), IsEmpty());
    auto stream = std::make_shared<TextStream>();
    hub_->Open(claim, last_event_id, Identity(), stream);
    Settle();
    return stream;
  }
  void Receive(store::Notice::Kind kind, const std::string& name) {
    hub_->Receive({.kind = kind, .name = name});
    Settle();
  }
  // Runs until neither the loop nor the pool has anything to do.
  void Settle() {
    for (std::size_t ran = 1; ran > 0;) {
      std::promise<void> drained;
      boost::asio::post(pool_, [&drained] { drained.set_value(); });
      drained.get_future().wait();
      loop_.restart();
      ran = loop_.poll();
    }
  }

  std::unique_ptr<store::Store> store_ = *store::OpenStore("sqlite::memory:");
  boost::asio::io_context loop_{1};
  boost::asio::thread_pool pool_{1};
  PlanCuts cuts_{*store_};
  std::shared_ptr<EventHub> hub_ = std::make_shared<EventHub>(
      loop_, pool_, *store_, cuts_, [](const Error& error) { ADD_FAILURE() << error.Message(); });
};

TEST_F(EventHubTest, ANewStreamContinuesAfterTheLastEvent) {
  const std::string job = StartJob();
  const auto first = Open();
  const auto events = first->TakeEvents();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].second["plans"], (json{{"0", kPlanA}}));
  EXPECT_EQ(first->last_id, job + ":1");

  const auto again = Open(first->last_id);
  EXPECT_FALSE(first->is_open);
  EXPECT_THAT(again->TakeEvents(), IsEmpty());
  Assign(job);
  Receive(store::Notice::Kind::kAssignment, job);
  EXPECT_THAT(again->TakeEvents(), SizeIs(1));
  EXPECT_EQ(again->last_id, job + ":2");
  EXPECT_THAT(first->TakeEvents(), IsEmpty());
}

TEST_F(EventHubTest, SendsTheAssignmentAgainForNewRanks) {
  const std::string job = StartJob();
  const auto stream = Open();
  ASSERT_THAT(stream->TakeEvents(), SizeIs(1));
  Attach(job, kRanksOfBoth);
  Receive(store::Notice::Kind::kNode, "n0");
  const auto events = stream->TakeEvents();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].second["version"], 1);
  EXPECT_EQ(events[0].second["plans"], (json{{"0", kPlanA}, {"1", kPlanB}}));
  Receive(store::Notice::Kind::kNode, "n0");
  EXPECT_THAT(stream->TakeEvents(), IsEmpty()) << "the ranks have not changed";
}

TEST_F(EventHubTest, SendsTheEndOfAJobOnce) {
  const std::string job = StartJob();
  const auto stream = Open();
  stream->TakeEvents();
  ASSERT_TRUE(store_->EndJob(job, 2));
  Receive(store::Notice::Kind::kNode, "n0");
  const auto events = stream->TakeEvents();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].first, "ended");
  EXPECT_EQ(events[0].second, (json{{"job", job}, {"key", "run"}}));
  EXPECT_EQ(stream->last_id, job + ":-1");
  Receive(store::Notice::Kind::kReadAgain, "");
  EXPECT_THAT(stream->TakeEvents(), IsEmpty());
  EXPECT_THAT(Open(stream->last_id)->TakeEvents(), IsEmpty());
}

// The node has attached the job, and its stream was broken when the job ended.
TEST_F(EventHubTest, SendsTheEndOfAJobWithoutAnAssignment) {
  const std::string job = Register("run");
  Attach(job, kRanksOf0);
  EXPECT_THAT(Open()->TakeEvents(), IsEmpty());
  ASSERT_TRUE(store_->EndJob(job, 2));
  const auto events = Open(job + ":0")->TakeEvents();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].first, "ended");
}

TEST_F(EventHubTest, ADeletedJobHasEndedAndOtherWordsAreIgnored) {
  const auto stream = Open("j-0:1 j-0123456789abcdef:3 run:2 j-fedcba9876543210:-2 : j-1");
  const auto events = stream->TakeEvents();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].second, (json{{"job", "j-0123456789abcdef"}})) << "its key is unknown";
}

// The job ended in a database that was lost. In the older, restored database it still runs.
TEST_F(EventHubTest, ARestoredJobHasItsAssignment) {
  const std::string job = StartJob();
  EXPECT_THAT(Open(job + ":-1")->TakeEvents(), SizeIs(1));
}

TEST_F(EventHubTest, AClosedStreamLeavesNothing) {
  const std::string job = StartJob();
  const auto first = Open();
  const auto second = Open();
  first->on_close();  // The node has a newer stream, so nothing changes.
  Settle();
  EXPECT_THAT(hub_->Claims(), ElementsAre(store::NodeClaim{.node = "n0", .instance = "a"}));
  second->TakeEvents();
  second->on_close();
  Settle();
  EXPECT_THAT(hub_->Claims(), IsEmpty());
  const store::NodeClaim successor{.node = "n0", .instance = "b"};
  EXPECT_THAT(*store_->ClaimNodes({successor}, 2, 0), IsEmpty()) << "the name is free";
  Assign(job);
  Receive(store::Notice::Kind::kAssignment, job);
  EXPECT_THAT(second->TakeEvents(), IsEmpty());
}

TEST_F(EventHubTest, ReleasesANameWhoseClaimWasRenewedTooLate) {
  const auto stream = Open();
  const std::vector<store::NodeClaim> claims = hub_->Claims();
  stream->on_close();
  Settle();
  hub_->UpdateClaims(claims, *store_->ClaimNodes(claims, 2, 0));
  Settle();
  const store::NodeClaim successor{.node = "n0", .instance = "b"};
  EXPECT_THAT(*store_->ClaimNodes({successor}, 3, 0), IsEmpty());
}

TEST_F(EventHubTest, AStreamIsClosedOnlyIfItsOwnClaimIsLost) {
  const auto first = Open();
  const std::vector<store::NodeClaim> before = hub_->Claims();
  first->on_close();
  Settle();
  const auto second = Open("", "b");
  hub_->UpdateClaims(before, {"n0"});
  Settle();
  EXPECT_TRUE(second->is_open) << "the claim of the closed stream was lost";
  hub_->UpdateClaims(hub_->Claims(), {});
  Settle();
  EXPECT_TRUE(second->is_open);
  hub_->UpdateClaims(hub_->Claims(), {"n0"});
  Settle();
  EXPECT_FALSE(second->is_open);
}

}  // namespace
}  // namespace perseus::server
