// Short labels of instructions, for the slices of a timeline.
#pragma once

#include <string>

#include "perseus/base/instruction_kind.h"

namespace perseus::plan_file {

// "F3" is the forward of microbatch 3. The letters are those of schedule files: F forward, B full
// backward, I dgrad, W wgrad, R recompute. Other kinds have their name: "load 3", or "optimizer" if
// the microbatch is -1.
std::string InstructionLabel(InstructionKind kind, int microbatch);

}  // namespace perseus::plan_file
