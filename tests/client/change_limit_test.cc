// Tests the limit on clock changes with a real agent, virtual GPUs and several sessions, in virtual
// time: what reaches the GPUs, and what the sessions skip.
#include <gmock/gmock.h>

#include <atomic>
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
constexpr double kLimit = 24;  // Changes per second of the node.

class ChangeLimitTest : public ClientTest {
 protected:
  ChangeLimitTest() {
    Write("node.toml", "name = \"box\"\ngpus = 8\nclock = \"" +
                           (directory_ / "job.clock").string() +
                           "\"\n[gpu]\nmodel = \"a100-sxm\"\n[switch_latency]\nmedian_ms = 1\n");
    auto node = virtual_gpu::VirtualNode::Open(directory_ / "node.toml");
    EXPECT_TRUE(node) << node.error().message;
    node_ = std::make_unique<virtual_gpu::VirtualNode>(*std::move(node));
    // 16 changes in a step of 0.8 s, which are 20 per second. The valleys become deeper, so the
    // first ones save least.
    plan_ = PlanWithClocks({1305, 1410, 1260, 1410, 1215, 1410, 1170, 1410,  //
                            1125, 1410, 1080, 1410, 1035, 1410, 990, 1410});
    Nanoseconds begin = 0;
    for (plan_file::PlannedInstruction& instruction : plan_.pp_ranks[0].instructions) {
      instruction.start = begin;
      instruction.duration = kInstructionTime;
      instruction.energy_j = instruction.frequency_mhz / 100;
      begin += kInstructionTime;
    }
    plan_.time = begin;
  }

  void Open() {
    // From now on, time passes only in Wait(). Otherwise, a busy machine could make a pause of a
    // second between steps, after which a session requests the default clock.
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

  // All ranks side by side.
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

  struct Counted {
    std::uint64_t switches = 0;   // Of all GPUs.
    std::uint64_t postponed = 0;  // By the agent.
    std::vector<std::uint64_t> skipped;
  };
  Counted Count() const {
    Counted counted;
    for (std::size_t gpu = 0; gpu < ranks_.size(); ++gpu) {
      const auto listed = Listed(static_cast<int>(gpu));
      counted.switches += listed.at("switches").get<std::uint64_t>();
      counted.postponed += listed.at("postponed").get<std::uint64_t>();
      counted.skipped.push_back(ranks_[gpu]->Counters().changes_skipped);
    }
    return counted;
  }

  // Runs steps until each rank makes that many changes in a step. The background thread of a new
  // session takes part in the time only once it has started.
  void Settle(int changes) {
    const auto skips = static_cast<std::uint64_t>(kInstructions - changes);
    EXPECT_TRUE(Comes([&] {
      std::vector<std::uint64_t> before;
      for (const auto& rank : ranks_) before.push_back(rank->Counters().changes_skipped);
      RunSteps(1);
      bool is_settled = true;
      for (std::size_t gpu = 0; gpu < ranks_.size(); ++gpu) {
        is_settled &= ranks_[gpu]->Counters().changes_skipped - before[gpu] == skips;
      }
      return is_settled;
    }));
    // The agent's bucket fills again, and the measured time of a step replaces the planned one.
    RunSteps(6);
  }

  // In the end, each rank makes that many changes in a step, and the agent postpones none.
  void ExpectChangesPerStep(int changes) {
    constexpr int kSteps = 10;
    Settle(changes);
    const Counted before = Count();
    RunSteps(kSteps);
    const Counted after = Count();
    const auto of_all =
        static_cast<std::uint64_t>(ranks_.size() * kSteps) * static_cast<std::uint64_t>(changes);
    EXPECT_EQ(after.switches - before.switches, of_all);
    EXPECT_LE(static_cast<double>(of_all), kLimit * kSteps * kStepSeconds);
    EXPECT_EQ(after.postponed - before.postponed, 0U);
    for (std::size_t gpu = 0; gpu < ranks_.size(); ++gpu) {
      EXPECT_EQ(after.skipped[gpu] - before.skipped[gpu],
                static_cast<std::uint64_t>(kSteps * (kInstructions - changes)));
      EXPECT_EQ(ranks_[gpu]->Counters().steps_off_plan, 0U);
    }
  }

  std::unique_ptr<virtual_gpu::VirtualNode> node_;
  plan_file::PlanFile plan_;
  std::shared_ptr<void> part_;
  std::vector<std::unique_ptr<RankSession>> ranks_;
};

// The share of each rank is 24, 12 and 8 changes per second. 95 % of them are 18, 9 and 6 changes
// in a step. A valley begins and ends with one, so their number is even.
TEST_F(ChangeLimitTest, RanksSkipWhatTheyHaveToAndTheAgentPostponesNothing) {
  StartAgent({"--max-changes", "24"});
  Open();
  ExpectChangesPerStep(16);
  EXPECT_EQ(ranks_[0]->Counters().changes_skipped, 0U);
  EXPECT_THAT(ranks_[0]->Warnings(), IsEmpty());
  Open();
  ExpectChangesPerStep(8);
  EXPECT_THAT(
      ranks_[0]->Warnings(),
      HasSubstr("the agent allows this GPU 12 clock changes per second, and the plan has 16 "
                "in a step of 0.8 s; 8 of them, which save least, are skipped."));
  Open();
  ExpectChangesPerStep(6);
  EXPECT_EQ(Listed(0).at("most_changes_per_s"), 8);
  const std::string table = RunProgram({"gpu", "list", "--socket", socket()});
  EXPECT_THAT(table, HasSubstr("most per s"));
  EXPECT_THAT(table, HasSubstr("postponed"));
  ranks_.pop_back();
  ExpectChangesPerStep(8);
  ranks_.pop_back();
  ExpectChangesPerStep(16);
  EXPECT_THAT(ranks_[0]->Warnings(), IsEmpty()) << "one warning for each cause";
}

// The deepest valleys remain.
TEST_F(ChangeLimitTest, TheChangesThatSaveMostRemain) {
  StartAgent({"--max-changes", "5"});
  Open();
  Settle(2);
  std::vector<int> clocks;
  perseus_step_begin(ranks_[0]->get());
  for (int i = 0; i < kInstructions; ++i) {
    ranks_[0]->Begin(i < kMicrobatches ? PERSEUS_FORWARD : PERSEUS_BACKWARD, i % kMicrobatches);
    Wait(kInstructionTime);
    clocks.push_back(node_->Look(0)->reading.requested_lock->upper);
    ranks_[0]->End();
  }
  perseus_step_end(ranks_[0]->get());
  // 3.8 changes in a step: one valley.
  std::vector<int> expected(kInstructions, 1410);
  expected[14] = 990;
  EXPECT_EQ(clocks, expected);
}

TEST_F(ChangeLimitTest, WithoutALimitNothingIsSkipped) {
  StartAgent();
  Open();
  RunSteps(6);
  const Counted counted = Count();
  EXPECT_EQ(counted.switches, 6U * kInstructions);
  EXPECT_EQ(counted.skipped[0], 0U);
  EXPECT_EQ(Listed(0).at("most_changes_per_s"), 0);
  EXPECT_THAT(RunProgram({"gpu", "list", "--socket", socket()}), Not(HasSubstr("postponed")));
}

}  // namespace
}  // namespace perseus
