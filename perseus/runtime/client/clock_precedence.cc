#include "perseus/runtime/client/clock_precedence.h"

#include <utility>

namespace perseus::client {

ClockPrecedence::ClockPrecedence(Handover<ClockTable>& tables) : tables_(tables) {}

ClockPrecedence::~ClockPrecedence() {
  while (waiting_ != nullptr) TakeFirstWaiting();
}

ClockPrecedence::Change ClockPrecedence::BeginStep(std::int64_t step, Nanoseconds now) {
  AdoptOwn();
  if (Held offered = Hold(tables_.Take())) AddWaiting(std::move(offered));
  while (waiting_ != nullptr && waiting_->from_step <= step) Adopt(TakeFirstWaiting());
  return Choose(step, now);
}

void ClockPrecedence::AdoptOwn() {
  Held table = Hold(own_tables_.Take());
  if (!table) return;
  temporary_.reset();
  lasting_.reset();
  own_ = std::move(table);
}

void ClockPrecedence::AddWaiting(Held table) {
  ClockTable** end = &waiting_;
  while (*end != nullptr && (*end)->from_step < table->from_step) end = &(*end)->next;
  while (*end != nullptr) {
    const Held discarded = Hold(*end);
    *end = discarded->next;
  }
  table->next = nullptr;
  *end = table.release();
}

ClockPrecedence::Held ClockPrecedence::TakeFirstWaiting() {
  Held first = Hold(waiting_);
  waiting_ = first->next;
  return first;
}

void ClockPrecedence::Adopt(Held table) {
  if (table->until_step != 0) {
    temporary_ = std::move(table);
    return;
  }
  temporary_.reset();
  lasting_ = std::move(table);
}

ClockPrecedence::Change ClockPrecedence::Choose(std::int64_t step, Nanoseconds now) {
  if (temporary_ && step >= temporary_->until_step) temporary_.reset();
  Held& assignment = temporary_ ? temporary_ : lasting_;
  const bool follows_own = !assignment || assignment->source == ClockTable::Source::kOwn;
  Held& chosen = follows_own ? own_ : assignment;
  const bool has_expired = chosen && chosen->expires != 0 && now >= chosen->expires;
  if (has_expired) chosen.reset();
  table_ = chosen.get();
  assignment_ = assignment.get();
  return has_expired ? Change::kExpired : Change::kNone;
}

}  // namespace perseus::client
