#include "perseus/runtime/tuner/schedule_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace perseus::tuner {
namespace {

std::string Describe(const MatchedInstruction& instruction, const schedule::Schedule& schedule) {
  const bool has_chunks = schedule.stages() > static_cast<int>(schedule.pp_ranks.size());
  return fmt::format("{} of microbatch {}{}", Name(instruction.kind), instruction.microbatch,
                     has_chunks ? fmt::format(" on chunk {}", instruction.chunk) : "");
}

std::vector<MatchedInstruction> ComputationsOf(const schedule::Schedule& schedule, int rank) {
  std::vector<MatchedInstruction> matched;
  for (const schedule::Instruction& instruction :
       schedule.pp_ranks[static_cast<std::size_t>(rank)]) {
    if (!IsComputation(instruction.kind)) continue;
    const int chunk = schedule.chunk_of_stage[static_cast<std::size_t>(instruction.stage)];
    matched.push_back({instruction.kind, instruction.microbatch, chunk});
  }
  return matched;
}

std::size_t MicrobatchesOf(const std::vector<MatchedInstruction>& instructions) {
  std::set<int> microbatches;
  for (const MatchedInstruction& instruction : instructions)
    microbatches.insert(instruction.microbatch);
  return microbatches.size();
}

}  // namespace

std::vector<MatchedInstruction> ComputationsOf(const protocol::RanStep& step) {
  std::vector<protocol::RanInstruction> instructions = step.instructions;
  std::ranges::stable_sort(instructions, {}, &protocol::RanInstruction::begin);
  std::vector<MatchedInstruction> matched;
  for (const protocol::RanInstruction& instruction : instructions) {
    if (!IsComputation(instruction.kind)) continue;
    matched.push_back({instruction.kind, instruction.microbatch, instruction.chunk});
  }
  return matched;
}

Result<void> CheckRanSchedule(const schedule::Schedule& schedule, const protocol::RankId& name,
                              const protocol::RanStep& step) {
  const std::vector<MatchedInstruction> wanted = ComputationsOf(schedule, name.pp_rank);
  const std::vector<MatchedInstruction> ran = ComputationsOf(step);
  if (ran == wanted) return {};
  if (ran.empty()) {
    return Fail(
        "rank {} recorded step {} without an instruction (does the training code report forward "
        "and backward to the client library?)",
        Name(name), step.step);
  }
  if (const std::size_t count = MicrobatchesOf(ran); count != MicrobatchesOf(wanted)) {
    return Fail(
        "rank {} ran {} microbatches in step {}, but the job file has {} (correct "
        "`microbatches`)",
        Name(name), count, step.step, schedule.microbatches);
  }
  const auto [at_ran, at_wanted] = std::ranges::mismatch(ran, wanted);
  return Fail(
      "rank {} ran {} as number {} of step {}, but the schedule {} has {} (is this the job's "
      "schedule?)",
      Name(name), at_ran == ran.end() ? "nothing" : Describe(*at_ran, schedule),
      at_ran - ran.begin() + 1, step.step, schedule.name,
      at_wanted == wanted.end() ? "nothing" : Describe(*at_wanted, schedule));
}

Result<void> CheckRunsSchedule(const schedule::Schedule& schedule, const protocol::RankId& name,
                               const LoggedRank& rank) {
  Result<void> checked;
  for (const protocol::RanStep& step : rank.steps) {
    checked = CheckRanSchedule(schedule, name, step);
    if (checked) return checked;
  }
  return checked;
}

}  // namespace perseus::tuner
