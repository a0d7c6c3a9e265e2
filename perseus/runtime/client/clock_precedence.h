// Decides which clocks each step of a session follows. The first of these that exists is in force:
//
//   1. the temporary assignment, until the step at which it ends
//   2. the lasting assignment
//   3. the session's own plan (PERSEUS_PLAN, perseus_use_plan)
//
// An assignment with Source::kOwn says that the own plan is in force. If there is none of these,
// the GPU keeps its default clocks.
//
// What changes them, always at the begin of a step:
//
//   an assignment's from_step   A temporary assignment replaces the temporary one. A lasting
//                               assignment replaces both.
//   a new own plan              It replaces the own plan and both assignments, at the next step.
//                               Assignments that begin at a later step still take effect.
//   a table's expiry            The expired table is dropped. The session then follows no clocks
//                               for one step, and the next one in the list after that.
//
// An assignment that begins at a later step waits. A newer one discards all waiting ones that begin
// at its own step or later.
//
// The class owns the tables that it holds. It returns each one to the handover, whose other thread
// frees it. So no call except SetOwn allocates or frees memory, and none takes a lock or makes a
// system call.
//
// Thread safety: one thread at a time, the user of the handover. Any thread may call SetOwn.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "perseus/base/units.h"
#include "perseus/runtime/client/clock_table.h"
#include "perseus/runtime/client/handover.h"

namespace perseus::client {

class ClockPrecedence {
 public:
  // Takes the tables of assignments from `tables`, which has to outlive this object.
  explicit ClockPrecedence(Handover<ClockTable>& tables);
  ClockPrecedence(const ClockPrecedence&) = delete;
  ClockPrecedence& operator=(const ClockPrecedence&) = delete;
  ~ClockPrecedence();

  // The session's own plan from the next step on. A table with Source::kNone means no plan.
  void SetOwn(std::unique_ptr<ClockTable> table) { own_tables_.Offer(std::move(table)); }

  enum class Change { kNone, kExpired };
  // Chooses the table of the step. Steps count upwards. Returns whether a table expired.
  Change BeginStep(std::int64_t step, Nanoseconds now);

  // The clocks in force. Null: the default clocks.
  const ClockTable* table() const { return table_; }
  // The assignment in force. Null: none. With Source::kOwn, table() is another table.
  const ClockTable* assignment() const { return assignment_; }

 private:
  struct Retire {
    Handover<ClockTable>* tables;
    void operator()(ClockTable* table) const { tables->Retire(table); }
  };
  using Held = std::unique_ptr<ClockTable, Retire>;

  Held Hold(ClockTable* table) { return Held(table, Retire{&tables_}); }
  void AdoptOwn();
  void AddWaiting(Held table);
  Held TakeFirstWaiting();
  void Adopt(Held table);
  Change Choose(std::int64_t step, Nanoseconds now);

  Handover<ClockTable>& tables_;
  ClockTable* waiting_ = nullptr;  // Owned, a list by `next` with ascending from_step.
  Held temporary_ = Hold(nullptr);
  Held lasting_ = Hold(nullptr);
  Held own_ = Hold(nullptr);
  Handover<ClockTable> own_tables_;  // Set during the current step.

  const ClockTable* table_ = nullptr;
  const ClockTable* assignment_ = nullptr;
};

}  // namespace perseus::client
