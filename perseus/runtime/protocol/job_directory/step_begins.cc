// When a step begins: with its first instruction, if the instructions are timed on a stream.
#include <algorithm>
#include <variant>

#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::protocol {
namespace {

std::optional<Nanoseconds> EndOfInstructions(const RanStep& step) {
  std::optional<Nanoseconds> end;
  for (const RanInstruction& ran : step.instructions) {
    end = std::max(end.value_or(0), ran.begin + ran.duration);
  }
  return end ? std::optional(step.begin + *end) : std::nullopt;
}

}  // namespace

void BeginWithFirstInstruction(RanStep& step) {
  if (step.instructions.empty()) return;
  const Nanoseconds shift = std::ranges::min(step.instructions, {}, &RanInstruction::begin).begin;
  if (shift == 0) return;
  step.begin += shift;
  step.end = std::max(step.end, step.begin);  // A damaged log may have any times.
  for (RanInstruction& ran : step.instructions) ran.begin -= shift;
  for (Wait& wait : step.waits) wait.begin -= shift;
  for (EnergySample& sample : step.energy) {
    sample.after -= shift;
    sample.until -= shift;
  }
  for (ClockChange& change : step.clocks) {
    change.requested -= shift;
    if (change.applied != 0) change.applied -= shift;
  }
  for (ReachedClock& clock : step.reached) clock.at -= shift;
  std::erase_if(step.reached, [](const ReachedClock& clock) { return clock.at < 0; });
}

void StepBegins::Correct(RankRecord& record) {
  if (const auto* next = std::get_if<RankHeader>(&record)) {
    if (header && !IsOfSameProcess(*header, *next)) *this = StepBegins();
    header = *next;
  } else if (auto* step = std::get_if<RanStep>(&record)) {
    are_on_stream = are_on_stream || (previous_end && step->begin < *previous_end);
    if (are_on_stream) BeginWithFirstInstruction(*step);
    if (const auto end = EndOfInstructions(*step)) previous_end = end;
  }
}

}  // namespace perseus::protocol
