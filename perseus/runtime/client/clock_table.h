// The clocks of one rank, compiled from a plan or an assignment, so that a training thread only has
// to look them up. A table does not change once a step follows it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/runtime/client/handover.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"

namespace perseus::client {

struct PlannedClock {
  InstructionKind kind = InstructionKind::kForward;
  int microbatch = 0;
  int chunk = 0;
  int frequency_mhz = 0;  // 0: the default clock.
};

struct ClockTable {
  enum class Source {
    kNone,   // The default clocks.
    kPlan,   // `order`.
    kKinds,  // `kind_clocks`, in any order.
    kOwn,    // An assignment says that the session's own plan, if any, is in force.
  };
  static constexpr int kKinds = kComputationKinds;

  Source source = Source::kNone;
  std::vector<PlannedClock> order;
  std::vector<int> kind_clocks;  // [chunk * kKinds + kind]; 0: the default clock.

  std::int64_t version = 0;     // The version of the assignment; 0: none.
  std::int64_t from_step = 0;   // The assignment is in force from this step on.
  std::int64_t until_step = 0;  // A temporary assignment ends at this step; 0: a lasting one.
  Nanoseconds expires = 0;      // CLOCK_MONOTONIC; 0: never.
  bool is_recorded = true;      // Whether its steps are written to the rank log.
  double slowdown = 1;          // The planned slowdown of an iteration, 1 to 100.
  // How long before the end of the last instruction the first clock of the next step is requested,
  // and the planned time of that instruction. 0: the next step requests its first clock.
  Nanoseconds lead = 0;
  Nanoseconds last_duration = 0;
  std::string name;  // The name of the plan file.

  ClockTable* next = nullptr;  // For the owner's list.

  // For Source::kKinds.
  int ClockOf(InstructionKind kind, int chunk) const {
    const std::size_t at =
        static_cast<std::size_t>(chunk) * kKinds + static_cast<std::size_t>(kind);
    return at < kind_clocks.size() ? kind_clocks[at] : 0;
  }
};

// The clocks of `rank` in the plan. If the plan ends with the step of an optimizer at a lower clock
// than that of the first instruction, the next step follows at once, without a pipeline. So its
// first clock has a lead over the switch latency. If the optimizer is shorter than the lead, its
// clock is not lowered.
//
// Source::kNone if the file has only the instructions of other
// ranks. Fails (kInput) if the text is not a plan, is a plan of a general graph, has no such rank,
// or is for another number of ranks than `pp_ranks` (0: unknown). `name` is the name of the file.
Result<ClockTable> CompilePlan(std::string_view text, std::string_view name, int rank,
                               int pp_ranks = 0);
// The clocks of `rank`, for up to 4,096 chunks.
ClockTable CompileClocks(std::span<const protocol::KindClock> clocks, int rank);

// The nearest clock of the GPU that is not below `frequency_mhz`, or its highest clock if all are
// below. `sm_clocks_mhz`: ascending. 0 stays 0.
int NearestFaster(std::span<const int> sm_clocks_mhz, int frequency_mhz);

// Decides which clocks each step of a session follows. The first of these that exists is in force:
//
//   1. the temporary assignment, until the step at which it ends
//   2. the lasting assignment
//   3. the session's own plan (PERSEUS_PLAN, perseus_use_plan)
//
// An assignment with Source::kOwn says that the session's own plan is in force. If none of the
// three exists, the GPU keeps its default clocks.
//
// What changes them, always at the beginning of a step:
//
//   an assignment's from_step   A temporary assignment replaces the temporary one. A lasting
//                               assignment replaces both.
//   a new own plan              It replaces the session's own plan and both assignments, at the
//                               next step. Assignments that begin at a later step still take
//                               effect.
//   a table's expiry            The expired table is dropped. The session follows no table for one
//                               step. Then it follows the next table in the list above.
//
// An assignment that begins at a later step waits. A newer assignment discards all waiting
// assignments that begin at the same step or later.
//
// The class owns the tables that it holds. It returns each table to the Handover (handover.h),
// whose other thread frees the table. So no call except SetOwn allocates or frees memory, and none
// takes a lock or makes a system call.
//
// Thread safety: one thread at a time, the user thread of the Handover. Any thread may call SetOwn.

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
