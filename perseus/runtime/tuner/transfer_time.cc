#include "perseus/runtime/tuner/transfer_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "perseus/runtime/tuner/ran_schedule.h"

namespace perseus::tuner {
namespace {

// Times on the clock of the rank's host.
struct RunTime {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  // The time at which the rank ended its previous instruction, or began the step.
  Nanoseconds free_since = 0;
};
using RunTimes = std::map<MatchedInstruction, RunTime>;

RunTimes RunTimesOf(const protocol::RanStep& step) {
  std::vector<protocol::RanInstruction> instructions = step.instructions;
  std::ranges::stable_sort(instructions, {}, &protocol::RanInstruction::begin);
  RunTimes times;
  Nanoseconds free_since = step.begin;
  for (const protocol::RanInstruction& one : instructions) {
    const Nanoseconds begin = step.begin + one.begin;
    const RunTime time{begin, begin + one.duration, free_since};
    if (IsComputation(one.kind)) times[{one.kind, one.microbatch, one.chunk}] = time;
    free_since = time.end;
  }
  return times;
}

struct Message {
  Nanoseconds took = 0;    // The time from the sender's end to the receiver's start.
  Nanoseconds waited = 0;  // How long the receiver was free before its start.
  // The receiving instruction.
  InstructionKind kind = InstructionKind::kForward;
  int chunk = 0;
};
// The messages of one direction between two ranks.
using Messages = std::vector<Message>;
using Direction = std::pair<protocol::RankId, protocol::RankId>;  // Sender and receiver.

void Match(const RunTimes::value_type* sent, const RunTimes::value_type* received,
           Messages& messages) {
  if (sent == nullptr || received == nullptr) return;
  const auto& [what, time] = *received;
  messages.push_back(
      {time.begin - sent->second.end, time.begin - time.free_since, what.kind, what.chunk});
}

const RunTimes::value_type* Find(const RunTimes& times, const MatchedInstruction& instruction) {
  const auto found = times.find(instruction);
  return found == times.end() ? nullptr : &*found;
}

// Finds the instruction that receives a gradient from the next stage, and sends a gradient to the
// previous stage.
const RunTimes::value_type* FindBackward(const RunTimes& times, int microbatch, int chunk) {
  const auto* split = Find(times, {InstructionKind::kBackwardInput, microbatch, chunk});
  return split != nullptr ? split : Find(times, {InstructionKind::kBackward, microbatch, chunk});
}

class TransferClock {
 public:
  TransferClock(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                const schedule::Schedule& schedule)
      : logs_(logs), ranks_(ranks), schedule_(schedule) {}

  void Add(std::int64_t step) {
    std::map<protocol::RankId, RunTimes> times;
    for (const protocol::RankId& name : ranks_) {
      if (const auto* ran = logs_.ranks().at(name).Find(step)) times[name] = RunTimesOf(*ran);
    }
    for (const auto& [name, first] : times) {
      for (int stage = 0; stage + 1 < schedule_.stages(); ++stage) {
        if (RankOf(stage) != name.pp_rank || RankOf(stage + 1) == name.pp_rank) continue;
        const auto next = times.find({name.dp_rank, RankOf(stage + 1), name.tp_rank});
        if (next != times.end()) AddBoundary(stage, *times.find(name), *next);
      }
    }
  }

  std::optional<Nanoseconds> Mean() const {
    Nanoseconds sum = 0;
    Nanoseconds pairs = 0;
    for (const auto& [direction, forth] : messages_) {
      const auto& [from, to] = direction;
      if (to < from) continue;  // The other direction includes this pair.
      const auto time = TimeOf(forth, messages_.at({to, from}), IsOneHost(from, to));
      if (!time) continue;
      sum += *time;
      ++pairs;
    }
    if (pairs == 0) return std::nullopt;
    return std::max<Nanoseconds>(0, sum / pairs);
  }

  // The groups of receiving instructions that wait inside. Clocks of different hosts differ by more
  // than instructions wait.
  std::vector<WaitingInstructions> Waits() const {
    std::map<std::tuple<int, int, InstructionKind>, WaitingInstructions> groups;
    for (const auto& [direction, messages] : messages_) {
      const auto& [from, to] = direction;
      if (!IsOneHost(from, to)) continue;
      for (const Message& message : messages) {
        WaitingInstructions& group = groups[{to.pp_rank, message.chunk, message.kind}];
        ++group.of;
        if (message.took >= -kNoWait) continue;
        ++group.waited;
        group.mean -= message.took;
      }
    }
    std::vector<WaitingInstructions> found;
    for (auto& [place, group] : groups) {
      if (group.waited * 10 < group.of || group.waited == 0) continue;
      std::tie(group.pp_rank, group.chunk, group.kind) = place;
      group.mean /= group.waited;  // The value was the sum.
      found.push_back(group);
    }
    return found;
  }

