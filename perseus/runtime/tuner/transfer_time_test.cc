#include "perseus/runtime/tuner/transfer_time.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <tuple>

#include "tests/support/temporary_directory.h"

namespace perseus::tuner {
namespace {

using schedule::Instruction;

// A job that runs each instruction when its rank is free and its input has arrived. Each rank has
// its own host, whose clock is wrong.
class TransferTimeTest : public testing::Test {
 protected:
  static constexpr Nanoseconds kForwardTime = 10 * kMillisecond;
  static constexpr Nanoseconds kStepTime = 1000 * kMillisecond;

  TransferTimeTest() { std::filesystem::create_directory(directory_ / "ranks"); }

  static schedule::Schedule Generate(const char* name, int pp_ranks, int chunks = 1) {
    return schedule::GenerateSchedule({name, pp_ranks, 8, chunks}).value();
  }

  // Writes steps 0 to 3 of the schedule. `ahead`: the time by which the clock of a pp_rank is ahead
  // of the clock of pp_rank 0.
  void Run(const schedule::Schedule& schedule, Nanoseconds transfer,
           const std::vector<Nanoseconds>& ahead, const std::vector<std::string>& hosts) {
    std::map<protocol::RankId, std::string> logs;
    for (int rank = 0; rank < std::ssize(schedule.pp_ranks); ++rank) {
      protocol::RankHeader header;
      header.name = {0, rank, 0};
      header.host = hosts[static_cast<std::size_t>(rank)];
      header.pid = 1;
      logs[header.name] = protocol::FormatRecord(header);
    }
    for (std::int64_t number = 0; number < 4; ++number) {
      const Nanoseconds begin = (number + 1) * kStepTime;
      Execute(schedule, transfer);
      for (auto& [name, log] : logs) {
        protocol::RanStep step;
        step.step = number;
        step.begin = begin + ahead[static_cast<std::size_t>(name.pp_rank)];
        step.end = step.begin + kStepTime;
        step.instructions = ran_[name.pp_rank];
        log += protocol::FormatRecord(step);
      }
    }
    for (const auto& [name, log] : logs) {
      std::ofstream(protocol::RankLogPath(directory_, name)) << log;
    }
  }

  std::optional<Nanoseconds> Measure(const schedule::Schedule& schedule) const {
    const auto logs = JobLogs::Open(directory_, JobLogs::Job::kIsOver).value();
    return TransferTime(logs, RanksOf(1, static_cast<int>(schedule.pp_ranks.size()), 1), schedule,
                        0, 3);
  }

  std::vector<WaitingInstructions> Waits(const schedule::Schedule& schedule) const {
    const auto logs = JobLogs::Open(directory_, JobLogs::Job::kIsOver).value();
    return FindWaits(logs, RanksOf(1, static_cast<int>(schedule.pp_ranks.size()), 1), schedule, 0,
                     3);
  }

  static std::vector<std::string> Hosts(int count) {
    std::vector<std::string> hosts;
    for (int i = 0; i < count; ++i) hosts.push_back("n" + std::to_string(i));
    return hosts;
  }

  int receive_in_forward_of_ = -1;  // The pp_rank whose forwards contain the receive.

 private:
  using Output = std::tuple<InstructionKind, int, int>;  // Kind, stage and microbatch.

  static Nanoseconds TimeOf(InstructionKind kind) {
    return kind == InstructionKind::kBackward ? 2 * kForwardTime : kForwardTime;
  }

  // Returns the time at which the input of the instruction was sent, or nullopt if the input is not
  // ready yet.
  std::optional<Nanoseconds> SentAt(const schedule::Schedule& schedule, const Instruction& one,
                                    Nanoseconds transfer) const {
    const bool is_forward = one.kind == InstructionKind::kForward;
    const int from = is_forward ? one.stage - 1 : one.stage + 1;
    if (one.kind == InstructionKind::kBackwardWeight || from < 0 || from == schedule.stages()) {
      return 0;
    }
    for (const InstructionKind kind :
         {one.kind, InstructionKind::kBackward, InstructionKind::kBackwardInput}) {
      if (is_forward != (kind == InstructionKind::kForward)) continue;
      const auto found = ended_.find({kind, from, one.microbatch});
      if (found == ended_.end()) continue;
      const auto rank_of = [&](int stage) {
        return schedule.pp_rank_of_stage[static_cast<std::size_t>(stage)];
      };
      return found->second + (rank_of(from) == rank_of(one.stage) ? 0 : transfer);
    }
    return std::nullopt;
  }

