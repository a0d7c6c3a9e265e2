// What fits on a slice of a timeline: the letters that schedules use.
#pragma once

#include <string>

#include "perseus/base/instruction_kind.h"

namespace perseus::plan_file {

// "F3": the forward of microbatch 3; I dgrad, W wgrad, B full backward, R recompute. Others have
// their name, "load 3", "optimizer" (microbatch -1).
std::string InstructionLabel(InstructionKind kind, int microbatch);

}  // namespace perseus::plan_file
