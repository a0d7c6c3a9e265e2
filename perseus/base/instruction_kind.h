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
  kOptimizerStep,   // At the end of an iteration. Memory limits it more than the clock does.
  // Fixed instructions: no clock changes their time.
  kLoad,
  kAllReduce,
  kOptimizer,  // One that was not measured.
  // An instruction of a general graph.
  kGeneric,
};

// The name in files: "forward", "backward", "backward_input", "backward_weight", "recompute",
// "optimizer_step", "load", "all_reduce", "optimizer", "generic".
std::string_view Name(InstructionKind kind);

// Returns the kind with this name, or nullopt if no kind has this name.
std::optional<InstructionKind> ParseInstructionKind(std::string_view name);

// The kinds that a profile measures come first. This is the last of them.
inline constexpr InstructionKind kLastComputation = InstructionKind::kOptimizerStep;
inline constexpr int kComputationKinds = static_cast<int>(kLastComputation) + 1;

// Whether a profile measures this kind.
constexpr bool IsComputation(InstructionKind kind) { return kind <= kLastComputation; }

}  // namespace perseus
