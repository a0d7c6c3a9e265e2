#include "perseus/runtime/client/hot_path.h"

#include <algorithm>

#include "perseus/base/clock.h"

namespace perseus::client {
namespace {

// Only one thread writes, so no atomic increment is needed.
template <typename T>
void Bump(std::atomic<T>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace

HotPath::HotPath(Ring<Event>& events, Handover<ClockTable>& tables, HotCounters& counters,
                 HotTrouble& trouble)
    : events_(events),
      counters_(counters),
      trouble_(trouble),
      clocks_(tables),
      learned_(kLongestLearned) {}

void HotPath::ChooseClocks(Nanoseconds now) {
  if (clocks_.BeginStep(next_step_, now) == ClockPrecedence::Change::kExpired) {
    trouble_.has_expired.store(true, std::memory_order_release);
  }
  const ClockTable* const table = clocks_.table();
  const ClockTable* const assignment = clocks_.assignment();
  const bool has_clocks = table != nullptr && table->source != ClockTable::Source::kNone;
  counters_.follows_plan.store(has_clocks, std::memory_order_relaxed);
  counters_.is_recorded.store(assignment == nullptr || assignment->is_recorded,
                              std::memory_order_relaxed);
  counters_.version.store(assignment != nullptr ? assignment->version : 0,
                          std::memory_order_relaxed);
  counters_.slowdown.store(table != nullptr ? table->slowdown : 1, std::memory_order_relaxed);
}

void HotPath::LearnGap(Nanoseconds now) {
  constexpr Nanoseconds kLongestGap = kSecond;  // A longer one is an evaluation or a checkpoint.
  constexpr int kSteps = 8;
  const Nanoseconds ended = counters_.last_step_end.load(std::memory_order_relaxed);
  if (ended == 0) return;
  const Nanoseconds gap = std::clamp<Nanoseconds>(now - ended, 0, kLongestGap);
  const Nanoseconds usual = counters_.usual_gap.load(std::memory_order_relaxed);
  counters_.usual_gap.store(usual == 0 ? gap : usual + (gap - usual) / kSteps,
                            std::memory_order_relaxed);
}

// ---- Which clock ----

int HotPath::ClockAt(std::size_t position) const {
  const std::vector<PlannedClock>& order = clocks_.table()->order;
  return position < order.size() ? order[position].frequency_mhz : kNoChange;
}

// Whether the first clock of the next step is requested before this instruction ends.
bool HotPath::IsLast(std::size_t position) const {
  const ClockTable* const table = clocks_.table();
  return IsFollowingPlan() && table->lead > 0 && position + 1 == table->order.size();
}

HotPath::Return HotPath::ReturnOfClock() const {
  if (!is_in_instruction_ || !IsLast(position_)) return {};
  const ClockTable& table = *clocks_.table();
  return {began_ + table.last_duration - table.lead, table.order.front().frequency_mhz};
}

int HotPath::ClockOfNext() const {
  if (position_ > 0 && IsLast(position_ - 1)) return clocks_.table()->order.front().frequency_mhz;
  if (IsFollowingPlan()) return ClockAt(position_);
  if (!Uses(ClockTable::Source::kKinds) || position_ >= learned_size_) return kNoChange;
  return clocks_.table()->ClockOf(learned_[position_].kind, learned_[position_].chunk);
}

int HotPath::FirstClock() const {
  // Without a plan: the default clock.
  if (clocks_.table() == nullptr || Uses(ClockTable::Source::kNone)) return 0;
  // A step without instructions (a CUDA graph, ROCm) would run at this clock as a whole.
  if (!had_instruction_) return 0;
  return ClockOfNext();
}

void HotPath::LeavePlan(const Instruction* expected, const Instruction* got) {
  is_off_plan_ = true;
  counters_.follows_plan.store(false, std::memory_order_relaxed);
  if (trouble_.is_off_plan.load(std::memory_order_relaxed)) return;
  trouble_.step = next_step_ - 1;
  trouble_.position = position_;
  trouble_.has_expected = expected != nullptr;
  if (expected != nullptr) trouble_.expected = *expected;
  trouble_.has_got = got != nullptr;
  if (got != nullptr) trouble_.got = *got;
  trouble_.is_off_plan.store(true, std::memory_order_release);
}

// ---- The record ----

bool HotPath::Record(const Event& event) {
  if (!is_recorded_) return false;
  // The ring keeps room for the end of the step.
  const bool is_end = event.type == Event::Type::kStepEnd;
  if (events_.HasRoomFor(is_end ? 1 : 2) && events_.Push(event)) return true;
  Drop();
  trouble_.is_full.store(true, std::memory_order_relaxed);
  return false;
}

void HotPath::Drop() {
  is_whole_ = false;
  Bump(counters_.records_dropped);
}

// ---- The calls ----

int HotPath::StepBegin(Nanoseconds now) {
  if (is_in_step_) StepEnd(now);
  LearnGap(now);
  ChooseClocks(now);
  Event begin;
  begin.type = Event::Type::kStepBegin;
  begin.begin = now;
  begin.step = next_step_++;
  const ClockTable* const assignment = clocks_.assignment();
  begin.version = assignment != nullptr ? assignment->version : 0;
  begin.is_recorded = assignment == nullptr || assignment->is_recorded;
  is_recorded_ = events_.HasRoomFor(2);
  if (!is_recorded_) trouble_.is_full.store(true, std::memory_order_relaxed);
  is_whole_ = true;
  static_cast<void>(Record(begin));
  is_in_step_ = true;
  counters_.is_in_step.store(true);
  is_off_plan_ = false;
  position_ = 0;
  return FirstClock();
}

int HotPath::StepEnd(Nanoseconds now) {
  if (!is_in_step_) return kNoChange;
  is_in_instruction_ = false;
  int wanted = kNoChange;
  if (IsFollowingPlan() && position_ < clocks_.table()->order.size()) {
    const PlannedClock& expected = clocks_.table()->order[position_];
    const Instruction missing{expected.kind, expected.microbatch, expected.chunk};
    LeavePlan(&missing, nullptr);
    wanted = 0;
  }
  had_instruction_ = position_ > 0;
  // Such a step (a CUDA graph) may follow another one at the default clock.
  if (!had_instruction_) wanted = 0;
  learned_size_ = position_ < kLongestLearned ? position_ : kLongestLearned;
  Bump(counters_.steps);
  if (is_off_plan_) Bump(counters_.steps_off_plan);
  counters_.is_last_abandoned.store(false, std::memory_order_relaxed);
  FinishStep(now);
  return wanted;
}

int HotPath::StepAbandon(Nanoseconds now) {
  if (!is_in_step_) return kNoChange;
  is_in_instruction_ = false;
  is_whole_ = false;
  Bump(counters_.steps_abandoned);
  counters_.is_last_abandoned.store(true, std::memory_order_relaxed);
  FinishStep(now);
  return 0;
}

void HotPath::FinishStep(Nanoseconds now) {
  Event end;
  end.type = Event::Type::kStepEnd;
  end.begin = now;
  end.has_plan = Uses(ClockTable::Source::kPlan);
  end.on_plan = !is_off_plan_;
  end.is_whole = is_whole_;
  static_cast<void>(Record(end));
  is_in_step_ = false;
  counters_.last_step_end.store(now, std::memory_order_relaxed);
  counters_.is_in_step.store(false);
}

int HotPath::InstructionBegin(const Instruction& what, Nanoseconds now) {
  // An instruction outside of a step belongs to an evaluation, which runs at the default clocks.
  if (!is_in_step_) return 0;
  if (is_in_instruction_) InstructionEnd(now);
  is_in_instruction_ = true;
  what_ = what;
  began_ = now;
  if (IsFollowingPlan()) {
    const std::vector<PlannedClock>& order = clocks_.table()->order;
    if (position_ >= order.size()) {
      // A plan without an optimizer. It has the clock of the last backward.
      if (what.kind == InstructionKind::kOptimizerStep) return kNoChange;
      LeavePlan(nullptr, &what);
      return 0;
    }
    const PlannedClock& planned = order[position_];
    const Instruction expected{planned.kind, planned.microbatch, planned.chunk};
    if (expected == what) return planned.frequency_mhz;
    LeavePlan(&expected, &what);
    return 0;
  }
  if (Uses(ClockTable::Source::kKinds)) return clocks_.table()->ClockOf(what.kind, what.chunk);
  return 0;
}

int HotPath::InstructionEnd(Nanoseconds now) {
  if (!is_in_instruction_) return kNoChange;
  Event event;
  event.type = Event::Type::kInstruction;
  event.begin = began_;
  event.end = now;
  return EndInstruction(event).wanted;
}

HotPath::Ended HotPath::InstructionEndOn(int timing) {
  if (!is_in_instruction_) return {};
  Event event;
  event.type = Event::Type::kStreamInstruction;
  event.timing = timing;
  return EndInstruction(event);
}

void HotPath::AddWait(Nanoseconds begin, Nanoseconds end) {
  Event event;
  event.type = Event::Type::kWait;
  event.begin = begin;
  event.end = end;
  static_cast<void>(Record(event));
}

bool HotPath::AddWaitOn(int timing) {
  Event event;
  event.type = Event::Type::kStreamWait;
  event.timing = timing;
  if (timing != kNoTimes) return Record(event);
  Drop();  // Without its waits, the instruction would look longer than it is.
  return false;
}

HotPath::Ended HotPath::EndInstruction(Event event) {
  is_in_instruction_ = false;
  event.what = what_;
  event.frequency_mhz = frequency_mhz_;
  bool is_taken = false;
  if (event.type == Event::Type::kStreamInstruction && event.timing == kNoTimes) {
    Drop();
  } else {
    is_taken = Record(event);
  }
  Bump(counters_.instructions);
  if (position_ < kLongestLearned) learned_[position_] = what_;
  ++position_;
  return {ClockOfNext(), IsLast(position_ - 1) ? clocks_.table()->lead : 0, is_taken};
}

}  // namespace perseus::client
