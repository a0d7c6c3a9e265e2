#include "perseus/base/instruction_kind.h"

#include <array>
#include <cstddef>

namespace perseus {
namespace {

// Indexed by InstructionKind.
constexpr std::array<std::string_view, 10> kNames = {
    "forward",        "backward", "backward_input", "backward_weight", "recompute",
    "optimizer_step", "load",     "all_reduce",     "optimizer",       "generic"};
static_assert(static_cast<std::size_t>(InstructionKind::kGeneric) + 1 == kNames.size());

}  // namespace

std::string_view Name(InstructionKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::optional<InstructionKind> ParseInstructionKind(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<InstructionKind>(i);
  }
  return std::nullopt;
}

}  // namespace perseus
