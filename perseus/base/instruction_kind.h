// The kinds of instructions that a GPU of a pipeline runs in an iteration.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace perseus {

enum class InstructionKind : std::uint8_t {
  // A profile measures these. Their time and energy depend on the clock.
  kForward,
  kBackward,        // The full backward pass.
  kBackwardInput,   // dgrad: only the gradient of the activations.
  kBackwardWeight,  // wgrad: only the gradient of the weights.
  kRecompute,       // A second forward pass, for activations that were not kept.
  // Fixed instructions: no clock changes their time.
  kLoad,
  kAllReduce,
  kOptimizer,
  // An instruction of a general graph.
  kGeneric,
};

// The name in files: "forward", "backward", "backward_input", "backward_weight", "recompute",
// "load", "all_reduce", "optimizer", "generic".
std::string_view Name(InstructionKind kind);

// Returns the kind with this name, or nullopt if no kind has this name.
std::optional<InstructionKind> ParseInstructionKind(std::string_view name);

// Whether a profile measures this kind (the first five).
constexpr bool IsComputation(InstructionKind kind) { return kind <= InstructionKind::kRecompute; }

}  // namespace perseus