 private:
  using RankTimes = std::pair<const protocol::RankId, RunTimes>;

  int RankOf(int stage) const {
    return schedule_.pp_rank_of_stage[static_cast<std::size_t>(stage)];
  }
  int ChunkOf(int stage) const { return schedule_.chunk_of_stage[static_cast<std::size_t>(stage)]; }

  // Adds the messages between a stage and the next stage.
  void AddBoundary(int stage, const RankTimes& first, const RankTimes& next) {
    const int chunk = ChunkOf(stage);
    const int next_chunk = ChunkOf(stage + 1);
    Messages& forth = messages_[{first.first, next.first}];
    Messages& back = messages_[{next.first, first.first}];
    for (int microbatch = 0; microbatch < schedule_.microbatches; ++microbatch) {
      Match(Find(first.second, {InstructionKind::kForward, microbatch, chunk}),
            Find(next.second, {InstructionKind::kForward, microbatch, next_chunk}), forth);
      Match(FindBackward(next.second, microbatch, next_chunk),
            FindBackward(first.second, microbatch, chunk), back);
    }
  }

  bool IsOneHost(const protocol::RankId& a, const protocol::RankId& b) const {
    return logs_.ranks().at(a).header.host == logs_.ranks().at(b).header.host;
  }

  // Returns the median of the messages whose receiver waited. The receiver's clock is ahead by
  // `ahead`.
  static std::optional<Nanoseconds> MedianOf(const Messages& messages, Nanoseconds ahead) {
    std::vector<Nanoseconds> times;
    for (const Message& message : messages) {
      const Nanoseconds took = message.took - ahead;
      if (took <= message.waited) times.push_back(took);
    }
    if (times.empty()) return std::nullopt;
    const auto middle = times.begin() + std::ssize(times) / 2;
    std::ranges::nth_element(times, middle);
    return *middle;
  }

  static std::optional<Nanoseconds> TimeOf(const Messages& forth, const Messages& back,
                                           bool is_one_host) {
    Nanoseconds ahead = 0;
    if (!is_one_host) {
      if (forth.empty() || back.empty()) return std::nullopt;
      ahead = (std::ranges::min(forth, {}, &Message::took).took -
               std::ranges::min(back, {}, &Message::took).took) /
              2;
    }
    const auto there = MedianOf(forth, ahead);
    const auto here = MedianOf(back, -ahead);
    if (there && here) return (*there + *here) / 2;
    if (!is_one_host) return std::nullopt;
    return there ? there : here;
  }

  const JobLogs& logs_;
  const std::set<protocol::RankId>& ranks_;
  const schedule::Schedule& schedule_;
  std::map<Direction, Messages> messages_;
};

}  // namespace

std::vector<WaitingInstructions> FindWaits(const JobLogs& logs,
                                           const std::set<protocol::RankId>& ranks,
                                           const schedule::Schedule& schedule, std::int64_t first,
                                           std::int64_t last) {
  TransferClock clock(logs, ranks, schedule);
  for (std::int64_t step = first; step <= last; ++step) clock.Add(step);
  return clock.Waits();
}

std::string DescribeWaits(const std::vector<WaitingInstructions>& waits) {
  if (waits.empty()) return {};
  constexpr std::size_t kMostGroups = 4;
  std::vector<std::string> groups;
  for (std::size_t i = 0; i < std::min(waits.size(), kMostGroups); ++i) {
    const WaitingInstructions& group = waits[i];
    groups.push_back(fmt::format("{} of pp_rank {}{} ({} of {}, {:.3g} ms)", Name(group.kind),
                                 group.pp_rank,
                                 group.chunk == 0 ? "" : fmt::format(" on chunk {}", group.chunk),
                                 group.waited, group.of, ToSeconds(group.mean) * 1000));
  }
  if (waits.size() > kMostGroups) {
    groups.push_back(fmt::format("{} more", waits.size() - kMostGroups));
  }
  return fmt::format(
      "instructions begin before their input is computed, so their times contain waits for other "
      "ranks, and plans from these times are wrong: {} (begin an instruction after its receive)",
      fmt::join(groups, ", "));
}

std::optional<Nanoseconds> TransferTime(const JobLogs& logs,
                                        const std::set<protocol::RankId>& ranks,
                                        const schedule::Schedule& schedule, std::int64_t first,
                                        std::int64_t last) {
  TransferClock clock(logs, ranks, schedule);
  for (std::int64_t step = first; step <= last; ++step) clock.Add(step);
  return clock.Mean();
}

}  // namespace perseus::tuner
