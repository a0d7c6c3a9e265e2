#include "perseus/runtime/client/hot_path.h"

namespace perseus::client {
namespace {

// One writer, so no locked instruction is needed.
template <typename T>
void Bump(std::atomic<T>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace

HotPath::HotPath(Ring<Event>& events, Handover<ClockTable>& tables, HotCounters& counters,
                 HotTrouble& trouble)
    : events_(events),
      tables_(tables),
      counters_(counters),
      trouble_(trouble),
      learned_(kLongestLearned) {}

HotPath::~HotPath() {
  for (ClockTable* const held : {temporary_, lasting_, own_, next_own_}) tables_.Retire(held);
  while (waiting_ != nullptr) {
    ClockTable* const first = waiting_;
    waiting_ = first->next;
    tables_.Retire(first);
  }
}

// ---- Which plan ----

void HotPath::AddWaiting(ClockTable* table) {
  // The new table replaces all waiting tables that do not begin earlier.
  ClockTable** end = &waiting_;
  while (*end != nullptr && (*end)->from_step < table->from_step) end = &(*end)->next;
  while (*end != nullptr) {
    ClockTable* const superseded = *end;
    *end = superseded->next;
    tables_.Retire(superseded);
  }
  table->next = nullptr;
  *end = table;
}

void HotPath::Replace(ClockTable*& place, ClockTable* table) {
  tables_.Retire(place);
  place = table;
}

void HotPath::Follow(ClockTable* table) { Replace(next_own_, table); }

// A plan that the program itself chooses replaces all assignments in force. Assignments that begin
// at a later step still take effect.
void HotPath::AdoptOwn() {
  if (next_own_ == nullptr) return;
  Replace(temporary_, nullptr);
  Replace(lasting_, nullptr);
  Replace(own_, next_own_);
  next_own_ = nullptr;
}

void HotPath::Adopt(ClockTable* table) {
  if (table->until_step != 0) return Replace(temporary_, table);
  Replace(temporary_, nullptr);
  Replace(lasting_, table);
}

void HotPath::ChooseTable(Nanoseconds now) {
  if (temporary_ != nullptr && next_step_ >= temporary_->until_step) Replace(temporary_, nullptr);
  assignment_ = temporary_ != nullptr ? temporary_ : lasting_;
  ClockTable*& chosen = assignment_ == nullptr || assignment_->source == ClockTable::Source::kOwn
                            ? own_
                        : temporary_ != nullptr ? temporary_
                                                : lasting_;
  if (chosen != nullptr && chosen->expires != 0 && now >= chosen->expires) {
    if (assignment_ == chosen) assignment_ = nullptr;
    Replace(chosen, nullptr);
    trouble_.has_expired.store(true, std::memory_order_release);
  }
  table_ = chosen;
}

void HotPath::AdoptTables(Nanoseconds now) {
  AdoptOwn();
  if (ClockTable* const offered = tables_.Take(); offered != nullptr) AddWaiting(offered);
  while (waiting_ != nullptr && waiting_->from_step <= next_step_) {
    ClockTable* const first = waiting_;
    waiting_ = first->next;
    Adopt(first);
  }
  ChooseTable(now);
  const bool has_clocks = table_ != nullptr && table_->source != ClockTable::Source::kNone;
  counters_.follows_plan.store(has_clocks, std::memory_order_relaxed);
  counters_.is_recorded.store(assignment_ == nullptr || assignment_->is_recorded,
                              std::memory_order_relaxed);
  counters_.version.store(assignment_ != nullptr ? assignment_->version : 0,
                          std::memory_order_relaxed);
  counters_.slowdown.store(table_ != nullptr ? table_->slowdown : 1, std::memory_order_relaxed);
}

// ---- Which clock ----

int HotPath::ClockAt(std::size_t position) const {
  return position < table_->order.size() ? table_->order[position].frequency_mhz : kNoChange;
}

int HotPath::ClockOfNext() const {
  if (IsFollowingPlan()) return ClockAt(position_);
  if (!IsUsingKinds() || position_ >= learned_size_) return kNoChange;
  return table_->ClockOf(learned_[position_].kind, learned_[position_].chunk);
}

int HotPath::FirstClock() const {
  // Without a plan: the default clock.
  if (table_ == nullptr || table_->source == ClockTable::Source::kNone) return 0;
  return ClockOfNext();
}

void HotPath::LeavePlan(const Computation* expected, const Computation* got) {
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
  // The step's end needs a place, too.
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
  AdoptTables(now);
  Event begin;
  begin.type = Event::Type::kStepBegin;
  begin.begin = now;
  begin.step = next_step_++;
  begin.version = assignment_ != nullptr ? assignment_->version : 0;
  begin.is_recorded = assignment_ == nullptr || assignment_->is_recorded;
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
  if (IsFollowingPlan() && position_ < table_->order.size()) {
    const PlannedClock& expected = table_->order[position_];
    const Computation missing{expected.kind, expected.microbatch, expected.chunk};
    LeavePlan(&missing, nullptr);
    wanted = 0;
  }
  learned_size_ = position_ < kLongestLearned ? position_ : kLongestLearned;
  Bump(counters_.steps);
  if (is_off_plan_) Bump(counters_.steps_off_plan);
  Event end;
  end.type = Event::Type::kStepEnd;
  end.begin = now;
  end.on_plan = !is_off_plan_;
  end.is_whole = is_whole_;
  static_cast<void>(Record(end));
  is_in_step_ = false;
  counters_.last_step_end.store(now, std::memory_order_relaxed);
  counters_.is_in_step.store(false);
  return wanted;
}

int HotPath::InstructionBegin(const Computation& what, Nanoseconds now) {
  // Outside of a step it is an evaluation, which is to run as without us.
  if (!is_in_step_) return 0;
  if (is_in_instruction_) InstructionEnd(now);
  is_in_instruction_ = true;
  what_ = what;
  began_ = now;
  if (IsFollowingPlan()) {
    if (position_ >= table_->order.size()) {
      LeavePlan(nullptr, &what);
      return 0;
    }
    const PlannedClock& planned = table_->order[position_];
    const Computation expected{planned.kind, planned.microbatch, planned.chunk};
    if (expected == what) return planned.frequency_mhz;
    LeavePlan(&expected, &what);
    return 0;
  }
  if (IsUsingKinds()) return table_->ClockOf(what.kind, what.chunk);
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
  return {ClockOfNext(), is_taken};
}

}  // namespace perseus::client
