// The clocks of one rank, compiled from a plan or an assignment, so that a training thread only has
// to look them up. A table does not change once it is made.
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
#include "perseus/runtime/protocol/assignment.h"

namespace perseus::client {

struct PlannedClock {
  InstructionKind kind = InstructionKind::kForward;
  int microbatch = 0;
  int chunk = 0;
  int frequency_mhz = 0;  // 0: what the GPU had before.
};

struct ClockTable {
  enum class Source {
    kNone,   // The clocks that the GPU had before.
    kPlan,   // `order`.
    kKinds,  // `kind_clocks`, whatever the order.
    kOwn,    // Of assignment: the session's own plan, or none.
  };
  static constexpr int kKinds = 5;  // That a profile measures, from 0.

  Source source = Source::kNone;
  std::vector<PlannedClock> order;
  std::vector<int> kind_clocks;  // [chunk * kKinds + kind]; 0: what the GPU had before.

  std::int64_t version = 0;     // Of the assignment; 0: none.
  std::int64_t from_step = 0;   // Holds from the first step on that is not before this one.
  std::int64_t until_step = 0;  // Assignment that are temporary end there; 0: they last.
  bool is_own = false;          // The session's own plan, not of assignment.
  Nanoseconds expires = 0;      // CLOCK_MONOTONIC; 0: never.
  bool is_recorded = true;      // Whether its steps are written to the rank's log.
  double slowdown = 1;          // Of an iteration, on purpose; 1 to 100.
  std::string name;             // Of the plan's file.

  ClockTable* next = nullptr;  // Of whoever holds it.

  // For Source::kKinds.
  int ClockOf(InstructionKind kind, int chunk) const {
    const std::size_t at =
        static_cast<std::size_t>(chunk) * kKinds + static_cast<std::size_t>(kind);
    return at < kind_clocks.size() ? kind_clocks[at] : 0;
  }
};

// What `rank` does of the plan in the text; Source::kNone if the file was cut down to other ranks,
// so that another has to come. Fails (kInput) if it is not a plan, is one of a general graph, or
// has no such rank; `name` is its file's.
Result<ClockTable> CompilePlan(std::string_view text, std::string_view name, int rank);
// What concerns `rank` of the clocks, of 1 to 4,096 chunks. (Assignment that parse have no others.)
ClockTable CompileClocks(std::span<const protocol::KindClock> clocks, int rank);

// The nearest of the GPU's clocks that is not slower; its fastest if all are. `sm_clocks_mhz`:
// ascending. 0 stays 0.
int NearestFaster(std::span<const int> sm_clocks_mhz, int frequency_mhz);

}  // namespace perseus::client
