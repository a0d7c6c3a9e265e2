// Checks that a schedule computes everything that an iteration needs, each instruction once.
// (BuildInstructionGraph checks that its order can run.)
#pragma once

#include <optional>
#include <string>

#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule {

struct ScheduleDefect {
  int pp_rank = 0;
  std::string message;  // Cause and remedy.
};

// For every microbatch, every stage has to run one forward, either one full backward or one dgrad
// and one wgrad, and at most one recompute, all on the pp_rank that holds the stage. Returns the
// first defect, by stage and microbatch. Time and memory are proportional to the number of
// instructions, whatever numbers they contain.
std::optional<ScheduleDefect> FindDefect(const Schedule& schedule);

// "forward of microbatch 3 (stage 2)".
std::string Describe(const Instruction& instruction);

}  // namespace perseus::schedule