  void Execute(const schedule::Schedule& schedule, Nanoseconds transfer) {
    ended_.clear();
    ran_.clear();
    std::vector<std::size_t> next(schedule.pp_ranks.size());
    std::vector<Nanoseconds> free(schedule.pp_ranks.size());
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (std::size_t rank = 0; rank < next.size(); ++rank) {
        for (; next[rank] < schedule.pp_ranks[rank].size(); ++next[rank]) {
          const Instruction& one = schedule.pp_ranks[rank][next[rank]];
          const auto sent = SentAt(schedule, one, transfer);
          if (!sent) break;
          const bool receives = static_cast<int>(rank) == receive_in_forward_of_ &&
                                one.kind == InstructionKind::kForward;
          const Nanoseconds start = std::max(free[rank], *sent);
          const Nanoseconds begin = receives ? free[rank] : start;
          free[rank] = start + TimeOf(one.kind);
          ended_[{one.kind, one.stage, one.microbatch}] = free[rank];
          const int chunk = schedule.chunk_of_stage[static_cast<std::size_t>(one.stage)];
          ran_[static_cast<int>(rank)].push_back(
              {one.kind, one.microbatch, chunk, begin, free[rank] - begin, 1000});
          goes_on = true;
        }
      }
    }
  }

  TemporaryDirectory directory_;
  std::map<Output, Nanoseconds> ended_;
  std::map<int, std::vector<protocol::RanInstruction>> ran_;  // By pp_rank.
};

TEST_F(TransferTimeTest, IsThatOfTheMessages) {
  for (const Nanoseconds transfer : {Nanoseconds{0}, kMillisecond, 7 * kMillisecond}) {
    for (const char* name : {"1f1b", "gpipe", "zb-h1"}) {
      const schedule::Schedule schedule = Generate(name, 4);
      Run(schedule, transfer, {0, 0, 0, 0}, {"n", "n", "n", "n"});
      EXPECT_EQ(Measure(schedule), transfer) << name;
    }
  }
}

TEST_F(TransferTimeTest, IsThatOfTheMessagesBetweenChunks) {
  for (const char* name : {"interleaved-1f1b", "zb-v"}) {
    const schedule::Schedule schedule = Generate(name, 4, 2);
    Run(schedule, 3 * kMillisecond, {0, 0, 0, 0}, {"n", "n", "n", "n"});
    EXPECT_EQ(Measure(schedule), 3 * kMillisecond) << name;
  }
}

// The clocks differ by more than the duration of a message.
TEST_F(TransferTimeTest, DoesNotDependOnTheClocksOfHosts) {
  for (const char* name : {"1f1b", "zb-h1"}) {
    const schedule::Schedule schedule = Generate(name, 4);
    Run(schedule, 2 * kMillisecond, {0, 40 * kMillisecond, -3 * kMillisecond, kStepTime}, Hosts(4));
    EXPECT_EQ(Measure(schedule), 2 * kMillisecond) << name;
  }
}

TEST_F(TransferTimeTest, AnInstructionThatWaitsForItsInputIsFound) {
  for (const char* name : {"1f1b", "zb-h1"}) {
    const schedule::Schedule schedule = Generate(name, 4);
    receive_in_forward_of_ = 2;
    Run(schedule, kMillisecond, {0, 0, 0, 0}, {"n", "n", "n", "n"});
    const auto waits = Waits(schedule);
    ASSERT_EQ(waits.size(), 1U) << name;
    EXPECT_EQ(waits[0].pp_rank, 2);
    EXPECT_EQ(waits[0].kind, InstructionKind::kForward);
    EXPECT_EQ(waits[0].of, 4 * 8);  // Steps and microbatches.
    EXPECT_GE(waits[0].waited, 4);
    // The first forward of each step waits until stage 1 ends. The mean wait is rounded down.
    EXPECT_GT((waits[0].mean + 1) * waits[0].waited, 4 * (2 * kForwardTime + kMillisecond));
    EXPECT_THAT(DescribeWaits(waits), testing::HasSubstr("forward of pp_rank 2 ("));
  }
}

TEST_F(TransferTimeTest, AJobThatReceivesBeforeAnInstructionHasNoWaits) {
  for (const char* name : {"1f1b", "gpipe", "zb-h1"}) {
    const schedule::Schedule schedule = Generate(name, 4);
    Run(schedule, 0, {0, 0, 0, 0}, {"n", "n", "n", "n"});
    EXPECT_THAT(Waits(schedule), testing::IsEmpty()) << name;
  }
  const schedule::Schedule folded = Generate("zb-v", 4, 2);
  Run(folded, 0, {0, 0, 0, 0}, {"n", "n", "n", "n"});
  EXPECT_THAT(Waits(folded), testing::IsEmpty());
  EXPECT_EQ(DescribeWaits({}), "");
}

// The clocks of the hosts differ by more than the time for which instructions wait.
TEST_F(TransferTimeTest, RanksOfDifferentHostsAreNotCompared) {
  const schedule::Schedule schedule = Generate("1f1b", 4);
  Run(schedule, 0, {0, -40 * kMillisecond, 0, 0}, Hosts(4));
  EXPECT_THAT(Waits(schedule), testing::IsEmpty());
}

TEST_F(TransferTimeTest, NoMessagesHaveNoTime) {
  const schedule::Schedule schedule = Generate("1f1b", 1);
  Run(schedule, kMillisecond, {0}, Hosts(1));
  EXPECT_EQ(Measure(schedule), std::nullopt);
}

}  // namespace
}  // namespace perseus::tuner
