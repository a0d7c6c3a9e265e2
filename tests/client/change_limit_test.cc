// Tests the limit on clock changes with a real agent, virtual GPUs and sessions, in virtual time:
// which changes reach the GPUs, and who reports a plan that is over the limit.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "perseus/simulation/virtual_gpu/virtual_node.h"
#include "tests/client/client_test.h"

namespace perseus {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kMicrobatches = 8;
constexpr int kInstructions = 2 * kMicrobatches;
constexpr Nanoseconds kInstructionTime = 50 * kMillisecond;
constexpr double kStepSeconds = 0.8;

class ChangeLimitTest : public ClientTest {
 protected:
  ChangeLimitTest() {
    Write("node.toml", "name = \"box\"\ngpus = 8\nclock = \"" +
                           (directory_ / "job.clock").string() +
                           "\"\n[gpu]\nmodel = \"a100-sxm\"\n[switch_latency]\nmedian_ms = 1\n");
    auto node = virtual_gpu::VirtualNode::Open(directory_ / "node.toml");
    EXPECT_TRUE(node) << node.error().Message();
    node_ = std::make_unique<virtual_gpu::VirtualNode>(*std::move(node));
    // The plan has 16 changes in a step of 0.8 s: 20 changes per second.
    plan_ = PlanWithClocks({1305, 1410, 1260, 1410, 1215, 1410, 1170, 1410,  //
                            1125, 1410, 1080, 1410, 1035, 1410, 990, 1410});
  }

  void Open() {
    // From now on, time passes only in Wait(). Otherwise, a busy machine could make a pause of a
    // second between steps. After such a pause, a session requests the default clock.
    if (!part_) part_ = node_->clock()->TakePart(Clock::Part::kLeads);
    const int gpu = static_cast<int>(ranks_.size());
    RankSession::Place place = PlaceWithPlan(plan_);
    place.gpu = Uuid(gpu);
    place.dp_rank = gpu;
    ranks_.push_back(std::make_unique<RankSession>(place));
    EXPECT_EQ(ranks_.back()->Counters().may_set_clocks, 1) << Read("agent.log");
  }

  void Wait(Nanoseconds time) {
    const Nanoseconds until = node_->clock()->Now() + time;
    const std::atomic<std::uint32_t> never = 0;
    while (node_->clock()->Now() < until) node_->clock()->WaitWhile(never, 0, until);
  }

  // Runs steps of all ranks side by side.
  void RunSteps(int count) {
    for (int step = 0; step < count; ++step) {
      for (const auto& rank : ranks_) perseus_step_begin(rank->get());
      for (int i = 0; i < kInstructions; ++i) {
        const int kind = i < kMicrobatches ? PERSEUS_FORWARD : PERSEUS_BACKWARD;
        for (const auto& rank : ranks_) rank->Begin(kind, i % kMicrobatches);
        Wait(kInstructionTime / 2);
        for (std::size_t gpu = 0; gpu < ranks_.size(); ++gpu) ExpectNotBelowPlan(gpu, i);
        Wait(kInstructionTime / 2);
        for (const auto& rank : ranks_) rank->End();
      }
      for (const auto& rank : ranks_) perseus_step_end(rank->get());
    }
  }

  void ExpectNotBelowPlan(std::size_t gpu, int instruction) {
    const auto view = node_->Look(static_cast<int>(gpu));
    ASSERT_TRUE(view);
    const auto& lock = view->reading.requested_lock;
    ASSERT_TRUE(lock);
    ASSERT_GE(lock->upper, ClockOf(plan_, static_cast<std::size_t>(instruction)))
        << "GPU " << gpu << ", instruction " << instruction;
  }

  int ReportsInLog() const {
    const std::string log = Read("agent.log");
    int count = 0;
    for (std::size_t at = 0; (at = log.find("more often than the limit", at)) != log.npos; ++at) {
      ++count;
    }
    return count;
  }

  std::unique_ptr<virtual_gpu::VirtualNode> node_;
  plan_file::PlanFile plan_;
  std::shared_ptr<void> part_;
  std::vector<std::unique_ptr<RankSession>> ranks_;
};

TEST_F(ChangeLimitTest, APlanOverTheLimitIsNotSlowedAndIsReportedOnce) {
  constexpr int kSteps = 20;
  constexpr double kLimit = 12;
  StartAgent({"--max-changes", "12"});
  Open();
  RunSteps(kSteps);
  // At first, the bucket holds the changes of one second. In the end, it may lack two changes.
  EXPECT_LE(Listed(0).at("switches"), kLimit * kSteps * kStepSeconds + kLimit + 2);
  const auto postponed = Listed(0).at("postponed").get<std::uint64_t>();
  EXPECT_GT(postponed, 20U);
  EXPECT_TRUE(Comes([&] {
    Wait(10 * kMillisecond);
    return ranks_[0]->Counters().changes_skipped == postponed;
  }));
  EXPECT_EQ(ranks_[0]->Counters().steps_off_plan, 0U);
  EXPECT_THAT(ranks_[0]->Warnings(),
              HasSubstr("the plan changes the clock more often than the agent allows"));
  EXPECT_TRUE(Comes([&] { return ReportsInLog() == 1; })) << Read("agent.log");
  EXPECT_THAT(Read("agent.log"), HasSubstr("which is 12 changes per second here"));
  RunSteps(2);
  EXPECT_THAT(ranks_[0]->Warnings(), IsEmpty());
  ranks_.clear();
  EXPECT_EQ(ReportsInLog(), 1);
}

// Two ranks with a share of 24 changes per second each.
TEST_F(ChangeLimitTest, APlanWithinTheLimitIsFollowed) {
  StartAgent({"--max-changes", "48"});
  Open();
  Open();
  RunSteps(6);
  for (int gpu = 0; gpu < 2; ++gpu) {
    EXPECT_EQ(Listed(gpu).at("switches"), 6 * kInstructions);
    EXPECT_EQ(Listed(gpu).at("postponed"), 0);
    EXPECT_EQ(Listed(gpu).at("most_changes_per_s"), 24);
    EXPECT_THAT(ranks_[static_cast<std::size_t>(gpu)]->Warnings(), IsEmpty());
  }
  EXPECT_EQ(ReportsInLog(), 0);
  const std::string table = RunProgram({"gpu", "list", "--socket", socket()});
  EXPECT_THAT(table, HasSubstr("most per s"));
  EXPECT_THAT(table, HasSubstr("postponed"));
}

TEST_F(ChangeLimitTest, WithoutALimitNothingIsSkipped) {
  StartAgent();
  Open();
  RunSteps(6);
  EXPECT_EQ(Listed(0).at("switches"), 6 * kInstructions);
  EXPECT_EQ(ranks_[0]->Counters().changes_skipped, 0U);
  EXPECT_EQ(Listed(0).at("most_changes_per_s"), 0);
  EXPECT_THAT(RunProgram({"gpu", "list", "--socket", socket()}), Not(HasSubstr("postponed")));
}

}  // namespace
}  // namespace perseus
