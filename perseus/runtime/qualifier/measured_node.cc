#include "perseus/runtime/qualifier/measured_node.h"

#include <atomic>

namespace perseus::qualifier {

std::string_view NameOf(Operation operation) {
  switch (operation) {
    case Operation::kLaunch:
      return "launch";
    case Operation::kKernel:
      return "kernel";
    case Operation::kCopy:
      return "copy";
    case Operation::kCollective:
      return "collective";
    case Operation::kHostFunction:
      return "host_function";
  }
  return "";
}

std::string WhyTooFewGpus(Operation operation, int gpu_count) {
  const bool needs_two = operation == Operation::kCopy || operation == Operation::kCollective;
  return needs_two && gpu_count < 2 ? "the node has only one GPU" : "";
}

void Sleep(Clock& clock, Nanoseconds duration) {
  const std::atomic<std::uint32_t> nobody_wakes = 0;
  const Nanoseconds until = clock.Now() + duration;
  while (clock.Now() < until) clock.WaitWhile(nobody_wakes, 0, until);
}

}  // namespace perseus::qualifier
