// Whether a schedule computes everything that an iteration needs, each thing once. Whether its
// order can run at all is for BuildInstructionGraph to find out.
#pragma once

#include <optional>
#include <string>

#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule {

struct ScheduleDefect {
  int rank = 0;         // Where to look.
  std::string message;  // Cause and remedy.
};

// Every stage runs, for every microbatch, one forward, either one full backward or one dgrad and
// one wgrad, and at most one recompute, all on the rank the stage lives on. Returns the first
// defect, by stage and microbatch. Takes time and memory proportional to the instructions, whatever
// numbers are in them.
std::optional<ScheduleDefect> FindDefect(const Schedule& schedule);

// "forward of microbatch 3 (stage 2)".
std::string Describe(const Instruction& instruction);

}  // namespace perseus::schedule
