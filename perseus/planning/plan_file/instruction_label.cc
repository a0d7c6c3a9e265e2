#include "perseus/planning/plan_file/instruction_label.h"

#include <fmt/format.h>

namespace perseus::plan_file {

std::string InstructionLabel(InstructionKind kind, int microbatch) {
  switch (kind) {
    case InstructionKind::kForward:
      return fmt::format("F{}", microbatch);
    case InstructionKind::kBackward:
      return fmt::format("B{}", microbatch);
    case InstructionKind::kBackwardInput:
      return fmt::format("I{}", microbatch);
    case InstructionKind::kBackwardWeight:
      return fmt::format("W{}", microbatch);
    case InstructionKind::kRecompute:
      return fmt::format("R{}", microbatch);
    default:
      return microbatch < 0 ? std::string(Name(kind))
                            : fmt::format("{} {}", Name(kind), microbatch);
  }
}

}  // namespace perseus::plan_file
