// The clocks of one rank, compiled from a plan or an assignment, so that a training thread only has
// to look them up. A table does not change once a step follows it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/plan_file/plan_file.h"
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
    kOwn,    // An assignment says that the session's own plan is in force, if it has one.
  };
  static constexpr int kKinds = 5;  // The kinds that a profile measures, from 0.

  Source source = Source::kNone;
  std::vector<PlannedClock> order;
  std::vector<int> kind_clocks;  // [chunk * kKinds + kind]; 0: the default clock.

  std::int64_t version = 0;     // Of the assignment; 0: none.
  std::int64_t from_step = 0;   // The assignment is in force from this step on.
  std::int64_t until_step = 0;  // A temporary assignment ends at this step; 0: a lasting one.
  Nanoseconds expires = 0;      // CLOCK_MONOTONIC; 0: never.
  bool is_recorded = true;      // Whether its steps are written to the rank log.
  double slowdown = 1;          // Planned, of an iteration; 1 to 100.
  std::string name;             // Of the plan file.

  ClockTable* next = nullptr;  // For the owner's list.

  // For Source::kKinds.
  int ClockOf(InstructionKind kind, int chunk) const {
    const std::size_t at =
        static_cast<std::size_t>(chunk) * kKinds + static_cast<std::size_t>(kind);
    return at < kind_clocks.size() ? kind_clocks[at] : 0;
  }
};

// The clocks of `rank` in the plan. Source::kNone if the file has only the instructions of other
// ranks. Fails (kInput) if the text is not a plan, is a plan of a general graph, has no such rank,
// or is for another number of ranks than `pp_ranks` (0: unknown). `name` is the name of the file.
Result<ClockTable> CompilePlan(std::string_view text, std::string_view name, int rank,
                               int pp_ranks = 0);
// The clocks of `rank`, of up to 4,096 chunks.
ClockTable CompileClocks(std::span<const protocol::KindClock> clocks, int rank);

// The nearest clock of the GPU that is not slower, or its fastest if all are slower.
// `sm_clocks_mhz`: ascending. 0 stays 0.
int NearestFaster(std::span<const int> sm_clocks_mhz, int frequency_mhz);

}  // namespace perseus::client
