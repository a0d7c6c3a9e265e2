// What a GPU of a pipeline does during an iteration, by the field's names.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace perseus {

enum class InstructionKind : std::uint8_t {
  // Computations: their time and energy depend on the clock, and a profile measures them.
  kForward,
  kBackward,        // The full backward pass.
  kBackwardInput,   // dgrad: the gradient of the activations alone.
  kBackwardWeight,  // wgrad: the gradient of the weights alone.
  kRecompute,       // The forward pass again, for activations that were not kept.
  // Fixed instructions: no clock changes their time.
  kLoad,
  kAllReduce,
  kOptimizer,
  // Anything else: an instruction of a general graph.
  kGeneric,
};

// The name in files: "forward", "backward", "backward_input", "backward_weight", "recompute",
// "load", "all_reduce", "optimizer", "generic".
std::string_view Name(InstructionKind kind);

// The kind of that name; nothing if there is none.
std::optional<InstructionKind> ParseInstructionKind(std::string_view name);

// Whether a profile measures this kind (the first five).
constexpr bool IsComputation(InstructionKind kind) { return kind <= InstructionKind::kRecompute; }

}  // namespace perseus
